"""Damaged inputs by the thousand: does every command answer with one line, and in time?

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/fuzz.py --inputs 1200 --seed 0

Small graphs, an experiment, weights and the state of a run are written, and damaged in ways that
follow from the seed: bits, spans and cells of files, entries of headers. A command reads each. It
may take the input, or end with a status and one line; whatever else it does is recorded, with the
input that it did it for. What it takes is read a second time by pandas, NumPy or PyYAML, and what
the command found has to agree.
"""

import argparse
import contextlib
import io
import json
import math
import random
import re
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml
from rich.console import Console

from graphmamba.checks import check_least
from graphmamba.cli import main as graphmamba
from graphmamba.environment import describe
from graphmamba.studies.report import table, write_json
from graphmamba.training.checkpoint import META

RESULTS = Path(__file__).parent / "results"
SECONDS = 60
"""Of a processor, after which an input hangs; other programs may need the processor as well."""
WAITING = 600
"""Seconds of the clock after which it hangs whatever it does."""
GIBIBYTES = 8
"""Of addresses beyond those at the beginning, after which an input takes memory beyond reason."""
LONGEST_LINE = 2200
STATUSES = (0, 2, 75)
NARROW = ["--model.channels", "8", "--model.layers", "1", "--train.batch_size", "4"]
WORDS = (
    b"nan", b"-inf", b"1e999", b"-1", b"0x_", b"\0", b"\xff\xfe", b'"', b"\n", b"\r\n", b",", b"'",
    b"[", b"{", b"}", b"*a", b"&a ", b"!!int x", b"2020-13-45", b"9223372036854775808", b"null",
    b"true", b": ", b"- ", b"9" * 30, b"[" * 2000, "\u202e\u0000é".encode(), b"1_000", b"1,5",
    b"C1CC", b"%s", b"<<: ", b"((", b".", b"e", b"#", b"\t",
)  # fmt: skip
"""What is written into the middle of files."""
VALUES: tuple[Any, ...] = (
    None, -1, 0, 1.5, 2**63, 2**70, 10**9, -(2**63), 1e308, float("nan"), float("inf"), "x",
    "", "0", True, [], {}, [[]], [1, 2], {"x": 1}, "x" * 5000, [None] * 7,
)  # fmt: skip
"""What entries of headers become."""


class HangError(BaseException):
    """An input took too long; no `except Exception` on its way may take it for something else."""


@dataclass
class Tally:
    """What became of the inputs of one format."""

    tried: int = 0
    accepted: int = 0
    rejected: int = 0
    tracebacks: int = 0
    hangs: int = 0
    wrong: int = 0
    """Taken, but not as another program reads them; or rejected, but not left as they were."""
    slowest_seconds: float = 0.0
    found: list[str] = field(default_factory=list)
    """What is to be mended, each once."""


