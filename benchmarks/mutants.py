"""Mutation testing: put one small fault at a time into the code and see whether a test fails.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src nice -n 19 python benchmarks/mutants.py --count 300

A mutant changes one expression or statement of a function: another comparison, operation or
constant, a missing `not` or statement. Mutants are sampled from the code. `mutants.json` lists
faults that the tests once missed, which are always tried, and equivalent mutants, which never are,
with the reason. One process imports everything and collects the tests. For each mutant a fork of it
replaces the code of the function in memory and runs the fastest tests that call the function, until
one fails. No file is changed; processes that tests start, and code that runs at import, are not
mutated.
"""

import argparse
import ast
import contextlib
import gc
import importlib
import json
import math
import os
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
import torch

os.environ["GRAPHMAMBA_NO_TYPECHECK"] = "1"  # functions are their own code, not wrapped

from graphmamba.environment import describe
from graphmamba.studies.report import write_json

ROOT = Path(__file__).parents[1]
LIST = ROOT / "benchmarks" / "mutants.json"
PACKAGE = ROOT / "src" / "graphmamba"
FILES = (
    "ops/*/reference.py", "nn/*.py", "ordering/*.py", "training/*.py", "data/custom/*.py",
)  # fmt: skip
ELSEWHERE = (
    "ordering/triton.py", "ordering/triton_kernels.py", "training/cuda_graph.py",
    "training/compile.py", "training/distributed.py", "training/progress.py",
)  # fmt: skip
"""Needs a GPU, further processes or a terminal."""
TESTS = (
    "tests/ops/test_batch_norm.py", "tests/ops/test_causal_conv1d.py",
    "tests/ops/test_edge_attention.py", "tests/ops/test_gated_sum.py",
    "tests/ops/test_selective_scan.py", "tests/nn", "tests/ordering",
    "tests/data/custom", "tests/training", "tests/test_minimal.py", "tests/test_atomic.py",
    "tests/data/test_splits.py", "tests/data/datasets/test_sbm.py",
)  # fmt: skip
WITHOUT_SLOW = "not compile and not interpret and not distributed and not preset and not cuda_graph"
SECONDS = 120
"""CPU time of a mutant, or a twentieth of its wall time; beyond it, the mutant counts as found."""
LONGEST_TEST = 4.0
"""CPU seconds of a test while traced; slower tests are not used."""
GIBIBYTES = 8
"""Address space that a mutant may add to the process."""
COMPARED: dict[type, str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip
COMPUTED: dict[type, str] = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*",
    ast.Pow: "*",
}  # fmt: skip
Function = tuple[str, str, int]
"""File, qualified name and first line."""


@dataclass(frozen=True)
class Mutant:
    """A change of some lines of a file."""

    file: str
    function: str
    operator: str
    before: str
    after: str
    nth: int
    """Index among equal lines of the file."""
    equivalent: str = ""
    """Why it computes the same; empty for others."""

    def is_there(self) -> bool:
        """Whether the file still has these lines."""
        path = PACKAGE / self.file
        return path.exists() and path.read_text(encoding="utf-8").count(self.before) > self.nth

    def source(self) -> str:
        """The file with the change; line numbers stay the same."""
        parts = (PACKAGE / self.file).read_text(encoding="utf-8").split(self.before)
        first, last = parts[: self.nth + 1], parts[self.nth + 1 :]
        return self.before.join(first) + self.after + self.before.join(last)


