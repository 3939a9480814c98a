"""Scripts that look at orders, recipes and trained weights."""

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from graphmamba.data.datasets.sbm import generate_cluster
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.checkpoint import save_weights
from graphmamba.training.evaluate import evaluate
from graphmamba.training.experiment import load_experiment
from graphmamba.training.graphs import open_data
from graphmamba.training.predict import load, with_read_columns
from tests.helpers.graphs import path, with_spectrum
from tests.helpers.scripts import load_script, run_script

SMALL = {"model.channels": 24, "model.layers": 1}
SCORES = {"test": {"accuracy_sbm": 0.5}}
SIZES = (12, 6, 4)
ONE = 1.0 + 2.0**-10
"""The smallest TF32 above 1."""


def save_cluster(folder: Path, benchmark: str = "cluster") -> Path:
    """Write weights of an untrained small model."""
    torch.manual_seed(0)
    experiment = load_experiment(benchmark, SMALL)
    save_weights(folder / "best.safetensors", experiment.build(), experiment, scores=SCORES)
    return folder / "best.safetensors"


def draws(monkeypatch: pytest.MonkeyPatch, weights: Path, *words: str | int) -> dict[str, Any]:
    script, out = load_script("draws", monkeypatch), weights.parent / "new" / "draws.json"
    return run_script(script, monkeypatch, out, "--weights", weights, "--graphs", 6, *words)


def test_every_set_is_a_draw_of_its_own_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = save_cluster(tmp_path)
    written = draws(monkeypatch, weights, "--sets", 2, "--first", 4)
    assert [one["seed"] for one in written["sets"]] == [4, 5]
    model = load(weights).model
    store = with_read_columns(GraphStore(generate_cluster((0, 0, 6), seed=5)), model)
    second = written["sets"][1]
    assert second["nodes_a_graph"] == int(store.tables["nodes"].ptr[-1]) / 6
    assert second["accuracy_sbm"] == evaluate(model, store, "test")["accuracy_sbm"]
    assert written["scores_of_the_run"] == SCORES
    low, high = sorted(one["accuracy_sbm"] for one in written["sets"])
    assert (written["least"], written["most"]) == (low, high)
    assert written["mean"] == pytest.approx((low + high) / 2)
    assert written["standard_deviation"] == pytest.approx((high - low) / 2)


def test_every_layer_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script, few = load_script("growth", monkeypatch), ["--batches", 1, "--graphs", 3]
    written = run_script(script, monkeypatch, tmp_path / "growth.json", *few, "--layers", 2)
    assert written["asked"] == {"batches": 1, "graphs": 3, "seed": 0}
    assert [set(line) for line in written["layers"]] == [{"global_model", "rows"}] * 2
    assert all(value > 0 for line in written["layers"] for value in line.values())
    # sixteen graphs moved the statistics, and came before these
    assert written["graph"] in range(16, 19)
    assert written["without_a_number"] == 0


def test_orders_that_stay_the_same_agree_and_low_frequency_ones_keep_neighbours_near(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script, topology = load_script("orders", monkeypatch), with_spectrum(path(200), [200])
    chosen = {name: script.ORDERS[name] for name in ("none", "permutation", "spectral")}
    monkeypatch.setattr(script, "ORDERS", chosen)
    none, permutation, smooth = script.measure(topology, node_orders=6)
    assert (none["places"], none["agreement"]) == (1.0, pytest.approx(1.0))
    assert 50 < permutation["places"] < 80
    assert permutation["agreement"] < 0.2
    assert smooth["places"] < 6
    assert permutation["agreement"] < smooth["agreement"] < 0.95


def test_recipes_are_trained_and_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {**SMALL, "split_sizes": list(SIZES), "train.epochs": 2, "train.batch_size": 4}
    lines = [
        {"label": str(layers), "name": "pattern/default",
         "overrides": small | {"model.layers": layers}} for layers in (1, 2)
    ]  # fmt: skip
    listed, script = tmp_path / "list.jsonl", load_script("pilot", monkeypatch)
    listed.write_text("\n\n".join(map(json.dumps, lines)))
    words = ["--train", 8, "--validation", 4, "--data_dir", tmp_path, "--device", "cpu", listed]
    written = run_script(script, monkeypatch, tmp_path / "new" / "pilot.json", *words)
    assert written["graphs"] == [8, 4]
    one, other = written["rows"]
    assert (one["label"], one["overrides"]) == ("1", lines[0]["overrides"])
    assert one["parameters"] < other["parameters"]
    assert one["train_loss"] != other["train_loss"]
    for row in (one, other):
        assert len(row["train_loss"]) == len(row["validation"]) == 2


@pytest.fixture
def rounding(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("rounding", monkeypatch)


def test_numbers_are_rounded_to_the_nearest(rounding: ModuleType) -> None:
    given = torch.tensor([1.0 + 2.0**-12, 1.0 + 2.0**-11, ONE, 1.0 + 3 * 2.0**-12, 0.0, 3e-20])
    expected = torch.tensor([1.0, ONE, ONE, ONE, 0.0, 3e-20])
    found = rounding.to_tf32(given)
    assert torch.equal(found[:5], expected[:5])
    assert found[5] == pytest.approx(3e-20, rel=2**-11)
    assert torch.equal(rounding.to_tf32(-given), -found)
    x, weight = (torch.full((1, 1), 1.0 + 2.0**-12, requires_grad=True) for _ in range(2))
    with rounding.RoundedProducts():
        y = torch.nn.functional.linear(x, weight, torch.full((1,), 2.0**-12))
        y.backward()
    # the sum of float32 keeps what the factors have lost
    assert y.item() == 1.0 + 2.0**-12
    assert x.grad.item() == weight.grad.item() == 1.0
    assert torch.nn.functional.linear(x, weight).item() > 1.0 + 2.0**-12


@pytest.mark.parametrize("changed", [0.0, 0.25, None])
def test_weights_are_scored_again_and_a_difference_is_reported(
    changed: float | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = load_experiment("pattern/default", {**SMALL, "split_sizes": [2, 2, 3]})
    experiment, store = open_data(experiment, tmp_path / "root")
    torch.manual_seed(0)
    model = experiment.build()
    scores = {split: evaluate(model, store, split) for split in ("test", "validation")}
    scores["test"]["accuracy_sbm"] += changed or 0.0
    weights = tmp_path / "pattern" / "graph-mamba" / "best.safetensors"
    known = {} if changed is None else {"scores": scores}
    save_weights(weights, model, experiment, **known)
    script, out = load_script("scores", monkeypatch), tmp_path / "new" / "scores.json"
    words = [weights, "--data_dir", tmp_path / "root", "--device", "cpu"]
    if changed is None:
        with pytest.raises(UserError, match="weights must report their scores, got"):
            run_script(script, monkeypatch, out, *words)
        return
    if changed:
        with pytest.raises(SystemExit, match="1"):
            run_script(script, monkeypatch, out, *words)
    else:
        run_script(script, monkeypatch, out, *words)
    first, second = json.loads(out.read_text())["rows"]
    assert (first["weights"], first["split"]) == ("pattern/graph-mamba", "test")
    assert (first["is_same"], second["is_same"]) == (not changed, True)
    difference = first["reported"]["accuracy_sbm"] - first["now"]["accuracy_sbm"]
    assert difference == pytest.approx(changed)