def main() -> None:
    """Try all inputs, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=1200, help="over all formats")
    parser.add_argument("--seed", type=int, default=0, help="of all damage")
    parser.add_argument("--only", choices=tuple(FORMATS), help="a single format")
    parser.add_argument("--keep", type=Path, help="folder for the inputs that are to be mended")
    parser.add_argument("--out", type=Path, default=RESULTS / "fuzz.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    check_least("--inputs", options.inputs, 1)
    names = [options.only] if options.only else list(FORMATS)
    begin, inputs = time.monotonic(), -(-options.inputs // len(names))
    with tempfile.TemporaryDirectory() as place:
        tallies = {
            name: run(name, inputs, options.seed, Path(place), options.keep) for name in names
        }
    columns = ("tried", "accepted", "rejected", "tracebacks", "hangs", "wrong", "slowest_seconds")
    rows = [
        [name, *(f"{getattr(tally, column):.4g}" for column in columns)]
        for name, tally in tallies.items()
    ]
    Console().print(table("Damaged inputs", ["format", *columns], rows))
    for name, tally in tallies.items():
        for each in tally.found:
            Console().print(f"{name}: {each}", markup=False)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    environment = describe(torch.device("cpu"), options.commit)
    asked = {"inputs": options.inputs, "seed": options.seed, "seconds_allowed": SECONDS}
    found = {"seconds": time.monotonic() - begin, "formats": tallies}
    write_json(options.out, {"environment": environment, "asked": asked, **found})


def run(name: str, inputs: int, seed: int, place: Path, keep: Path | None = None) -> Tally:
    """Damage the files of one format again and again, and have a command read each.

    Args:
        name: The format.
        inputs: How often.
        seed: Of the damage; the same for an input whatever the number of others.
        place: A folder for all that is written.
        keep: Where inputs go that are to be mended; None for nowhere.
    """
    write, damage, words, judge = FORMATS[name]
    whole, tried, root = place / name / "whole", place / name / "tried", place / "root"
    whole.mkdir(parents=True)
    write(whole, root)
    tally = Tally()
    with limited_memory():
        for number in range(inputs):
            shutil.rmtree(tried, ignore_errors=True)
            shutil.copytree(whole, tried)
            # the first one is whole: what is rejected then says nothing about damage
            if number:
                damage(tried, random.Random(f"{seed} {name} {number}"))
            found = answer(words(tried, root), tally, lambda printed: judge(tried, printed))
            if number == 0 and tally.accepted != 1:
                raise RuntimeError(f"{name}: whole files are not accepted: {found}")
            if found is not None:
                if found not in tally.found:
                    tally.found.append(found)
                if keep is not None:
                    shutil.copytree(tried, keep / f"{name}-{number}", dirs_exist_ok=True)
    return tally


def answer(words: list[str], tally: Tally, judge: Callable[[str], str | None]) -> str | None:
    """Run a command, count how it ends, and say what is to be mended.

    Args:
        words: The command.
        tally: Counts.
        judge: Says what is wrong with inputs that were taken, given what the command printed.
    """
    tally.tried += 1
    begin, shown, errors, found = time.process_time(), io.StringIO(), io.StringIO(), None
    status: Any = 0
    try:
        with time_limit(), contextlib.redirect_stdout(shown), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with contextlib.redirect_stderr(errors):
                graphmamba(words)
    except SystemExit as ended:
        status = ended.code or 0
    except HangError:
        tally.hangs += 1
        found = f"hangs: {' '.join(words[:2])}"
    except BaseException as error:
        tally.tracebacks += 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        found = f"{type(error).__name__} in {Path(last.filename).name}, {last.name}: {error}"[:200]
    tally.slowest_seconds = max(tally.slowest_seconds, round(time.process_time() - begin, 2))
    if found is not None:
        return found
    tally.rejected += status == 2  # noqa: PLR2004
    tally.accepted += status != 2  # noqa: PLR2004
    told = errors.getvalue()
    is_one_line = told.endswith("\n") and told[:-1].isprintable() and len(told) < LONGEST_LINE
    if status not in STATUSES or (status == 2 and not is_one_line):  # noqa: PLR2004
        return f"ends with {status} and says {told[:200]!r}"
    if status != 2 and (found := judge(shown.getvalue())) is not None:  # noqa: PLR2004
        tally.wrong += 1
    return found


@contextlib.contextmanager
def time_limit() -> Iterator[None]:
    """Raise where the inside takes too long."""

    def stop(*_: object) -> None:
        raise HangError

    clocks = {signal.SIGPROF: signal.ITIMER_PROF, signal.SIGALRM: signal.ITIMER_REAL}
    before = {number: signal.signal(number, stop) for number in clocks}
    for clock, seconds in zip(clocks.values(), (SECONDS, WAITING), strict=True):
        signal.setitimer(clock, seconds)
    try:
        yield
    finally:
        for number, clock in clocks.items():
            signal.setitimer(clock, 0)
            signal.signal(number, before[number])


@contextlib.contextmanager
def limited_memory() -> Iterator[None]:
    """Let no input take all memory of the machine: it gets a `MemoryError` instead."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * resource.getpagesize() + GIBIBYTES * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Change bytes: bits, spans, words and lines."""
    for _ in range(draw.choice((1, 1, 2, 4))):
        begin = draw.randrange(len(content) + 1)
        end = min(len(content), begin + draw.choice((1, 2, 8, 64)))
        span, word = content[begin:end], draw.choice(WORDS)
        what = draw.randrange(7)
        if what == 0 and span:
            span = bytes([span[0] ^ 1 << draw.randrange(8)]) + span[1:]
        elif what == 1:
            span = draw.randbytes(len(span))
        elif what == 2:  # noqa: PLR2004
            span = b""
        elif what == 3:  # noqa: PLR2004
            span = span * draw.choice((2, 3, 50))
        elif what in (4, 5):
            span = word + span * (what == 4)  # noqa: PLR2004
        else:
            end = len(content) if draw.random() < 0.3 else end  # noqa: PLR2004
            span = b""
        content = content[:begin] + span + content[end:]
    return content