def main() -> None:
    """Sample mutants, run them and those of the list, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=300, help="number of sampled mutants")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--workers", type=int, default=2, help="mutants at a time")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="start no further mutant after this time"
    )
    parser.add_argument("--only", default="", help="prefix of the files")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/results/mutants.json")
    parser.add_argument(
        "--calls", type=Path, help="file for the calls of each test, reused by later runs"
    )
    parser.add_argument("--commit", help="recorded commit, where the code has no git history")
    options = parser.parse_args()

    listed = [Mutant(**each) for each in json.loads(LIST.read_text(encoding="utf-8"))]
    by_hand = [each for each in listed if not each.equivalent and each.is_there()]
    passed_over = {(each.file, each.before, each.after, each.nth) for each in listed}
    drawn = [
        each
        for each in draw(options.count, options.seed)
        if (each.file, each.before, each.after, each.nth) not in passed_over
    ]
    mutants = [each for each in [*by_hand, *drawn] if each.file.startswith(options.only)]
    with tempfile.TemporaryDirectory() as place:
        calls = options.calls or Path(place) / "calls.json"
        runner = Runner(mutants, options.workers, options.minutes, calls)
        words = [
            "-p",
            "no:terminal",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow",
            "-k",
            WITHOUT_SLOW,
        ]
        status = pytest.main([*words, "--basetemp", place + "/t", *TESTS], plugins=[runner])
    if status != pytest.ExitCode.OK:
        raise SystemExit(f"the tests could not be collected: {status!r}")
    noticed = sum(each["noticed_by"] is not None for each in runner.found)
    found = {
        "environment": describe(torch.device("cpu"), options.commit),
        "asked": {"count": options.count, "seed": options.seed},
        "mutants_tried": len(runner.found),
        "noticed": noticed,
        "tests_that_fail_or_are_slow_without_mutants": runner.failing,
        "mutants": runner.found,
    }
    write_json(options.out, found)
    sys.stdout.write(f"{noticed} of {len(runner.found)} noticed\n")


def draw(count: int, seed: int) -> list[Mutant]:
    """Sample mutants; the same code and seed give the same ones."""
    files = sorted(str(path.relative_to(PACKAGE)) for each in FILES for path in PACKAGE.glob(each))
    found = [
        mutant
        for file in files
        if file not in ELSEWHERE
        for mutant in mutants_of(file, (PACKAGE / file).read_text(encoding="utf-8"))
    ]
    chosen = set(random.Random(seed).sample(range(len(found)), min(count, len(found))))
    return [each for place, each in enumerate(found) if place in chosen]


def mutants_of(file: str, source: str) -> Iterator[Mutant]:
    """Generate all mutants of a file, by line."""
    lines = source.splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()))
    content = source.encode()

    def span(node: Any) -> tuple[int, int]:
        return (
            starts[node.lineno - 1] + node.col_offset,
            starts[node.end_lineno - 1] + node.end_col_offset,
        )

    for function, node in nodes_within(ast.parse(source)):
        for operator, begin, end, text in changes(node, span, content):
            first, last = content.rfind(b"\n", 0, begin) + 1, content.find(b"\n", end)
            before = content[first:last]
            blank = b"\n" * (content[begin:end].count(b"\n") - text.count(b"\n"))
            after = content[first:begin] + text + blank + content[end:last]
            yield Mutant(
                file,
                function,
                operator,
                before.decode(),
                after.decode(),
                content[:first].count(before),
            )


def nodes_within(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Generate the nodes inside functions, each with the name of its function.

    Without annotations, defaults, docstrings, messages, and what is in `raise` and `assert`.
    """

    def below(node: ast.AST, name: str, inside: bool) -> Iterator[tuple[str, ast.AST]]:
        # functions within a function are part of its code
        for key, value in ast.iter_fields(node):
            if key in ("args", "returns", "annotation", "decorator_list", "exc", "cause") and (
                not isinstance(node, ast.Call)
            ):
                continue
            for each in value if isinstance(value, list) else [value]:
                if not isinstance(each, ast.AST) or isinstance(each, ast.JoinedStr | ast.Assert):
                    continue
                own = name
                is_function = isinstance(each, ast.FunctionDef)
                if not inside and isinstance(each, ast.FunctionDef | ast.ClassDef):
                    own = f"{name}.{each.name}".lstrip(".")
                if inside or is_function:
                    yield own, each
                yield from below(each, own, inside or is_function)

    yield from below(tree, "", inside=False)


