"""Train the runs that are missing, side by side on one device, those of most worth first.

    PYTHONPATH=src python -m benchmarks.runs --list                       # order, seconds, state
    PYTHONPATH=src python -m benchmarks.runs --seconds 560 --out FOLDER   # make what fits, pack it
    PYTHONPATH=src python -m benchmarks.runs --seconds 560 --out NEXT --begin-with FOLDER
    PYTHONPATH=src python -m benchmarks.runs LIST.jsonl                   # other runs

The queue: first trials of what may beat the best published numbers, then every cell of the paper's
tables that has no run under `results/`, further seeds, and the ablation. Given again, finished runs
stay, and those that were cut off go on where they were; `--begin-with` takes them from what an
earlier call has packed, on a machine that has none of them. While one run imports, compiles or
computes scores on the CPU, others have the GPU; with NVIDIA's multi-process service, which is
started where it is installed, they need not take turns.

Each line of a LIST is one run:

    {"name": "cluster/graph-mamba", "seed": 1}
    {"name": "peptides-func/graph-mamba", "row": "cluster", "folder": "ablation/cluster"}
    {"name": "my.yaml", "overrides": {"train.epochs": 50}, "options": {"tf32": false}}

`name` is a config of the package or a YAML file; `row` exchanges a piece of it as `study ablation`
does. A run's folder is `--run_dir`/`folder`/seed-N, where `folder` is the name unless it is given.
"""

import argparse
import json
import math
import queue
import shutil
import subprocess
import sys
import tarfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.connection import wait
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
from graphmamba.training.experiment import Experiment, RunOptions, config_names, load_experiment
from graphmamba.training.fit import fit
from graphmamba.training.graphs import open_data
from graphmamba.training.run_dir import RunDir, StopReason, read_config, read_result

Opened = tuple[Experiment, GraphStore]
RESULTS = Path(__file__).parents[1] / "results"
"""What is kept of finished runs, in folders of the same names."""
LEAST = 30.0
"""Seconds that must be left for a run to begin: less are spent before its first epoch."""
PACKING, KEEPING = 15.0, 60.0
"""Seconds kept back for the packing, and from one to the next."""
MOST_BYTES, MOST_FILES = 15 << 20, 8
"""Of a file that is packed, and files."""
SETS = ("peptides-func", "pascalvoc-sp", "malnet-tiny", "cifar10", "mnist", "cluster", "pattern")
MODELS = (
    *("gcn", "gin", "gine", "gatedgcn", "gps-transformer", "gps-performer", "gps-bigbird"),
    *("exphormer", "graph-mamba"),
)
"""Columns and rows of the paper's tables: on each set those that have a config."""
SEEDS = range(5)
"""Of Graph-Mamba, as the paper has them."""
PATIENCE = {"peptides-func": 80, "pascalvoc-sp": 50}
"""Epochs without a better one after which a recipe with a plateau ends, 30 elsewhere: its planned
500 or 1,000 epochs are a limit."""
PLATEAU_EPOCHS = {"peptides-func": 160, "pascalvoc-sp": 390}
"""Epochs that such a run was seen to take, 100 where none was seen."""
EPOCH_SECONDS = {
    "peptides-func": 1.0, "pascalvoc-sp": 2.2, "malnet-tiny": 3.9, "cifar10": 4.2, "mnist": 4.7,
    "cluster": 5.2, "pattern": 2.5,
}  # fmt: skip
"""Of Graph-Mamba on an H200 that three runs shared, with evaluation: what is expected where nothing
is kept."""
SHARES = {"gcn": 0.6, "gin": 0.6, "gine": 0.6, "gps-performer": 2.0, "gps-bigbird": 2.0}
"""What an epoch of a model takes over one of Graph-Mamba, 1.3 of the others; a guess."""


@dataclass(frozen=True)
class Job:
    """One run of the queue or the list."""

    name: str
    seed: int = 0
    row: str | None = None
    folder: str | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    group: str = "list"
    """What it is wanted for."""

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