def damage_bytes(folder: Path, draw: random.Random) -> None:
    """Change the bytes of one of the files."""
    path = draw.choice(sorted(each for each in folder.rglob("*") if each.is_file()))
    path.write_bytes(damaged(path.read_bytes(), draw))


def damage_cells(folder: Path, draw: random.Random) -> None:
    """Change cells, whole lines or bytes of a table."""
    if draw.random() < 0.4:  # noqa: PLR2004
        damage_bytes(folder, draw)
        return
    path = draw.choice(sorted(folder.glob("*.csv")))
    lines = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    for _ in range(draw.choice((1, 2, 5))):
        line = draw.choice(lines)
        if draw.random() < 0.2:  # noqa: PLR2004
            lines.append(line)
        else:
            line[draw.randrange(len(line))] = draw.choice(WORDS).decode(errors="replace")
    path.write_text("\n".join(map(",".join, lines)) + "\n", encoding="utf-8")


def damage_arrays(folder: Path, draw: random.Random) -> None:
    """Change an array's numbers, type or shape, or bytes of the archive."""
    (path,) = folder.glob("*.npz")
    if draw.random() < 0.4:  # noqa: PLR2004
        damage_bytes(folder, draw)
        return
    with np.load(path) as read:
        arrays = dict(read)
    name = draw.choice(sorted(arrays))
    values = arrays[name]
    number = draw.choice((-1, 2**62, 10**9, 0, 3))
    arrays[name] = draw.choice(
        (
            lambda: values[:-1], lambda: values[None], lambda: values.astype(np.float32) * np.nan,
            lambda: values.astype("S3"), lambda: values.astype(np.complex64),
            lambda: values[..., :0],
            lambda: np.array(number), values.ravel, lambda: values.astype(bool),
            lambda: np.where(np.arange(values.size).reshape(values.shape) == 1, number, values),
        )
    )()  # fmt: skip
    if draw.random() < 0.2:  # noqa: PLR2004
        del arrays[name]
    np.savez(path, **arrays)


def damage_header(folder: Path, draw: random.Random) -> None:
    """Change entries of the JSON in a safetensors file, a tensor of it, or its bytes."""
    from safetensors import safe_open
    from safetensors.torch import save_file

    (path,) = folder.rglob("state.safetensors" if (folder / "last").exists() else "*.safetensors")
    if draw.random() < 0.3:  # noqa: PLR2004
        path.write_bytes(damaged(path.read_bytes(), draw))
        return
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = json.loads(file.metadata()[META])
    for _ in range(draw.choice((1, 1, 3))):
        if draw.random() < 0.7:  # noqa: PLR2004
            change_entry(about, draw)
        else:
            name = draw.choice(sorted(tensors))
            tensor = tensors[name]
            shape = draw.choice(([], [1], [2, 0], [*tensor.shape, 1], [3]))
            tensors[name] = draw.choice((torch.zeros(shape), tensor.double(), tensor.bool()))
            if draw.random() < 0.2:  # noqa: PLR2004
                del tensors[name]
    save_file(tensors, path, metadata={META: json.dumps(about)})


def damage_entries(folder: Path, draw: random.Random) -> None:
    """Change entries of an experiment, which stays YAML."""
    path = folder / "my.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    for _ in range(draw.choice((1, 1, 3))):
        change_entry(content, draw)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")


def change_entry(content: Any, draw: random.Random) -> None:
    """Change or drop an entry somewhere in nested JSON."""
    while True:
        keys = sorted(content) if isinstance(content, dict) else range(len(content))
        key = draw.choice(list(keys))
        below = content[key]
        if isinstance(below, dict | list) and below and draw.random() < 0.85:  # noqa: PLR2004
            content = below
        elif draw.random() < 0.15:  # noqa: PLR2004
            del content[key]
            return
        else:
            content[key] = deepcopy(draw.choice(VALUES))
            return


