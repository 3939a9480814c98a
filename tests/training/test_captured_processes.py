"""Captured steps of two processes that share a GPU, and talk by gloo."""

import json
from pathlib import Path

import pytest
import torch

from graphmamba.data.sampler import Ids
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.fit import make_optimizer
from graphmamba.training.step import CapturedStep, TrainStep
from tests.helpers.runs import tiny_experiment, tiny_store
from tests.training.test_distributed import NO_BATCH_NORM, run_two

GRAPHS, STEPS = 16, 6
APART = """
import json, sys
from pathlib import Path
import torch
from torch import distributed
from graphmamba.training.distributed import ProcessGroup
from tests.training.test_captured_processes import CASES, losses

distributed.init_process_group("gloo")
rank = distributed.get_rank()
team = ProcessGroup(rank, 2, torch.device("cuda", 0))
for name in CASES:
    for is_captured in (True, False):
        found = losses(name, is_captured, team)
        (Path(sys.argv[1]) / f"{name}-{is_captured}-{rank}").write_text(json.dumps(found))
distributed.destroy_process_group()
"""
CASES = {
    "shared": (NO_BATCH_NORM, lambda ids, team: ids[team.rank :: team.world]),
    "one has none": (NO_BATCH_NORM, lambda ids, team: ids if team.is_first else ids[:0]),
    "batch norm": ({}, lambda ids, team: ids[team.rank :: team.world]),
}


def losses(name: str, is_captured: bool, team: ProcessGroup) -> list[float]:
    """Losses of this process, for some steps on the same graphs."""
    overrides, share = CASES[name]
    experiment = tiny_experiment(**{**overrides, "train.batch_size": GRAPHS})
    store = tiny_store(experiment, train=GRAPHS).to(team.device)
    torch.manual_seed(0)
    model = experiment.build().to(team.device).train()
    optimizer = make_optimizer(model, experiment.optim, team.device, is_captured)
    kind = CapturedStep if is_captured else TrainStep
    step = kind(model, optimizer, store, experiment, team)
    ids: Ids = share(torch.arange(GRAPHS), team)
    return [float(step.step(ids)) for _ in range(STEPS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What two processes wrote."""
    folder = tmp_path_factory.mktemp("two")
    done = run_two(APART, folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


def found_in(folder: Path, name: str, is_captured: bool) -> list[list[float]]:
    return [json.loads((folder / f"{name}-{is_captured}-{rank}").read_text()) for rank in (0, 1)]


@pytest.mark.gpu
def test_two_processes_learn_as_one_with_the_doubled_batch(folder: Path) -> None:
    one = losses("shared", True, ProcessGroup(device=torch.device("cuda", 0)))
    first, second = found_in(folder, "shared", True)
    both = [(a + b) / 2 for a, b in zip(first, second, strict=True)]
    assert both == pytest.approx(one, rel=1e-3)
    assert one[-1] < one[0]


@pytest.mark.gpu
def test_a_process_without_graphs_takes_part(folder: Path) -> None:
    one = losses("one has none", True, ProcessGroup(device=torch.device("cuda", 0)))
    first, second = found_in(folder, "one has none", True)
    assert first == pytest.approx(one, rel=1e-3)
    assert second == [0.0] * STEPS


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_captured_steps_of_two_processes_go_as_plain_ones(folder: Path, name: str) -> None:
    captured, plain = (found_in(folder, name, is_captured) for is_captured in (True, False))
    for ours, theirs in zip(captured, plain, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-2, abs=1e-6)