def missing_runs() -> list[Job]:
    """List all runs that the tables and the trials want, those of most worth first."""
    configs = set(config_names())
    cells = [
        _cell(f"{name}/{model}", 0, "cell")
        for name in SETS
        for model in MODELS
        if f"{name}/{model}" in configs
    ]
    seeds = [_cell(f"{name}/graph-mamba", seed, "seed") for seed in SEEDS[1:] for name in SETS]
    normalized = [
        _cell(name, 0, "normalized")
        for name in sorted(configs)
        if name.startswith("pascalvoc-sp/") and name.endswith("-normalized")
    ]
    # `degree` is Graph-Mamba itself, whose seeds are wanted above
    orders = [row for row in TABLES["order"][1] if row != "degree"]
    voc, raw = "pascalvoc-sp/graph-mamba", "ablation/pascalvoc-sp"
    normal = {"encoder.normalize_inputs": "pascalvoc-sp"}
    ablation = [
        Job(voc, seed, row, f"{raw}/{row}", group="ablation")
        for seed in SEEDS[:3]
        for row in orders
    ]
    ablation += [
        Job(voc, seed, row, f"ablation-normalized/pascalvoc-sp/{row}", normal, group="ablation")
        for seed in SEEDS[:3]
        for row in orders
    ]
    ablation += [_cell(f"{voc}-normalized", seed, "ablation") for seed in SEEDS[1:3]]
    plus = [_cell(name, seed, "plus") for seed in SEEDS[:3] for name in PLUS]
    plus += [_cell("malnet-tiny/graph-mamba-plus", seed, "plus") for seed in SEEDS[3:]]
    listed: dict[Path, Job] = {}
    for job in [
        *(job for job in TRIALS if job.group == "trial 1"),
        *sorted(cells, key=expected_seconds),
        *(job for job in TRIALS if job.group != "trial 1"),
        *seeds, *normalized, *plus, *ablation,
    ]:  # fmt: skip
        listed.setdefault(job.place, job)
    return list(listed.values())


PLUS = (
    *("cluster/graph-mamba-plus", "peptides-func/graph-mamba-spectral"),
    "malnet-tiny/graph-mamba-plus",
)


def _trial(
    group: str, name: str, title: str, overrides: Mapping[str, object], seed: int = 0
) -> Job:
    folder = f"trials/{name.partition('/')[0]}/{title}"
    return Job(name, seed, None, folder, dict(overrides), group=group)


CLUSTER, PEPTIDES = "cluster/graph-mamba", "peptides-func/graph-mamba-spectral"
MALNET = "malnet-tiny/graph-mamba-plus"
SHORT: dict[str, object] = {"train.epochs": 60}
NO_SCAN: dict[str, object] = {"model.global_model": "none"}
CENTERED = SHORT | {"model.centered_sums": True}
TRIALS = (
    _trial("trial 1", CLUSTER, "centered-60", CENTERED),
    _trial("trial 1", CLUSTER, "paper-60", SHORT),
    Job(PEPTIDES, group="trial 1"),
    _trial("trial 1", f"{CLUSTER}-plus", "plus-60", SHORT),
    Job(MALNET, group="trial 1"),
    _trial("trial 2", CLUSTER, "centered-60", CENTERED, seed=1),
    _trial("trial 2", CLUSTER, "paper-60", SHORT, seed=1),
    _trial("trial 2", PEPTIDES, "no-filter", {"model.spectral": None}),
    _trial("trial 2", PEPTIDES, "mean-pool", {"head.pooling": "mean"}),
    _trial("trial 2", PEPTIDES, "no-scan", NO_SCAN | {"model.residual.has_zero_gate": False}),
    _trial("trial 2", CLUSTER, "centered-sum-60", {**CENTERED, "model.local_model": "gcne"}),
    _trial("trial 2", CLUSTER, "centered-no-scan-60", CENTERED | NO_SCAN),
    _trial("trial 3", CLUSTER, "centered-virtual-60", {**CENTERED, "model.virtual_node": True}),
    _trial("trial 3", CLUSTER, "centered-jumping-60", CENTERED | {"model.jumping_knowledge": True}),
    _trial("trial 3", CLUSTER, "centered-decay-60", {**CENTERED, "optim.weight_decay": 0.1}),
    _trial("trial 3", MALNET, "one-way", {"encoder.reverse_edges": False}),
    _trial("trial 3", MALNET, "max-pool", {"head.pooling": "max"}),
)
"""In this order, since later ones ask what made an earlier one better: each is a line of `notes/`,
whatever comes of it. Chosen by validation alone."""


def _cell(name: str, seed: int, group: str) -> Job:
    dataset, options = name.partition("/")[0], {}
    if load_experiment(name).optim.schedule == "plateau":
        options["early_stopping"] = PATIENCE.get(dataset, 30)
    return Job(name, seed, options=options, group=group)


