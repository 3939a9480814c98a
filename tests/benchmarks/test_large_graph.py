"""The benchmark of one large graph, on one that is small enough for a test."""

from pathlib import Path

import pytest
import torch

from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.task_summary import understood
from tests.helpers.scripts import load_script, run_script


def test_a_whole_graph_is_trained_on_and_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script, out = load_script("large_graph", monkeypatch), tmp_path / "large.json"
    words = "--device", "cpu", "--nodes", 300, "--epochs", 3, "--size", "tiny"
    found = run_script(script, monkeypatch, out, *words)["whole_graph"]
    assert (found["nodes"], found["edges"], found["epochs"]) == (300, 3000, 3)
    assert found["train_loss"][-1] < found["train_loss"][0]
    assert found["start_seconds"] > 0
    assert found["epoch_seconds"] > 0


def test_the_streamed_set_can_be_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("large_graph", monkeypatch)
    store = script.small_graphs(50, torch.Generator().manual_seed(0))
    assert [store.split_size(split) for split in ("train", "validation", "test")] == [30, 10, 10]
    graph = store[7]
    assert int(graph.y) == int(graph.x[:, : script.CLASSES].mean(dim=0).argmax())
    experiment = script.experiment_on(store, "tiny", 1)
    assert "4 classes" in understood(experiment, store)[0]
    result = fit(experiment, store, RunOptions(device="cpu"), tmp_path / "run", progress=False)
    assert result.epochs == 1
