"""Times of whole training steps."""

import pytest
import torch

from graphmamba.bench.step import StepShape, draw_store, measure_plain, take_references
from graphmamba.config import load_experiment
from graphmamba.encode.norm import norms_of
from graphmamba.errors import UserError
from graphmamba.stack.gated_gcn import GatedGCN
from graphmamba.stack.mamba_block import SelectivePath
from tests.helpers.typecheck import typecheck_off

SHAPE = StepShape("cifar10", spread=0.05, longest=8, batches=2)


@pytest.mark.parametrize("is_reference", [False, True])
def test_a_step_is_timed_by_either_way(is_reference: bool) -> None:
    with typecheck_off():
        times = measure_plain(SHAPE, torch.device("cpu"), 2, is_reference=is_reference)
    assert (times.benchmark, times.graphs, times.nodes) == ("cifar10", 2, 16)
    assert times.kind == ("reference" if is_reference else "plain")
    assert times.train_ms > 0
    assert (times.evaluate_ms is None) == is_reference


def test_plain_pytorch_is_for_a_cpu() -> None:
    with torch.device("meta"):
        model = load_experiment(SHAPE.benchmark).build()
    with pytest.raises(UserError, match=r"model must be on a CPU .* got meta"):
        take_references(model)


def test_every_operation_of_the_reference_is_plain() -> None:
    model = draw_store(SHAPE, 2)[0].build()
    take_references(model)
    parts = list(model.modules())
    scans = [part.options.backend for part in parts if isinstance(part, SelectivePath)]
    sums = [part.backend for part in parts if isinstance(part, GatedGCN)]
    norms = [norm.backend for norm in norms_of(model)]
    assert scans
    assert sums
    assert {*scans, *sums, *norms} == {"reference"}
