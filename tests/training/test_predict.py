"""Predictions: streamed, in the units of labels, with their std, as Python values and as CSV."""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.loader import DataLoader

from graphmamba.data.custom.options import DataSource
from graphmamba.data.datasets.sources import SOURCES
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.degree_profile import degree_profiles
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment
from graphmamba.training.predict import (
    Predictions,
    Predictor,
    load,
    with_read_columns,
    write_predictions,
)
from tests.helpers.experiments import small_experiment
from tests.helpers.synthetic import synthetic_graphs

NAMES = {
    "mnist": tuple("abcdefghij"),
    "peptides-func": tuple("abcdefghij"),
    "peptides-struct": tuple("abcdefghijk"),
}
KINDS = {
    "mnist": "classes",
    "peptides-func": "multi-label",
    "peptides-struct": "regression",
    "pattern": "classes",
    "pascalvoc-sp": "classes",
    "pcqm-contact": "link",
}


def trained(name: str, **overrides: object) -> Predictor:
    torch.manual_seed(0)
    experiment = small_experiment(name, **overrides)
    return Predictor(experiment, experiment.build().eval(), NAMES.get(name, ()))


def graphs_for(model: Predictor, count: int = 5) -> list[Data]:
    return synthetic_graphs(model.experiment.dataset_info, count, nodes=(3, 9))


@pytest.mark.parametrize("name", KINDS)
def test_every_row_has_its_place_and_finite_values(name: str) -> None:
    model = trained(name)
    graphs = graphs_for(model)
    found = model.predict(graphs)
    assert found.kind == KINDS[name]
    assert found.outputs.isfinite().all()
    assert found.std is not None
    assert (found.std >= 0).all()
    assert found.outputs.shape == (len(found), len(found.names)) == found.std.shape
    level = model.model.task.level
    if level == "graph":
        assert found.graph.tolist() == [*range(5)]
    elif level == "node":
        assert found.node is not None
        assert found.node.tolist() == [i for graph in graphs for i in range(graph.num_nodes)]
    else:
        assert found.pair is not None
        index = torch.cat([graph.edge_label_index for graph in graphs], dim=1)
        assert sorted(found.pair.tolist()) == sorted(index.T.tolist())
    if found.kind == "classes":
        assert torch.allclose(found.outputs.sum(dim=1), torch.ones(len(found)).double())
        assert found.labels[0] == found.names[int(found.outputs[0].argmax())]
    else:
        for which in ("classes", "labels"):
            with pytest.raises(UserError, match=f"kind must be 'classes' .* got '{found.kind}'"):
                getattr(found, which)


@pytest.mark.parametrize("name", ["mnist", "pattern", "pcqm-contact", "peptides-struct"])
def test_streaming_equals_one_batch(name: str) -> None:
    model = trained(name)
    store = GraphStore.from_pyg(graphs_for(model, 7))
    whole, parts = model.predict(store), list(model.stream(store, budget=30))
    assert len(parts) > 2
    joined = Predictions.cat(parts)
    assert torch.equal(joined.graph, whole.graph)
    # products of matrices round differently for other numbers of rows
    torch.testing.assert_close(joined.outputs, whole.outputs, rtol=0, atol=1e-5)
    torch.testing.assert_close(joined.std, whole.std, rtol=0, atol=1e-5)
    # graphs that are chosen keep their node orders
    some = Predictions.cat(list(model.stream(store, torch.tensor([3, 1]))))
    assert some.graph.unique_consecutive().tolist() == [3, 1]
    rows = torch.cat([(whole.graph == graph).nonzero().flatten() for graph in (3, 1)])
    torch.testing.assert_close(some.outputs, whole.outputs[rows], rtol=0, atol=1e-5)


def test_batches_are_predicted_graph_by_graph() -> None:
    model = trained("mnist")
    graphs = graphs_for(model, 8)
    alone = model.predict(graphs)
    model.model.train()
    for batches in (DataLoader(graphs, batch_size=3), Batch.from_data_list(graphs)):
        found = model.predict(batches)
        assert found.graph.tolist() == [*range(8)]
        assert torch.equal(found.outputs, alone.outputs)
    assert model.model.training
    assert torch.equal(model.predict(graphs[0]).outputs, model.predict(graphs[:1]).outputs)


