"""The scores that a run reports can be had again from its weights, to the last bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmamba.training.compile import is_captured
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.scorer import Scorer
from graphmamba.training.trained import load
from tests.helpers.runs import tiny_experiment, tiny_store


def assert_scores_come_again(name: str, options: RunOptions, folder: Path) -> None:
    experiment = tiny_experiment(name, **{"recipe.epochs": 2})
    store = tiny_store(experiment, others=9)
    result = fit(experiment, store, options, folder)
    # without a chosen epoch, what was found instead has to be told
    assert result.ending == "finished"
    assert result.best_epoch >= 0, (folder / "metrics.csv").read_text()
    trained = load(folder)
    assert trained.options == replace(options, compile="off")
    place = torch.device("cuda" if options.device == "cuda" else "cpu")
    for _ in range(2):
        # a generator that stands elsewhere must not matter
        torch.rand(3)
        scorer = Scorer(
            trained.model.to(place),
            store.to(place),
            trained.experiment,
            trained.options.precision,
            is_captured(trained.options, place, 1),
            tf32=trained.options.tf32,
        )
        for split in ("validation", "test", "validation"):
            assert scorer.score(split) == result.scores[split], split


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("name", ["peptides-func/graph-mamba", "pascalvoc-sp/graph-mamba"])
def test_scores_come_again_on_a_cpu(name: str, precision: Any, tmp_path: Path) -> None:
    options = RunOptions(seed=3, device="cpu", precision=precision)
    assert_scores_come_again(name, options, tmp_path / "run")


@pytest.mark.gpu
@pytest.mark.parametrize("fast", ["auto", "off"])
@pytest.mark.parametrize(
    "name", ["peptides-func/graph-mamba", "pascalvoc-sp/graph-mamba", "pattern/gps-transformer"]
)
def test_scores_come_again_on_a_gpu(name: str, fast: Any, tmp_path: Path) -> None:
    options = RunOptions(seed=3, device="cuda", fast=fast)
    assert_scores_come_again(name, options, tmp_path / "run")