def write_folder(folder: Path, _: Path) -> None:
    """Rings and lines as CSV files."""
    graphs, nodes, edges = ["graph,taste"], ["graph,node,size"], ["graph,source,target"]
    for graph in range(8):
        size, is_ring = 4 + graph % 3, graph % 2 == 0
        graphs.append(f"g{graph},{'sweet' if is_ring else 'sour'}")
        nodes += [f"g{graph},n{node},{node % 2}" for node in range(size)]
        ends = size if is_ring else size - 1
        edges += [f"g{graph},n{node},n{(node + 1) % size}" for node in range(ends)]
    for name, lines in (("graphs", graphs), ("nodes", nodes), ("edges", edges)):
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_arrays(folder: Path, _: Path) -> None:
    """Lines of three nodes whose target is the sum of their features."""
    x = np.arange(24, dtype=np.float64)[:, None] / 8
    np.savez(
        folder / "graphs.npz",
        node_ptr=3 * np.arange(9),
        edge_ptr=2 * np.arange(9),
        edge_index=np.tile(np.array([[0, 1], [1, 2]]), 8),
        x=x,
        y=x.reshape(8, 3).sum(axis=1) + 0.5,
    )


def write_molecules(folder: Path, _: Path) -> None:
    """A few molecules with a label."""
    smiles = ("CCO", "c1ccccc1", "CC(=O)O", "C1CC1", "N#N", "O", "CC(C)Cc1ccc(C)cc1", "[Na+].[Cl-]")
    lines = [f"{each},{number % 2}" for number, each in enumerate(smiles)]
    (folder / "molecules.csv").write_text(
        "\n".join(["smiles,toxic", *lines]) + "\n", encoding="utf-8"
    )


def write_experiment(folder: Path, _: Path) -> None:
    """All entries of an experiment, and how it is run."""
    from graphmamba.training.experiment import RunOptions, load_experiment
    from graphmamba.training.run_dir import write_config

    write_config(folder / "my.yaml", load_experiment("peptides-func"), RunOptions(), [0, 1])


def write_small_experiment(folder: Path, _: Path) -> None:
    """All entries of an experiment that takes a moment."""
    from graphmamba.training.experiment import load_experiment

    small = {
        "split_sizes": [8, 4, 4],
        "model.channels": 8,
        "model.layers": 1,
        "train.batch_size": 4,
    }
    experiment = load_experiment("pattern/default", small)
    (folder / "my.yaml").write_text(experiment.to_yaml(), encoding="utf-8")


def write_weights(folder: Path, root: Path) -> None:
    """What a run on the folder of rings keeps."""
    rings = root / "rings"
    rings.mkdir(parents=True)
    write_folder(rings, root)
    words = ["train", str(rings), "--data.target", "taste", *NARROW, "--train.epochs", "1"]
    with contextlib.redirect_stdout(io.StringIO()):
        graphmamba([*words, "--run_dir", str(root / "run"), "--data_dir", str(root)])
    shutil.copy(root / "run" / "best.safetensors", folder)


