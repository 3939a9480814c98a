"""Train a list of runs side by side on one device, in the order of the list.

    PYTHONPATH=src python benchmarks/runs.py LIST.jsonl --run_dir FOLDER --workers 4 --max-time 1500

While one run imports, compiles or computes scores on the CPU, others have the GPU; with NVIDIA's
multi-process service (`nvidia-cuda-mps-control -d`) they need not take turns. Given again, finished
runs stay, and those that were cut off go on where they were. Each line of LIST is one run:

    {"name": "cluster/graph-mamba", "seed": 1}
    {"name": "peptides-func/graph-mamba", "row": "cluster", "run_dir": "ablation/cluster"}
    {"name": "my.yaml", "overrides": {"train.epochs": 50}, "options": {"tf32": false}}

`name` is a config of the package or a YAML file; `row` exchanges a piece of it as `study ablation`
does. A run's folder is FOLDER/`folder`/seed-N, where `folder` is the name unless it is given.
"""

import argparse
import json
import math
import queue
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from graphmamba.checks import check_least
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.nn.model import columns_read
from graphmamba.parse import parse
from graphmamba.studies.ablation import TABLES, row_experiment
from graphmamba.studies.results import finished_run
from graphmamba.training.experiment import Experiment, RunOptions, load_experiment
from graphmamba.training.fit import fit
from graphmamba.training.graphs import open_data
from graphmamba.training.results import StopReason
from graphmamba.training.run_dir import RunDir

Opened = tuple[Experiment, GraphStore]
LEAST = 30.0
"""Seconds that must be left for a run to begin: less are spent before its first epoch."""


@dataclass(frozen=True)
class Job:
    """One line of the list."""

    name: str
    seed: int = 0
    row: str | None = None
    folder: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> Path:
        """The run's folder under that of all runs."""
        return Path(self.folder or self.name.removesuffix(".yaml")) / f"seed-{self.seed}"

    def experiment(self) -> Experiment:
        """What is trained."""
        if self.row is None:
            return load_experiment(self.name, self.overrides)
        benchmark, _, model = self.name.partition("/")
        for name, (table_model, rows) in TABLES.items():
            if model == table_model and self.row in rows:
                return row_experiment(benchmark, name, self.row, self.overrides)
        raise UserError(f"row must be one of the ablation of {self.name}, got {self.row!r}")

    def run_options(self, device: str, seconds: float) -> RunOptions:
        """How it is run, for so many seconds at most."""
        given = {"seed": self.seed, "device": device, "max_time": seconds, **self.options}
        return RunOptions.of(given, "options")


def read_jobs(path: Path) -> Iterator[Job]:
    """Read the list; a line that is no run is rejected by its number before anything is trained."""
    places = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{path}, line {number}"
        job = _read(line, where)
        if job.place in places:
            raise UserError(
                f"{where}: folder must be another for each run, got '{job.place}' again"
            )
        places.add(job.place)
        yield job


def _read(line: str, where: str) -> Job:
    try:
        content = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from error
    if not isinstance(content, dict) or "name" not in content:
        raise UserError(f"{where}: name must be given, got {line.strip()}")
    job = parse(Job, content, where)
    try:
        job.experiment()
        job.run_options("auto", math.inf)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return job


def work(
    jobs: "queue.Queue[Job]", failed: "queue.Queue[str]", folder: Path, data_dir: Path | None,
    device: str, end: float,
) -> None:  # fmt: skip
    """Make runs until none is left or the time is over; one that fails stops no other."""
    opened: dict[str, Opened] = {}
    while time.time() + LEAST < end:
        try:
            job = jobs.get(timeout=1.0)
        except queue.Empty:
            return
        try:
            stop_reason = train(job, folder, data_dir, device, end, opened)
        except Exception as error:
            failed.put(str(job.place))
            what = str(error) if isinstance(error, UserError) else traceback.format_exc()
            _say(f"{job.place}: failed: {what}")
        else:
            if stop_reason in ("signal", "interrupt"):
                return


def train(
    job: Job, folder: Path, data_dir: Path | None, device: str, end: float,
    opened: dict[str, Opened],
) -> StopReason:  # fmt: skip
    """Make one run, or go on with it, and say how it ended; `opened` keeps graphs for others."""
    place, began = RunDir(folder / job.place), time.time()
    experiment = job.experiment()
    asked = columns_read(experiment.model, experiment.encoder)
    key = repr((experiment.dataset, experiment.split_sizes, experiment.data, asked))
    if key not in opened:
        # one set at a time: the largest take gigabytes
        opened.clear()
        opened[key] = open_data(experiment, data_dir)
    described, store = opened[key]
    # custom graphs have told what they are
    experiment = replace(experiment, data=described.data)
    done = finished_run(place, experiment)
    if done:
        _say(f"{job.place}: finished before")
        return done.stop_reason
    options = job.run_options(device, end - time.time())
    result = fit(experiment, store, options, place.path, resume=place.config.exists())
    found = {split: scores.get(result.metric) for split, scores in result.scores.items()}
    scores = ", ".join(
        f"{split} {score:.4f}" for split, score in found.items() if score is not None
    )
    made = f"{result.stop_reason} after {result.epochs} epochs"
    _say(f"{job.place}: {made}, {scores}, {time.time() - began:.0f} s")
    return result.stop_reason


def _wait(worker: BaseProcess) -> None:
    """Wait for a process; Ctrl-C reaches it as well, and it saves its run before it ends."""
    while worker.is_alive():
        with suppress(KeyboardInterrupt):
            worker.join()


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def main() -> None:
    """Train what is missing; the exit status is 1 where a run failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("list", type=Path, help="JSON, one run a line")
    parser.add_argument("--run_dir", type=Path, default=Path("runs"))
    parser.add_argument("--data_dir", type=Path, help="where data sets are kept")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=3, help="runs at a time")
    parser.add_argument("--max-time", type=float, default=math.inf, help="seconds in all")
    options = parser.parse_args()

    try:
        check_least("workers", options.workers, 1)
        listed = list(read_jobs(options.list))
    except (UserError, OSError) as error:
        parser.error(str(error))
    # every process has its own CUDA context, which a fork cannot have
    context = get_context("spawn")
    jobs, failed = context.Queue(), context.Queue()
    for job in listed:
        jobs.put(job)
    end = time.time() + options.max_time
    given = (jobs, failed, options.run_dir, options.data_dir, options.device, end)
    workers = [context.Process(target=work, args=given) for _ in range(options.workers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        _wait(worker)
    done = sum(RunDir(options.run_dir / job.place).done() is not None for job in listed)
    _say(f"{done} of {len(listed)} runs are finished in {options.run_dir}")
    # jobs that nobody took must not keep this process
    jobs.cancel_join_thread()
    if not failed.empty() or any(worker.exitcode for worker in workers):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