def expected_seconds(job: Job) -> float:
    """Seconds that a run is expected to take beside two others: by those kept, or by a guess."""
    experiment = job.experiment()
    epochs = experiment.train.epochs
    if job.options.get("early_stopping"):
        epochs = min(epochs, PLATEAU_EPOCHS.get(experiment.dataset, 100))
    kept = [read_result(path) for path in RESULTS.glob(f"{job.name}/seed-*/results.json")]
    if kept:
        return epochs * sum(each.seconds / each.epochs for each in kept) / len(kept)
    model = job.name.partition("/")[2].removesuffix("-normalized")
    share = 1.0 if model.startswith("graph-mamba") else SHARES.get(model, 1.3)
    return epochs * EPOCH_SECONDS.get(experiment.dataset, 1.0) * share


def state_of(job: Job, run_dir: Path) -> str:
    """Say how far a run has come, in the folder of runs or in what is kept."""
    for folder, word in ((RESULTS, "kept"), (run_dir, "done")):
        run = RunDir(folder / job.place)
        if run.results.exists() and read_config(run.path).experiment == job.experiment():
            found = read_result(run.results)
            return word if found.is_done else f"{found.epochs} epochs"
    return "begun" if RunDir(run_dir / job.place).state.exists() else ""


def show(jobs: Sequence[Job], run_dir: Path) -> None:
    """Print the queue."""
    left: dict[str, float] = {}
    for number, job in enumerate(jobs, start=1):
        state, seconds = state_of(job, run_dir), expected_seconds(job)
        if state not in ("kept", "done"):
            left[job.group] = left.get(job.group, 0.0) + seconds / 60
        sys.stdout.write(
            f"{number:4d}  {job.group:10s}  {job.place!s:56s}  {job.experiment().train.epochs:5d} "
            f"epochs  {seconds:6.0f} s  {state}\n"
        )
    groups = ", ".join(f"{group} {minutes:.0f}" for group, minutes in left.items())
    sys.stdout.write(f"{sum(left.values()):.0f} minutes of runs are left: {groups}\n")


def pack(jobs: Sequence[Job], run_dir: Path, out: Path, began: float, first: int) -> None:
    """Lay what runs have written since then into a few archives, numbered from `first` on.

    Results come first, then weights of finished runs, then states of those that can go on; what
    has no more room is named.
    """
    small, weights, states = [], [], []
    for job in jobs:
        run = RunDir(run_dir / job.place)
        small += [run.config, run.metrics, run.results]
        weights += [run.best] if run.done() else []
        states += [] if run.done() else [run.state, run.best]
    volumes, filled = list[list[Path]](), MOST_BYTES
    for path in [*small, *weights, *states]:
        if path.exists() and path.stat().st_mtime >= began:
            size = path.stat().st_size
            if filled + size > MOST_BYTES:
                volumes.append([])
                filled = 0
            volumes[-1].append(path)
            filled += size
    out.mkdir(parents=True, exist_ok=True)
    for number, volume in enumerate(volumes[:MOST_FILES], start=first):
        partial = out / f"runs-{number:03d}.partial"
        with tarfile.open(partial, "w") as archive:
            for path in volume:
                # a state that is just being replaced is there again the next time
                with suppress(FileNotFoundError):
                    archive.add(path, path.relative_to(run_dir))
        partial.replace(partial.with_suffix(".tar"))
    for volume in volumes[MOST_FILES:]:
        _say(f"no room for {', '.join(str(path.relative_to(run_dir)) for path in volume)}")


def archives_in(folder: Path) -> list[Path]:
    """Find what was packed into a folder, the earliest first."""
    return sorted(folder.glob("runs-*.tar"))


def unpack(folder: Path, run_dir: Path) -> None:
    """Take runs from the archives of an earlier call."""
    found = archives_in(folder)
    if not found:
        raise UserError(f"begin-with must hold runs-000.tar and so on, got '{folder}'")
    for path in found:
        with tarfile.open(path) as archive:
            archive.extractall(run_dir, filter="data")


