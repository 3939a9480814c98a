"""Two processes train and score as one does."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from graphmamba.training.evaluate import evaluate
from graphmamba.training.fit import fit
from graphmamba.training.predict import load
from graphmamba.training.run_dir import read_rows
from tests.helpers.processes import ROOT
from tests.helpers.runs import TIMES, assert_same_run, tiny_experiment, tiny_store

NO_BATCH_NORM = {
    "model.local_model": "none",
    "model.norm": "layer",
    "model.dropout": 0.0,
    "encoder.has_edges": False,
}
CASES = {
    "graphs": ("mnist/graph-mamba", NO_BATCH_NORM, {}),
    "nodes": ("cluster/graph-mamba", {**NO_BATCH_NORM, "train.loss": "cross_entropy"}, {}),
    "synchronised": ("mnist/graph-mamba", {}, {"sync_batchnorm": True}),
    "averaged": ("mnist/graph-mamba", {"train.ema_decay": 0.9}, {"sync_batchnorm": True}),
    # each part of a batch would draw other node orders
    "in parts": (
        "mnist/graph-mamba",
        {**NO_BATCH_NORM, "model.ordering.noise": "none", "train.batch_size": 2},
        {"accumulate_grad_batches": 2},
    ),
}
"""Experiments whose loss is a mean over rows, and options."""
UNLIKE = {
    "averages": ("mnist/graph-mamba", {"train.ema_decay": 0.9}),
    "statistics": ("pattern/gin", {"train.recalibrate_batch_norm": 2, "model.dropout": 0.5}),
}
"""Experiments in which each process has statistics of its own, and averages of them."""
SCORED = ("peptides-func/graph-mamba", "pattern/graph-mamba", "pcqm-contact/graph-mamba",
          "peptides-struct/graph-mamba")  # fmt: skip

APART = """
import atexit, json, os, sys, time
from pathlib import Path
import torch
from graphmamba.errors import UserError
from graphmamba.training.distributed import start_processes
from graphmamba.training.evaluate import evaluate
from graphmamba.training.fit import fit
from graphmamba.training.run_dir import RunDir
from graphmamba.training.experiment import RunOptions
from tests.helpers.runs import tiny_experiment, tiny_store
from graphmamba.cli import main
from tests.commands.test_train import SMALL
from tests.training.test_distributed import CASES, SCORED, UNLIKE

folder = Path(sys.argv[1])

def write_end():
    threads = [each.read_text().strip() for each in Path("/proc/self/task").glob("*/comm")]
    left = [each for each in threads if "gloo" in each]
    end = dict(have_met=torch.distributed.is_initialized(), threads=left)
    (folder / f"end-{os.environ['RANK']}").write_text(json.dumps(end))

atexit.register(write_end)  # what is registered first comes last
for name, (config, overrides, options) in CASES.items():
    experiment = tiny_experiment(config, **overrides)
    fit(experiment, tiny_store(experiment, train=16), RunOptions(**options), folder / name)
    stopped = RunOptions(**options, max_time=0.0)
    result = fit(experiment, tiny_store(experiment, train=16), stopped, folder / f"{name}-stopped")
    while not result.is_done:
        again = dict(graphs=tiny_store(experiment, train=16), options=RunOptions(**options))
        result = fit(experiment, run_dir=folder / f"{name}-stopped", resume=True, **again)
for unlike, (config, overrides) in UNLIKE.items():
    experiment = tiny_experiment(config, **overrides)
    fit(experiment, tiny_store(experiment, others=9), run_dir=folder / unlike)
os.chdir(folder)
if os.environ["RANK"] == "1":
    time.time = lambda: 0.0  # the clocks of two machines differ
result = fit(experiment, tiny_store(experiment, train=16), RunOptions(max_time=0.0))
(folder / f"folder-{os.environ['RANK']}").write_text(str(result.run_dir))
team = start_processes(RunOptions())
try:
    fit(experiment, tiny_store(experiment), run_dir=folder / name)
except UserError as error:
    (folder / f"error-{team.rank}").write_text(type(error).__name__)
with RunDir(folder / "held").kept(team, resume=False):
    try:
        fit(experiment, tiny_store(experiment), run_dir=folder / "held")
    except UserError as error:
        (folder / f"held-{team.rank}").write_text(type(error).__name__)
scores = {}
for config in SCORED:
    torch.manual_seed(0)
    experiment = tiny_experiment(config)
    model = experiment.build()
    store = tiny_store(experiment, others=9)
    scores[config] = evaluate(model, store, "test", batch_size=2, team=team)
if team.is_first:
    (folder / "scores.json").write_text(json.dumps(scores))
