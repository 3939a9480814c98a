"""Run the tests that need a GPU, several processes side by side, and write down how they ended.

    python benchmarks/gpu_tests.py --out benchmarks/results/gpu_tests_h200.json

Most of their time is the compilation of kernels, which one core does for one process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter
from xml.etree import ElementTree

from graphmamba.bench.tables import write_json
from graphmamba.environment import describe, resolve_device

ROOT = Path(__file__).parents[1]
SHARE = 6
"""Tests that one process runs; fewer would spend their time on starting."""
PYTEST = (sys.executable, "-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider")


def main() -> None:
    """Collect, deal out, run, record; the exit status is 1 where a test failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests"], help="folders or files of tests")
    parser.add_argument("--out", type=Path, help="where the record goes, as JSON")
    parser.add_argument("--commit", help="commit of a copy without its history")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds for all of them")
    options = parser.parse_args()
    device = resolve_device("cuda")
    tests = _collect(options.tests)
    begin = perf_counter()
    # Neighbours take about as long as one another: every share gets some of each kind.
    count = -(-len(tests) // SHARE)
    shares = [tests[first::count] for first in range(count)]
    run = partial(_run, deadline=begin + options.limit)
    with ThreadPoolExecutor(options.processes) as pool:
        outcomes = dict(outcome for found in pool.map(run, shares) for outcome in found.items())
    # A process that dies takes the outcomes of its tests along: they count as lost, not as passed.
    counts = Counter(outcomes.values()) + Counter({"lost": len(tests) - len(outcomes)})
    record = {
        **describe(device, options.commit),
        "tests": options.tests,
        "seconds": round(perf_counter() - begin, 1),
        "counts": dict(counts),
        "not passed": {name: how for name, how in outcomes.items() if how != "passed"},
    }
    if options.out:
        write_json(options.out, record)
    sys.stdout.write(f"{dict(counts)} in {record['seconds']} s\n")
    sys.exit(int(counts["passed"] + counts["skipped"] < len(tests)))


def _collect(folders: list[str]) -> list[str]:
    listed = subprocess.run(
        [*PYTEST, "--collect-only", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [line for line in listed.stdout.splitlines() if "::" in line]


def _run(tests: list[str], deadline: float) -> dict[str, str]:
    """Run some tests in a process of their own; return how each ended."""
    left = deadline - perf_counter()
    if left <= 0:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        try:
            ended = subprocess.run(
                [*PYTEST, f"--junitxml={report}", *tests],
                cwd=ROOT, capture_output=True, text=True, check=False, timeout=left,
                # Processes side by side would otherwise fight over the same cores.
                env=os.environ | {"OMP_NUM_THREADS": "1"},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {}
        if ended.returncode:
            sys.stdout.write(ended.stdout[-6000:])
        if not report.exists():
            return {}
        cases = ElementTree.parse(report).getroot().iter("testcase")
        return {f"{case.get('classname')}::{case.get('name')}": _outcome(case) for case in cases}


def _outcome(case: ElementTree.Element) -> str:
    found = [how for how in ("failure", "error", "skipped") if case.find(how) is not None]
    return {"failure": "failed", "error": "failed"}.get(found[0], found[0]) if found else "passed"


if __name__ == "__main__":
    main()