def changes(
    node: ast.AST, span: Callable[[Any], tuple[int, int]], content: bytes
) -> Iterator[tuple[str, int, int, bytes]]:
    """Generate the faults of a node: kind, first and last byte, replacement."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        for place, kind in enumerate(node.ops):
            begin, end = span(sides[place])[1], span(sides[place + 1])[0]
            gap = content[begin:end]
            old = gap.strip(b" ()\n")
            if b"\n" not in gap:
                yield "comparison", begin, end, gap.replace(old, COMPARED[type(kind)].encode())
    elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        begin, end = span(node.left)[1], span(node.right)[0]
        gap = content[begin:end]
        old = gap.strip(b" ()\n")
        if b"\n" not in gap:
            yield "arithmetic", begin, end, gap.replace(old, COMPUTED[type(node.op)].encode())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "dropped not", *span(node), content[slice(*span(node.operand))]
    elif isinstance(node, ast.BoolOp):
        begin, end = span(node.values[0])[1], span(node.values[1])[0]
        old, new = (b"and", b"or") if isinstance(node.op, ast.And) else (b"or", b"and")
        yield "and or", begin, end, content[begin:end].replace(old, new)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float):
        value = node.value
        other = not value if isinstance(value, bool) else value + 1
        yield "constant", *span(node), repr(other).encode()
    elif (
        isinstance(node, ast.Raise | ast.AugAssign | ast.Continue | ast.Break)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call))
        or (isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name | ast.Tuple))
    ):
        yield "removed statement", *span(node), b"pass"


class Runner:
    """Pytest plugin that runs the mutants once the tests are collected.

    Args:
        mutants: All mutants.
        workers: Mutants at a time.
        minutes: No further mutant is started after this time.
        calls: File of the functions that each test calls; written if it is missing.
    """

    def __init__(
        self, mutants: Sequence[Mutant], workers: int, minutes: float, calls: Path
    ) -> None:
        self._mutants, self._workers, self._calls = mutants, workers, calls
        self._end = time.monotonic() + 60 * minutes
        self.found: list[dict[str, Any]] = []
        self.failing: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Trace the calls of all tests, then run each mutant with the tests that call it."""
        if session.testsfailed:
            raise pytest.UsageError("a file of tests cannot be imported")
        for file in sorted({each.file for each in self._mutants}):
            name = f"graphmamba.{file.removesuffix('.py').replace('/', '.')}"
            importlib.import_module(name.removesuffix(".__init__"))
        if not self._calls.exists():
            child, pipe = start(lambda: trace(session, self._calls), seconds=3600)
            wait([pipe])
            finish(child, pipe)
        traced = json.loads(self._calls.read_text(encoding="utf-8"))
        self.failing = [name for name, each in traced.items() if each["failed"]]
        items = {item.nodeid: item for item in session.items}
        traced = {name: traced[name] for name in traced if name in items}
        pending = list(reversed(self._mutants))
        running: dict[Connection, tuple[BaseProcess, Mutant, int, float]] = {}
        while pending or running:
            while pending and len(running) < self._workers and time.monotonic() < self._end:
                mutant = pending.pop()
                tests = [items[name] for name in covering(mutant, traced)]
                child, pipe = start(
                    lambda mutant=mutant, tests=tests: attempt(session, mutant, tests)  # type: ignore[misc]
                )
                running[pipe] = (child, mutant, len(tests), time.monotonic())
            if not running:
                break
            ready = wait(list(running), timeout=1.0)
            for pipe, (child, mutant, count, begin) in [*running.items()]:
                if pipe in ready or time.monotonic() - begin > 20 * SECONDS:
                    del running[pipe]
                    self._note(mutant, count, finish(child, pipe))
        return True

    def _note(self, mutant: Mutant, tests: int, answer: Any) -> None:
        # without an answer the process crashed or ran out of time or memory
        noticed_by = "crash, time or memory" if answer is None else answer["failed"]
        if answer and "error" in answer:
            sys.stderr.write(f"\ncannot be tried: {mutant}: {answer['error']}\n")
            return
        self.found.append({"mutant": asdict(mutant), "tests": tests, "noticed_by": noticed_by})
        told = "." if noticed_by else f"\nsurvives {tests} tests: {mutant.file}: {mutant.after}\n"
        sys.stderr.write(told)


def attempt(
    session: pytest.Session, mutant: Mutant, items: Sequence[pytest.Item]
) -> dict[str, Any]:
    """Apply a mutant and run tests until one fails."""
    try:
        apply(mutant)
        return {"failed": first_failure(session, items)}
    except Exception as error:
        return {"failed": None, "error": repr(error)}


