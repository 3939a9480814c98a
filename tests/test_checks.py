"""Entries that are made in Python are checked as those of files are."""

from collections.abc import Callable

import pytest

from graphmamba.data.custom.options import DataOptions
from graphmamba.errors import UserError
from graphmamba.nn.config import (
    ModelConfig,
)
from graphmamba.nn.graph_mamba import MambaConfig
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.training.experiment import Experiment, OptimConfig, TrainConfig
from tests.helpers.typecheck import typecheck_off


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainConfig(batch_size="32"), "train.batch_size must be int, got '32'"),
        (lambda: TrainConfig(ema_decay=True), "train.ema_decay must be a number, got True"),
        (
            lambda: ModelConfig(ordering="degree"),
            "model.ordering must be OrderPolicy, got 'degree'",
        ),
        (lambda: ModelConfig(layers=2.0), "model.layers must be int, got 2.0"),
        (lambda: OrderPolicy(bins=None), "bins must be int, got None"),
        (lambda: MambaConfig(rank=1.5), "rank must be int or None, got 1.5"),
        (
            lambda: DataOptions(split_ratios=(0.5, 0.5)),
            r"split_ratios must be tuple\[float, float, float\]",
        ),
        (lambda: DataOptions(undirected="no"), "undirected must be bool, got 'no'"),
        (
            lambda: DataOptions(target=("a", 1)),
            r"target must be str or tuple\[str, ...\], got \('a', 1\)",
        ),
        (lambda: DataOptions(level="edge"), "level must be one of None, 'graph', 'node', 'link'"),
        (
            lambda: Experiment(split_sizes=(4, 2)),
            r"split_sizes must be tuple\[int, int, int\] or None",
        ),
    ],
)
def test_entries_of_another_type_are_rejected(make: Callable[[], object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        make()


def test_whole_numbers_are_numbers() -> None:
    with typecheck_off():
        assert OptimConfig(lr=1, weight_decay=0).lr == 1