def read_jobs(path: Path) -> Iterator[Job]:
    """Read the list; a line that is no run is rejected by its number before anything is trained."""
    places = set()
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{path}, line {number}"
        try:
            job = parse(Job, json.loads(line), where)
            job.experiment()
            job.run_options("auto", math.inf)
        except (ValueError, TypeError) as error:
            raise UserError(f"{where}: {error}") from error
        if job.place in places:
            raise UserError(f"{where}: folder must be another for each run, got '{job.place}'")
        places.add(job.place)
        yield job


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
    result = fit(
        experiment, store, options, place.path, resume=place.config.exists(), progress=False
    )
    found = {split: scores.get(result.metric) for split, scores in result.scores.items()}
    scores = ", ".join(
        f"{split} {score:.4f}" for split, score in found.items() if score is not None
    )
    made = f"{result.stop_reason} after {result.epochs} epochs"
    _say(f"{job.place}: {made}, {scores}, {time.time() - began:.0f} s")
    return result.stop_reason


def _wait(workers: Sequence[BaseProcess], keep: Callable[[], None]) -> None:
    """Wait for all processes, and keep what there is now and then: a lent machine may go away.

    Ctrl-C reaches them as well, and they save their runs before they end.
    """
    while any(worker.is_alive() for worker in workers):
        with suppress(KeyboardInterrupt):
            wait([worker.sentinel for worker in workers if worker.is_alive()], timeout=KEEPING)
            keep()
    keep()


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def main() -> None:
    """Train what is missing; the exit status is 1 where a run failed."""
    began = time.time()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("jobs", type=Path, nargs="?", help="JSON, one run a line, for the queue")
    parser.add_argument("--list", action="store_true", help="print the runs, train nothing")
    parser.add_argument("--sets", help="data sets to take from the queue, with commas")
    parser.add_argument("--groups", help="groups to take from the queue, with commas")
    parser.add_argument("--run_dir", type=Path, default=Path("runs"))
    parser.add_argument("--data_dir", type=Path, help="where data sets are kept")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--workers", type=int, default=4, help="runs at a time")
    parser.add_argument("--seconds", type=float, default=math.inf, help="in all")
    parser.add_argument("--out", type=Path, help="gets archives of what was made")
    parser.add_argument(
        "--begin-with", type=Path, nargs="+", default=[], help="archives of earlier calls, in turn"
    )
    options = parser.parse_args()

    try:
        check_least("workers", options.workers, 1)
        listed = list(read_jobs(options.jobs)) if options.jobs else missing_runs()
        listed = _chosen(listed, options.sets, lambda job: job.name.partition("/")[0])
        listed = _chosen(listed, options.groups, lambda job: job.group)
        for folder in options.begin_with:
            unpack(folder, options.run_dir)
    except (UserError, OSError) as error:
        parser.error(str(error))
    if options.list:
        show(listed, options.run_dir)
        return
    # what is kept needs no machine
    wanted = [job for job in listed if state_of(job, options.run_dir) != "kept"]
    if options.device != "cpu" and shutil.which("nvidia-cuda-mps-control"):
        subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False)
    # every process has its own CUDA context, which a fork cannot have
    context = get_context("spawn")
    jobs, failed = context.Queue(), context.Queue()
    for job in wanted:
        jobs.put(job)
    end = began + options.seconds - (PACKING if options.out else 0.0)
    given = (jobs, failed, options.run_dir, options.data_dir, options.device, end)
    workers = [context.Process(target=work, args=given) for _ in range(options.workers)]
    first = len(archives_in(options.out)) if options.out else 0

    def keep() -> None:
        if options.out:
            pack(wanted, options.run_dir, options.out, began, first)

    for worker in workers:
        worker.start()
    _wait(workers, keep)
    done = sum(RunDir(options.run_dir / job.place).done() is not None for job in wanted)
    _say(f"{done} of {len(wanted)} runs are finished in {options.run_dir}")
    # jobs that nobody took must not keep this process
    jobs.cancel_join_thread()
    if not failed.empty() or any(worker.exitcode for worker in workers):
        raise SystemExit(1)


def _chosen(jobs: list[Job], words: str | None, of: Callable[[Job], str]) -> list[Job]:
    """Take the jobs of these sets or groups; all where none is named."""
    wanted, known = words.split(",") if words else [], {of(job) for job in jobs}
    if unknown := set(wanted) - known:
        raise UserError(f"no {sorted(unknown)} among the runs; there is: {', '.join(known)}")
    return [job for job in jobs if not wanted or of(job) in wanted]


if __name__ == "__main__":
    main()
