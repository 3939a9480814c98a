"""Run the tests that need a GPU, several processes side by side, and write down how they ended.

    python benchmarks/gpu_tests.py --out benchmarks/results/gpu_tests_h200.json

Most of their time is the compilation of kernels, which one core does for one process. With
`--durations`, a former record, the longest tests come first, so that none is begun near the end;
with `--resume`, what has passed at the same commit is not run again.
The processes load this file as a plugin of pytest as well, which writes down each test as it ends,
so that a killed process keeps its tests.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).parents[1]
SHARE = 6
"""Tests that one process runs; fewer would spend their time on starting."""
ROUNDS = 4
"""Processes that are started one after another on each core where durations are known."""
Ended = tuple[str, float]
"""How a test ended, and its seconds."""


def pytest_runtest_logreport(report: Any) -> None:
    """Add a line for what has just ended: the preparation of a test, its call, or what follows."""
    line = {
        "test": report.nodeid,
        "stage": report.when,
        "outcome": report.outcome,
        "seconds": report.duration,
    }
    with Path(os.environ["ENDED_TESTS"]).open("a") as file:
        file.write(json.dumps(line) + "\n")


def main() -> None:
    """Collect, assign to processes, run, record; the exit status is 1 where a test did not pass."""
    # not in the tests' processes, where shapes are checked from the first import on
    from graphmamba.environment import describe, resolve_device
    from graphmamba.studies.report import write_json

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests"], help="folders or files of tests")
    parser.add_argument("--out", type=Path, help="where the record goes, as JSON")
    parser.add_argument("--commit", help="commit of a copy without its history")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for all of them")
    parser.add_argument("--durations", type=Path, help="a former record: longest tests first")
    parser.add_argument("--resume", type=Path, help="a record of this commit: run what is missing")
    parser.add_argument("--marker", default="gpu", help="marker of the tests")
    parser.add_argument("--device", default="cuda", help="device that the record describes")
    options = parser.parse_args()
    former = _read_durations(parser, options.durations) if options.durations else {}
    device = resolve_device(options.device)
    about, ended, before = describe(device, options.commit), dict[str, Ended](), 0.0
    if options.resume:
        record = json.loads(options.resume.read_text())
        if record["commit"] != about["commit"]:
            parser.error(f"--resume must be of commit {about['commit']}, got {record['commit']}")
        passed = record["durations"].keys() - record["not passed"].keys()
        ended = {test: ("passed", record["durations"][test]) for test in passed}
        before = record["seconds"]
    tests = _collect(options.tests, options.marker)
    left = [test for test in tests if test not in ended]
    begin = perf_counter()
    run = partial(_run, marker=options.marker, deadline=begin + options.limit)

    def keep() -> dict[str, Any]:
        seconds = round(before + perf_counter() - begin, 1)
        record = {**about, "tests": options.tests, "seconds": seconds, **_summary(tests, ended)}
        if options.out:
            write_json(options.out, record)
        return record

    with ThreadPoolExecutor(options.processes) as pool:
        futures = [pool.submit(run, share) for share in assign(left, former, options.processes)]
        for future in as_completed(futures):
            ended |= future.result()
            # what is cut short leaves what it has
            keep()
    record = keep()
    counts = record["counts"]
    sys.stdout.write(f"{counts} in {record['seconds']} s\n")
    sys.exit(int(counts.get("passed", 0) + counts.get("skipped", 0) < len(tests)))


def _read_durations(parser: argparse.ArgumentParser, path: Path) -> dict[str, float]:
    try:
        return dict(json.loads(path.read_text())["durations"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"--durations must be a record with durations, got '{path}': {error!r}")


def assign(tests: list[str], former: dict[str, float], processes: int) -> list[list[str]]:
    """Assign tests to processes, in the order in which these are to start."""
    if not former:
        # Neighbours take about as long as one another: every share gets some of each kind.
        count = -(-len(tests) // SHARE)
        return [tests[first::count] for first in range(count)]
    # What is not known is taken to be long: begun last in one process, it would not be reached.
    longest = max(former.values())
    seconds = {test: former.get(test, longest) for test in tests}
    fair = sum(seconds.values()) / (processes * ROUNDS)
    shares: list[list[str]] = []
    room = 0.0
    for test in sorted(tests, key=lambda test: -seconds[test]):
        if seconds[test] > room:
            shares.append([])
            room = fair
        shares[-1].append(test)
        room -= seconds[test]
    return shares


def _summary(tests: list[str], ended: dict[str, Ended]) -> dict[str, object]:
    """What a process had not come to when it was killed, or died, is lost, not passed."""
    hows = {test: ended[test][0] if test in ended else "lost" for test in tests}
    passed = Counter(test.partition("::")[0] for test, how in hows.items() if how == "passed")
    others = {test: how for test, how in hows.items() if how not in {"passed", "lost"}}
    return {
        "counts": dict(Counter(hows.values())),
        "not passed": others,
        "lost": [test for test, how in hows.items() if how == "lost"],
        "passed": dict(sorted(passed.items())),
        "durations": {test: round(ended[test][1], 1) for test in tests if test in ended},
    }


def _pytest(marker: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-q", "-m", marker, "-p", "no:cacheprovider"]


def _collect(folders: list[str], marker: str) -> list[str]:
    command = [*_pytest(marker), "--collect-only", *folders]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    tests = [line for line in listed.stdout.splitlines() if "::" in line]
    if listed.returncode or not tests:
        sys.exit(f"no tests marked {marker} could be collected: {listed.stdout[-2000:]}")
    return tests


def _run(tests: list[str], marker: str, deadline: float) -> dict[str, Ended]:
    """Run some tests in a process of their own; return how those ended that did."""
    left = deadline - perf_counter()
    if left <= 0:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        ended = Path(folder, "ended")
        ended.touch()
        paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
        output = Path(folder, "output")
        with output.open("w") as file:
            child = subprocess.Popen(
                [*_pytest(marker), "-p", "gpu_tests", *tests],
                cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
                # Processes side by side would otherwise fight over the same cores.
                env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": paths,
                                  "ENDED_TESTS": str(ended)},
            )  # fmt: skip
        try:
            if child.wait(timeout=left):
                sys.stdout.write(output.read_text()[-6000:])
        except subprocess.TimeoutExpired:
            # with all that its tests have started
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            sys.stdout.write(f"out of time: {', '.join(tests)}\n")
        return _read_ended(ended)


def _read_ended(path: Path) -> dict[str, Ended]:
    """Put the stages of each test together; one whose last stage is missing has not ended."""
    stages: dict[str, list[dict[str, object]]] = {}
    for line in path.read_text().splitlines(keepends=True):
        # A line that is cut short was being written when its process was killed.
        if line.endswith("\n"):
            stage = json.loads(line)
            stages.setdefault(stage["test"], []).append(stage)
    found: dict[str, Ended] = {}
    for test, each in stages.items():
        if each[-1]["stage"] == "teardown":
            hows = [str(stage["outcome"]) for stage in each]
            how = next((how for how in ("failed", "skipped") if how in hows), "passed")
            found[test] = how, sum(float(str(stage["seconds"])) for stage in each)
    return found


if __name__ == "__main__":
    main()