def write_state(folder: Path, root: Path) -> None:
    """A run that was stopped after its first step."""
    words = ["train", "--split_sizes", "8,4,4", *NARROW, "--train.epochs", "3", "--max-time", "0"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        graphmamba([*words, "--run_dir", str(folder / "run"), "--data_dir", str(root)])
    for path in (folder / "run").iterdir():
        path.rename(folder / path.name)
    (folder / "run").rmdir()


def counted(printed: str, wanted: dict[str, int]) -> str | None:
    """Compare rows of a printed table with what another program has counted."""
    for name, count in wanted.items():
        found = re.search(rf"^ *{name} +([\d,]+) *$", printed, re.MULTILINE)
        if found is None or int(found[1].replace(",", "")) != count:
            return f"wrong: {name} must be {count}, printed {found and found[1]}"
    return None


def judge_folder(folder: Path, printed: str) -> str | None:
    """Let pandas count the rows."""
    tables = {
        name: pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        for name in ("graphs", "nodes", "edges")
    }
    names = {"graphs": "graphs", "nodes": "nodes in all", "edges": "directed edges in all"}
    return counted(printed, {names[name]: len(table) for name, table in tables.items()})


def judge_molecules(folder: Path, printed: str) -> str | None:
    """Let pandas and RDKit count the molecules that can be read, and their atoms."""
    from rdkit import Chem, rdBase

    table = pd.read_csv(folder / "molecules.csv", dtype=str, keep_default_na=False)
    quiet = rdBase.BlockLogs()
    read = (Chem.MolFromSmiles(each.strip()) for each in table["smiles"])
    atoms = [each.GetNumAtoms() for each in read if each is not None and each.GetNumAtoms()]
    del quiet
    return counted(printed, {"graphs": len(atoms), "nodes in all": sum(atoms)})


def judge_arrays(folder: Path, printed: str) -> str | None:
    """Let NumPy count."""
    (path,) = folder.glob("*.npz")
    with np.load(path) as arrays:
        edges = arrays["edge_index"].shape[1]
        # a single graph needs no boundaries
        ptr = arrays["node_ptr"] if "node_ptr" in arrays else [0, len(arrays["x"])]
        graphs, nodes = len(ptr) - 1, int(ptr[-1])
    return counted(
        printed, {"graphs": graphs, "nodes in all": nodes, "directed edges in all": edges}
    )


def judge_entries(given: Any, taken: Any, key: str = "") -> str | None:
    """Find an entry that is not what was written; those that were left out have defaults."""
    if isinstance(given, dict) and isinstance(taken, dict):
        wrong = (
            judge_entries(value, taken.get(name, "missing"), f"{key}.{name}")
            for name, value in given.items()
            if name not in ("options", "seeds")
        )
        return next((each for each in wrong if each is not None), None)
    if given == taken:
        return None
    # YAML takes 1e-5 for a word
    with contextlib.suppress(TypeError, ValueError):
        if not isinstance(given, bool) and math.isclose(float(given), float(taken)):
            return None
    return f"wrong: {key} was {given!r:.60}, taken for {taken!r:.60}"


def judge_printed(folder: Path, printed: str) -> str | None:
    """Let PyYAML read both."""
    given = yaml.safe_load((folder / "my.yaml").read_text(encoding="utf-8"))
    return judge_entries(given or {}, yaml.safe_load(printed))


def judge_started(folder: Path, _: str) -> str | None:
    """Compare with what the run notes of itself."""
    given, taken = (
        yaml.safe_load((folder / name).read_text(encoding="utf-8"))
        for name in ("my.yaml", "run/config.yaml")
    )
    return judge_entries(given or {}, taken)


def judge_predictions(folder: Path, _: str) -> str | None:
    """Each graph has probabilities, or says that it has none."""
    table = pd.read_csv(folder / "out.csv")
    found = table.filter(regex="^p_").to_numpy()
    rows = np.isfinite(found).all(axis=1)
    if len(table) != 8 or not np.allclose(found[rows].sum(axis=1), 1, atol=1e-5):  # noqa: PLR2004
        return f"wrong: predictions are {table.to_dict('list')}"[:200]
    return None


def judge_state(folder: Path, _: str) -> str | None:
    """What goes on can be gone on with."""
    from graphmamba.training.checkpoint import read_tensors

    read_tensors(folder / "last" / "state.safetensors")
    return None


Write = Callable[[Path, Path], None]
Damage = Callable[[Path, random.Random], None]
Words = Callable[[Path, Path], list[str]]
Judge = Callable[[Path, str], str | None]


def _info(folder: Path, root: Path) -> list[str]:
    files = [*folder.glob("*.npz"), *folder.glob("molecules.csv"), folder]
    label = {"molecules.csv": "toxic", folder.name: "taste"}.get(files[0].name)
    named = ["--target", label] if label else []
    return ["data", "info", str(files[0]), *named, "--data_dir", str(root / "sets")]


FORMATS: dict[str, tuple[Write, Damage, Words, Judge]] = {
    "csv": (write_folder, damage_cells, _info, judge_folder),
    "npz": (write_arrays, damage_arrays, _info, judge_arrays),
    "smiles": (write_molecules, damage_cells, _info, judge_molecules),
    "yaml": (
        write_experiment,
        damage_bytes,
        lambda folder, _: ["train", str(folder / "my.yaml"), "--print_config"],
        judge_printed,
    ),
    "experiment": (
        write_small_experiment,
        damage_entries,
        lambda folder, root: [
            "train", str(folder / "my.yaml"), "--max-time", "0", "--data_dir", str(root / "sets"),
            "--run_dir", str(folder / "run"),
        ],
        judge_started,
    ),
    "weights": (
        write_weights,
        damage_header,
        lambda folder, root: [
            "predict", str(folder / "best.safetensors"), "--input", str(root / "rings"),
            "--output", str(folder / "out.csv"), "--data_dir", str(root),
        ],
        judge_predictions,
    ),
    "state": (
        write_state,
        damage_header,
        lambda folder, root: [
            "train", "--resume", str(folder), "--max-time", "0", "--data_dir", str(root)
        ],
        judge_state,
    ),
}  # fmt: skip
"""What is written, how it is damaged, what reads it, and what checks that."""

if __name__ == "__main__":
    main()