for kind in (UserError, OSError):
    def fail():
        raise kind("no room")
    try:
        team.rank_zero_first(fail)
    except Exception as error:
        (folder / f"{kind.__name__}-{team.rank}").write_text(type(error).__name__)
os.environ["GRAPHMAMBA_DATA_DIR"] = str(folder / "sets")
words = ["--train.epochs", "1", "--device", "cpu", "--run_dir", "printed"]
main(["train", *SMALL, *words])
"""
FAILING = """
import torch
from graphmamba.training.distributed import start_processes
from graphmamba.training.experiment import RunOptions

team = start_processes(RunOptions())
team.sum(torch.ones(2))
if not team.is_first:
    raise RuntimeError("the second is broken")
team.sum(torch.ones(2))
"""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def run_two(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Have two processes run the code, as torchrun starts them; they may write to the folder."""
    (folder / "apart.py").write_text(code)
    run = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*run, "--master-port", str(free_port()), str(folder / "apart.py"), str(folder)]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    settings = {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "GRAPHMAMBA_NO_TYPECHECK": "1"}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **settings}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes wrote."""
    folder = tmp_path_factory.mktemp("two")
    done = run_two(APART, folder)
    assert done.returncode == 0, done.stderr[-4000:]
    (folder / "printed.txt").write_text(done.stdout)
    return folder


@pytest.mark.parametrize("case", CASES)
def test_two_processes_learn_as_one_with_the_doubled_batch(
    folder: Path, tmp_path: Path, case: str
) -> None:
    config, overrides, _ = CASES[case]
    experiment = tiny_experiment(config, **{**overrides, "train.batch_size": 8})
    fit(experiment, tiny_store(experiment, train=16), run_dir=tmp_path / "run")
    ours, theirs = (read_rows(each / "metrics.csv") for each in (tmp_path / "run", folder / case))
    assert len(ours) == len(theirs) == 3
    for one, other in zip(ours, theirs, strict=True):
        for name in one.keys() - TIMES - {"is_best"}:
            assert other[name] == pytest.approx(one[name], rel=2e-4, abs=1e-6), name


@pytest.mark.parametrize("case", CASES)
def test_two_processes_that_were_stopped_go_on(folder: Path, case: str) -> None:
    assert_same_run(folder / case, folder / f"{case}-stopped")


@pytest.mark.parametrize("config", SCORED)
def test_two_processes_score_exactly_as_one(folder: Path, config: str) -> None:
    torch.manual_seed(0)
    experiment = tiny_experiment(config)
    scores = evaluate(experiment.build(), tiny_store(experiment, others=9), "test", batch_size=2)
    assert json.loads((folder / "scores.json").read_text())[config] == scores


@pytest.mark.parametrize("case", UNLIKE)
def test_two_processes_score_as_the_one_that_is_kept(folder: Path, case: str) -> None:
    trained = load(folder / case)
    store, size = tiny_store(trained.experiment, others=9), trained.experiment.train.batch_size
    scores = json.loads((folder / case / "results.json").read_text())["scores"]
    for split in ("validation", "test"):
        again = evaluate(trained.model, store, split, batch_size=size)
        assert again == scores[split]


@pytest.mark.parametrize(
    ("what", "error"),
    [
        ("error", "UserError"),
        ("held", "UserError"),
        ("UserError", "UserError"),
        ("OSError", "OSError"),
    ],
)
def test_an_error_of_the_first_process_stops_the_other_in_silence(
    folder: Path, what: str, error: str
) -> None:
    errors = [(folder / f"{what}-{rank}").read_text() for rank in (0, 1)]
    assert errors == [error, "ElsewhereError"]


def test_of_several_processes_one_prints(folder: Path) -> None:
    printed = (folder / "printed.txt").read_text()
    assert printed.count("predict with") == 1
    assert printed.count("cpu x 2, seed 0, to printed") == 1


def test_all_processes_have_the_same_folder(folder: Path) -> None:
    first, second = (Path((folder / f"folder-{rank}").read_text()) for rank in (0, 1))
    assert first == second
    assert [*(folder / "runs").iterdir()] == [folder / first]


def test_processes_part_before_python_takes_itself_down(folder: Path) -> None:
    for rank in (0, 1):
        end = json.loads((folder / f"end-{rank}").read_text())
        assert end == {"have_met": False, "threads": []}


def test_a_process_that_fails_says_why_and_ends_the_other(tmp_path: Path) -> None:
    done = run_two(FAILING, tmp_path)
    assert done.returncode == 1
    assert "RuntimeError: the second is broken" in done.stderr
    assert "terminate called" not in done.stderr