def start(work: Callable[[], Any], seconds: int = SECONDS) -> tuple[BaseProcess, Connection]:
    """Run `work` in a fork; returns the process and the pipe of its result."""
    context = get_context("fork")
    reading, writing = context.Pipe(duplex=False)

    def inside() -> None:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for each in (0, 1, 2):
            os.dup2(silent, each)
        spent = int(time.process_time()) + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (spent, spent + 5))
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        most = pages * resource.getpagesize() + GIBIBYTES * 2**30
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        writing.send(work())

    child = context.Process(target=inside)
    child.start()
    writing.close()
    return child, reading


def finish(child: BaseProcess, pipe: Connection) -> Any:
    """Return the result of a process, or None, and kill it with its children."""
    try:
        return pipe.recv() if pipe.poll() else None
    except EOFError:
        return None
    finally:
        assert child.pid
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.join()


def first_failure(session: pytest.Session, items: Sequence[pytest.Item]) -> str | None:
    """Run tests until one fails; return its name."""
    for place, item in enumerate(items):
        following = items[place + 1] if place + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed:
            return item.nodeid
    return None


def trace(session: pytest.Session, out: Path) -> None:
    """Run all tests; write the functions that each calls, and its time."""
    inside = str(PACKAGE)
    called: set[Function] = set()

    def see(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside):
            called.add((code.co_filename[len(inside) + 1 :], code.co_qualname, code.co_firstlineno))

    def stop(*_: object) -> None:
        raise TimeoutError("too slow to be used")

    signal.signal(signal.SIGPROF, stop)
    found: dict[str, Any] = {}
    shared: dict[str, set[Function]] = {}
    items = session.items
    for item, following in zip(items, [*items[1:], None], strict=True):
        failed, begin = session.testsfailed, time.process_time()
        called.clear()
        threading.settrace(see)
        sys.settrace(see)
        signal.setitimer(signal.ITIMER_PROF, LONGEST_TEST)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        signal.setitimer(signal.ITIMER_PROF, 0)
        sys.settrace(None)
        # all tests of a file depend on what its fixtures called
        first = shared.setdefault(item.nodeid.partition("::")[0], set(called))
        found[item.nodeid] = {
            "seconds": round(time.process_time() - begin, 3),
            "failed": session.testsfailed > failed,
            "calls": sorted({(file, name) for file, name, _ in called}),
            "shared": sorted({(file, name) for file, name, _ in first - called}),
        }
    out.write_text(json.dumps(found), encoding="utf-8")


def covering(mutant: Mutant, traced: dict[str, Any], budget: float = 30.0) -> list[str]:
    """Choose the fastest tests that call the function, first those of its own test file."""
    key, stem = [mutant.file, mutant.function], Path(mutant.file).stem
    candidates = [
        (key not in each["calls"], f"test_{stem}.py" not in name, each["seconds"], name)
        for name, each in traced.items()
        if not each["failed"] and (key in each["calls"] or key in each["shared"])
    ]
    chosen: list[str] = []
    spent = 0.0
    for _, _, seconds, name in sorted(candidates):
        if not chosen or spent + seconds <= budget:
            chosen.append(name)
            spent += seconds
    # grouped by file, since tests of a file share fixtures
    files = list(dict.fromkeys(name.partition("::")[0] for name in chosen))
    return sorted(chosen, key=lambda name: files.index(name.partition("::")[0]))


def apply(mutant: Mutant) -> None:
    """Replace the code of the mutated function in memory."""
    path, source = str(PACKAGE / mutant.file), mutant.source()
    codes = {
        (code.co_qualname, code.co_firstlineno): code
        for code in codes_within(compile(source, path, "exec", dont_inherit=True))
    }
    changed = [
        each
        for each in gc.get_objects()
        if type(each) is FunctionType  # isinstance would make some proxies warn
        and each.__code__.co_filename == path
        and each.__code__.co_qualname == mutant.function
    ]
    if not changed:
        raise ValueError(f"no function {mutant.function} of {mutant.file} is there")
    for each in changed:
        each.__code__ = codes[each.__code__.co_qualname, each.__code__.co_firstlineno]


def codes_within(code: CodeType) -> Iterator[CodeType]:
    """Generate the code objects of a file and of all functions in it."""
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from codes_within(each)


if __name__ == "__main__":
    main()