def test_values_are_those_of_the_model_and_std_is_over_its_node_orders() -> None:
    model = trained("mnist")
    store = with_read_columns(GraphStore.from_pyg(graphs_for(model)), model.model)
    with torch.no_grad():
        own = model.model(store.batch(torch.arange(5))).softmax(dim=1).double()
    found = model.predict(store)
    torch.testing.assert_close(found.outputs, own, rtol=0, atol=1e-6)
    assert found.std is not None
    assert float(found.std.max()) > 0
    assert model.predict(store, has_std=False).std is None
    for fixed in (
        trained("mnist/gps-transformer"),
        trained("mnist", **{"model.ordering.noise": "none", "model.ordering.score": "none"}),
    ):
        assert fixed.predict(graphs_for(fixed)).std is None


def test_what_does_not_fit_goes_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained("mnist")
    graphs = graphs_for(model, 7)
    whole, forward = model.predict(graphs), model.model.forward
    most = 2

    def full(batch: Batch, check: bool | None = None) -> torch.Tensor:
        if batch.num_graphs > most:
            raise torch.OutOfMemoryError("no more")
        return forward(batch, check)

    monkeypatch.setattr(model.model, "forward", full)
    parts = list(model.stream(graphs, has_std=False))
    assert max(map(len, parts)) == 2
    joined = Predictions.cat(parts)
    assert torch.equal(joined.graph, whole.graph)
    torch.testing.assert_close(joined.outputs, whole.outputs, rtol=0, atol=1e-5)
    most = 0
    with pytest.raises(UserError, match="graph 0 must fit into the GPU's memory"):
        list(model.stream(graphs, has_std=False))


def test_no_graph_and_no_weights_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="graphs must hold a graph, got none"):
        trained("mnist").predict([])
    with pytest.raises(UserError, match=r"must hold best\.safetensors"):
        load(tmp_path)


def test_graphs_without_features_and_labels() -> None:
    own = small_experiment("mnist")
    task = replace(own.dataset_info.task, classes=3, outputs=3)
    features = replace(own.dataset_info.features, node_columns=1, edges="none", edge_columns=0)
    source = DataSource(path="x", features=features, labels=task, class_names=("r", "g", "b"))
    experiment = Experiment(data=source, model=own.model)
    model = Predictor(experiment, experiment.build(), source.class_names)
    ring = torch.tensor([[0, 1, 2], [1, 2, 0]])
    found = model.predict([Data(edge_index=ring, num_nodes=3), Data(edge_index=ring, num_nodes=4)])
    assert set(found.labels) <= {"r", "g", "b"}


def model_of_numbers(columns: int) -> Predictor:
    own = small_experiment("mnist")
    features = replace(
        own.dataset_info.features, node_columns=columns, edges="none", edge_columns=0
    )
    source = DataSource(path="x", features=features, labels=own.dataset_info.task)
    experiment = Experiment(data=source, model=own.model)
    return Predictor(experiment, experiment.build())


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64, torch.float16])
def test_numbers_of_any_type_are_those_that_training_takes(dtype: torch.dtype) -> None:
    model, ring = model_of_numbers(2), torch.tensor([[0, 1, 2], [1, 2, 0]])
    x = torch.tensor([[0, 1], [1, 1], [1, 0]])
    given, plain = (Data(x=x.to(kind), edge_index=ring) for kind in (dtype, torch.float32))
    assert torch.equal(model.predict([given]).outputs, model.predict([plain]).outputs)
    assert given.x.dtype == dtype


@pytest.mark.parametrize("columns", [2, 5])
def test_features_are_never_made_up(columns: int) -> None:
    model, ring = model_of_numbers(columns), torch.tensor([[0, 1, 2], [1, 2, 0]])
    with pytest.raises(UserError, match=f"x must have {columns} columns, as in training, got no x"):
        model.predict([Data(edge_index=ring, num_nodes=3)])
    odd = torch.zeros(3, columns)
    odd[1, 0] = torch.nan
    graphs = [Data(x=torch.zeros(3, columns), edge_index=ring), Data(x=odd, edge_index=ring)]
    with pytest.raises(UserError, match=r"graphs\[1\]\.x must hold finite numbers"):
        model.predict(graphs)


