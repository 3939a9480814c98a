"""Recipes beyond the paper, trained as they are: two steps on a few small graphs."""

from pathlib import Path

import pytest
import torch

from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.fit import fit
from graphmamba.training.predict import load
from tests.helpers.runs import tiny_store

NAMES = ["cluster/graph-mamba-plus", "malnet-tiny/graph-mamba-plus"]
NAMES += ["peptides-func/graph-mamba-spectral"]


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_trains_and_its_weights_predict(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(
        name,
        {
            "train.batch_size": 3,
            "train.epochs": 1,
            "train.recalibrate_batch_norm": 1,
            "model.layers": 2,
        },
    )
    store = tiny_store(experiment, train=6, others=2, nodes=(4, 9))
    result = fit(experiment, store, RunOptions(device="cpu"), tmp_path / "run")
    assert result.stop_reason == "finished"
    scores = result.scores["validation"]
    assert torch.tensor(list(scores.values())).isfinite().all()
    outputs = load(tmp_path / "run").predict(store).outputs
    assert torch.as_tensor(outputs).isfinite().all()
