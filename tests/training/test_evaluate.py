"""Scores of whole splits: of labels, of many processes, and had again from a run's weights."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmamba.data.catalog import LossName
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.compile import is_captured
from graphmamba.training.evaluate import (
    Scorer,
    evaluate,
    labelled_batch,
    labels_per_graph,
)
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.losses import LOSSES, Links
from graphmamba.training.metrics import make_metrics, mean_loss
from graphmamba.training.predict import load
from tests.helpers.runs import tiny_experiment, tiny_store, with_gaps, without_labels

NAMES = ["peptides-func", "peptides-struct", "pascalvoc-sp", "mnist", "pattern", "pcqm-contact"]


@pytest.mark.parametrize("name", NAMES)
def test_a_split_is_scored_as_one_batch_of_it(name: str) -> None:
    experiment = tiny_experiment(f"{name}/graph-mamba")
    store, model = tiny_store(experiment), experiment.build()
    ids, task = store.split_ids("test"), experiment.dataset_info.task
    graphs, target = labelled_batch(store, ids, task.level, (0,))
    prediction = model.eval()(graphs).detach()
    (metric,) = make_metrics(task)
    metric.update(prediction, target)
    expected = {"loss": float(LOSSES[task.loss](prediction, target)), **metric.compute()}
    found = evaluate(model.train(), store, "test", batch_size=100)
    assert list(found) == list(expected)
    assert found == pytest.approx(expected, rel=1e-6)
    assert model.training
    assert evaluate(model, store, ids, batch_size=100) == found


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("peptides-func", None),
        ("peptides-struct", None),
        ("mnist", None),
        ("cluster", "cross_entropy"),
        ("pcqm-contact", None),
        ("pcqm-contact", "link_l1"),
    ],
)
def test_the_size_of_batches_does_not_matter_where_labels_are_missing(
    name: str, loss: LossName | None
) -> None:
    experiment = tiny_experiment(f"{name}/graph-mamba")
    task = experiment.dataset_info.task
    store, model = with_gaps(tiny_store(experiment), task.level), experiment.build().eval()
    ids = store.split_ids("train")
    graphs, target = labelled_batch(store, ids, task.level, (0,))
    whole = float(LOSSES[loss or task.loss](model(graphs).detach(), target))
    found = [evaluate(model, store, "train", batch_size=size, loss=loss) for size in (1, 5, 14)]
    for scores in found:
        assert scores["loss"] == pytest.approx(whole, rel=1e-5)
        if task.level == "graph":
            assert scores == pytest.approx(found[0], rel=1e-5)


@pytest.mark.parametrize("name", ["peptides-struct", "mnist"])
def test_a_split_without_labels_has_no_loss(name: str) -> None:
    experiment = tiny_experiment(f"{name}/graph-mamba")
    store, model = without_labels(tiny_store(experiment), "test"), experiment.build()
    assert all(math.isnan(score) for score in evaluate(model, store, "test").values())
    assert math.isfinite(evaluate(model, store, "validation")["loss"])


@pytest.mark.parametrize(
    ("split", "given", "message"),
    [
        ("tset", {}, "name must be one of 'train', 'validation', 'test', got 'tset'"),
        ("test", {"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ("test", {"loss": "l1"}, "loss must be 'cross_entropy' or .* for graph classification"),
        (torch.empty(0, dtype=torch.int64), {}, "split must hold graphs, got none"),
    ],
)
def test_what_cannot_be_scored_is_rejected(split: Any, given: dict[str, Any], message: str) -> None:
    experiment = tiny_experiment()
    with pytest.raises(UserError, match=message):
        evaluate(experiment.build(), tiny_store(experiment), split, **given)


def test_the_mean_loss_is_rounded_once() -> None:
    values = [0.1, 0.2, 0.3, 1e9]
    orders = []
    for order in (values, values[::-1]):
        mean = mean_loss()
        for value in order:
            mean.update(torch.tensor(value), 3)
        orders.append(mean.compute())
    assert orders[0] == orders[1]
    merged = mean_loss()
    merged.merge([mean.state()[:2], mean.state()[2:]])
    assert merged.compute() == orders[0]
    assert math.isnan(mean_loss().compute()["loss"])


def test_training_mode_survives_a_failure() -> None:
    experiment = tiny_experiment()
    store, model = tiny_store(experiment), experiment.build().train()

    def fail(done: int, batches: int) -> None:
        assert not model.training
        raise RuntimeError(f"{done} of {batches}")

    with pytest.raises(RuntimeError, match="1 of 2"):
        evaluate(model, store, "test", batch_size=4, on_batch=fail)
    assert model.training


def assert_scores_come_again(name: str, options: RunOptions, folder: Path) -> None:
    experiment = tiny_experiment(name, **{"train.epochs": 2})
    store = tiny_store(experiment, others=9)
    result = fit(experiment, store, options, folder)
    # without a chosen epoch, what was found instead has to be told
    assert result.stop_reason == "finished"
    assert result.best_epoch >= 0, (folder / "metrics.csv").read_text()
    trained = load(folder)
    assert trained.options == replace(options, compile="off")
    place = torch.device("cuda" if options.device == "cuda" else "cpu")
    for _ in range(2):
        # a generator that stands elsewhere must not matter
        torch.rand(3)
        before = torch.get_rng_state()
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
        assert torch.equal(torch.get_rng_state(), before)


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
    options = RunOptions(seed=3, device="cuda", cuda_graph=fast)
    assert_scores_come_again(name, options, tmp_path / "run")


LEVELS = {
    "mnist/graph-mamba": "graph",
    "peptides-struct/graph-mamba": "graph",
    "peptides-func/graph-mamba": "graph",
    "pattern/graph-mamba": "node",
    "pcqm-contact/graph-mamba": "link",
}


@pytest.mark.parametrize("has_gaps", [False, True], ids=["whole", "with gaps"])
@pytest.mark.parametrize("name", LEVELS)
def test_labels_are_counted_one_by_one(name: str, has_gaps: bool) -> None:
    store, level = tiny_store(tiny_experiment(name)), LEVELS[name]
    store = with_gaps(store, level) if has_gaps else store
    expected = []
    for number in range(len(store)):
        _, target = labelled_batch(store, torch.tensor([number]), level, (0,))
        label = target.label if isinstance(target, Links) else target
        is_known = ~label.isnan() if label.is_floating_point() else label >= 0
        expected.append(int(is_known.sum()))
    found = labels_per_graph(store, level)
    assert found.tolist() == expected
    assert (0 in expected) == has_gaps


def test_labels_that_all_nodes_share_and_pairs_without_labels_count_for_each() -> None:
    columns = tiny_store(tiny_experiment("pattern/graph-mamba")).columns()
    sizes = columns.node_ptr.diff()
    y = torch.arange(len(sizes)) % 3 - 1
    columns.nodes["y"] = y.repeat_interleave(sizes)
    store = GraphStore(columns)
    assert store.tables["nodes"].columns["y"].is_constant
    assert torch.equal(labels_per_graph(store, "node"), sizes * (y >= 0))
    columns = tiny_store(tiny_experiment("pcqm-contact/graph-mamba")).columns()
    pairs = columns.pairs["edge_label_index"]
    del pairs.columns["edge_label"]
    # right ones count where wrong ones are drawn
    assert torch.equal(labels_per_graph(GraphStore(columns), "link"), pairs.ptr.diff())


def test_graphs_without_any_label_column_are_rejected() -> None:
    columns = tiny_store(tiny_experiment()).columns()
    del columns.graphs["y"]
    with pytest.raises(UserError, match="graphs must have labels 'y' for each graph, got none"):
        labels_per_graph(GraphStore(columns), "graph")