def test_nodes_have_their_degrees_where_their_source_has_no_features(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, ring = trained("cifar10"), torch.tensor([[0, 1, 2], [1, 2, 0]])
    graph = Data(edge_index=ring, edge_attr=torch.ones(3, 1), num_nodes=3)
    with pytest.raises(UserError, match="x must have 5 columns, as in training, got no x"):
        model.predict([graph])
    monkeypatch.setitem(SOURCES, "cifar10", replace(SOURCES["cifar10"], has_features=False))
    profile = degree_profiles(columns_of([graph]))
    given = Data(x=profile, edge_index=ring, edge_attr=graph.edge_attr)
    assert torch.equal(model.predict([graph]).outputs, model.predict([given]).outputs)


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("mnist", ["graph", "class", *(f"p_{c}" for c in "abcdefghij"), "std"]),
        ("pattern", ["graph", "node", "class", "p_0", "p_1", "std"]),
        ("pcqm-contact", ["graph", "source", "target", "score", "std"]),
        (
            "peptides-func",
            ["graph", *(f"p_{c}" for c in "abcdefghij"), *(f"std_{c}" for c in "abcdefghij")],
        ),
        (
            "peptides-struct",
            ["graph", *"abcdefghijk", *(f"std_{c}" for c in "abcdefghijk")],
        ),
    ],
)
def test_csv_has_named_columns_and_a_line_for_each_row(
    name: str, header: list[str], tmp_path: Path
) -> None:
    model = trained(name)
    graphs = graphs_for(model)
    found = model.predict(graphs)
    file = tmp_path / "new" / "predictions.csv"
    count = write_predictions(file, model.stream(graphs, budget=30), "graph-{}".format)
    lines = [*csv.reader(file.read_text().splitlines())]
    assert lines[0] == header
    assert len(lines) == count + 1 == len(found) + 1
    assert [line[0] for line in lines[1:]] == [f"graph-{g}" for g in found.graph.tolist()]
    prefix = "p_" if found.kind in {"classes", "multi-label"} else ""
    first = header.index(prefix + found.names[0])
    values = [[float(cell) for cell in line[first:][: len(found.names)]] for line in lines[1:]]
    torch.testing.assert_close(torch.tensor(values).double(), found.outputs, rtol=1e-5, atol=1e-5)
    assert [*tmp_path.rglob("*.partial")] == []


def test_a_single_std_needs_no_name_and_what_is_no_number_has_no_class(tmp_path: Path) -> None:
    values = torch.tensor([[0.25, 0.75], [torch.nan, torch.nan]], dtype=torch.float64)
    graph, file = torch.tensor([3, 4]), tmp_path / "predictions.csv"
    found = Predictions("classes", ("no", "yes"), graph, None, None, values, std=values / 4)
    assert (found.classes.tolist(), found.labels) == ([1, -1], ["yes", ""])
    assert write_predictions(file, [found]) == 2
    assert file.read_text().split()[1:] == ["3,yes,0.25,0.75,0.1875", "4,,nan,nan,nan"]
    one = Predictions(
        "regression", ("logp",), graph[:1], None, None, values[:1, :1], values[:1, 1:]
    )
    assert write_predictions(file, [one]) == 1
    assert file.read_text().split() == ["graph,logp,std", "3,0.25,0.75"]


def test_graphs_without_pairs_have_no_rows_and_no_warning(tmp_path: Path) -> None:
    model = trained("pcqm-contact")
    alone = [
        Data(x=graph.x[:1], edge_index=graph.edge_index[:, :0], edge_attr=graph.edge_attr[:0])
        for graph in graphs_for(model, 2)
    ]
    found, whole = model.predict(alone), model.predict(graphs_for(model))
    assert found.std is not None
    assert found.outputs.shape == found.std.shape == (0, 1)
    file = tmp_path / "predictions.csv"
    assert write_predictions(file, [found]) == 0
    assert file.read_text().split() == ["graph,source,target,score,std"]
    assert write_predictions(file, [found, found, whole]) == len(whole)
    assert len(file.read_text().splitlines()) == len(whole) + 1


def test_a_file_that_fails_half_way_leaves_the_old_one(tmp_path: Path) -> None:
    model = trained("mnist")
    file = tmp_path / "predictions.csv"
    file.write_text("old")

    def fail() -> Iterator[Predictions]:
        yield from model.stream(graphs_for(model))
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        write_predictions(file, fail())
    assert file.read_text() == "old"
    assert [*tmp_path.iterdir()] == [file]
