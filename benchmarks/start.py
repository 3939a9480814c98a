"""Time from the command to the first step and to the end of the first epochs.

    PYTHONPATH=src python benchmarks/start.py peptides-func --data_dir DIR --out FILE.json

Each run is a process of its own: once with empty caches of Triton, Inductor and Numba (`fresh`) and
once more with what that has left (`warm`); `one by one` is fresh too, but kernels are compiled when
they are first launched. Columns of the data set should be there before.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "NUMBA_CACHE_DIR")
RUN = """
import json, os, sys, time
began = float(os.environ["BEGAN"])
from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.fit import fit
from graphmamba.training.graphs import open_data
from graphmamba.training.loop import Loop
from graphmamba.training.reporter import Reporter

name, epochs, data_dir, run_dir = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
marks = {"imported": time.time() - began}

class Marks(Reporter):
    def mark(self, name):
        marks.setdefault(name, round(time.time() - began, 2))
    def on_start(self, start):
        self.mark("started")
    def on_compile(self, done, kernels, seconds):
        if done == kernels:
            self.mark("kernels compiled")
            marks["kernels"] = kernels
    def on_step(self, record):
        self.mark("first step launched")
    def on_evaluate(self, split, done, batches):
        self.mark("first epoch trained")
    def on_epoch(self, record):
        self.mark(f"epoch {record.epoch + 1}")

if os.environ.get("ONE_BY_ONE"):
    Loop.compile_kernels = lambda self: None
planned = load_experiment(name)
experiment, store = open_data(planned, data_dir and __import__("pathlib").Path(data_dir))
marks["opened"] = round(time.time() - began, 2)
class Enough(Exception): pass
class Last(Marks):
    def on_epoch(self, record):
        super().on_epoch(record)
        if record.epoch + 1 >= epochs:
            raise Enough
try:
    fit(experiment, store, RunOptions(device="cuda"), run_dir, Last(), progress=False)
except Enough:
    pass
print(json.dumps(marks))
"""


def time_start(
    name: str, epochs: int, data_dir: Path | None, caches: Path, *, one_by_one: bool = False
) -> dict[str, float]:
    """Run the first epochs of a preset in a new process; seconds from its start to each mark."""
    env = os.environ | {cache: str(caches / cache) for cache in CACHES}
    if one_by_one:
        env["ONE_BY_ONE"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        env["BEGAN"] = repr(time.time())
        command = [sys.executable, "-c", RUN, name, str(epochs), str(data_dir or ""), folder]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr[-3000:])
    marks: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return marks


def main() -> None:
    """Measure and write the record."""
    from graphmamba.environment import describe, resolve_device
    from graphmamba.studies.report import write_json

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("name", help="preset")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--data_dir", type=Path)
    parser.add_argument("--one_by_one", action="store_true", help="and without side by side")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    options = parser.parse_args()

    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as caches, tempfile.TemporaryDirectory() as others:
        asked = options.name, options.epochs, options.data_dir
        found["fresh"] = time_start(*asked, Path(caches))
        found["warm"] = time_start(*asked, Path(caches))
        if options.one_by_one:
            found["one by one"] = time_start(*asked, Path(others), one_by_one=True)
    sys.stdout.write(json.dumps(found, indent=1) + "\n")
    device = resolve_device("cuda")
    write_json(
        options.out,
        {"environment": describe(device, options.commit), "preset": options.name, "seconds": found},
    )


if __name__ == "__main__":
    main()
