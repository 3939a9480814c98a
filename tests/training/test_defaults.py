"""Defaults for custom graphs follow from the data, can be overridden, and do not explode."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import graphmamba
from graphmamba.cli import main
from graphmamba.data.catalog import MOLECULES, Features
from graphmamba.data.custom.options import DataOptions, DataSource
from graphmamba.data.custom.pyg import from_graphs
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.defaults import (
    DataFacts,
    adjusted_homophily,
    default_entries,
    default_experiment,
    facts_of,
)
from graphmamba.training.experiment import Experiment, RunOptions, experiment_of
from graphmamba.training.graphs import take_graphs
from graphmamba.training.run_dir import read_config
from tests.helpers.own_files import write_rings
from tests.helpers.typecheck import typecheck_off
from tests.test_cli import status_of

FACTS = DataFacts(
    "graph", Features(node_columns=3), graphs=500, labels=500, is_regression=False, is_single=False
)
ALONE = replace(FACTS, level="node", graphs=1, labels=100, is_single=True, homophily=0.8)


def noisy_rings(count: int = 40) -> list[Data]:
    """Rings of 4 to 9 nodes; their class is the parity of their size."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for number in range(count):
        nodes = torch.arange(4 + number % 6)
        edge_index = torch.stack([nodes, nodes.roll(1)])
        x = 3 + 5 * torch.randn(len(nodes), 3, generator=generator)
        graphs.append(Data(x=x, edge_index=edge_index, y=torch.tensor(number % 2)))
    return graphs


def one_graph(is_homophilous: bool) -> tuple[DataSource, GraphStore]:
    """Two classes, edges within them or between them; a third of the nodes for each split."""
    y = torch.arange(120) % 2
    step = torch.tensor([2 if is_homophilous else 1, 4 if is_homophilous else 3])
    source = torch.arange(120).repeat_interleave(2)
    edge_index = torch.stack([source, (source + step.repeat(120)) % 120])
    found = from_graphs([Data(x=torch.randn(120, 3), edge_index=edge_index, y=y)], level="node")
    nodes = found.columns.nodes | {"node_split": torch.arange(120) // 40}
    columns = replace(found.columns, nodes=nodes, split=torch.tensor([0]))
    source = DataSource.of(DataOptions())
    return source.described(found.features, found.task, found.class_names), GraphStore(columns)


@pytest.mark.parametrize(
    ("pairs", "labels", "expected"),
    [
        ([[0, 1], [2, 3]], [0, 0, 1, 1], 1.0),
        ([[0, 2], [1, 3]], [0, 0, 1, 1], -1.0),
        ([[0, 1], [2, 3], [0, 2], [1, 3]], [0, 0, 1, 1], 0.0),
        ([[0, 1], [2, 3], [0, 4], [4, 4]], [0, 0, 1, 1, -1], 1.0),
        ([[0, 1]], [0, 0], 0.0),
        ([[0, 1]], [-1, 0], 0.0),
    ],
    ids=["within", "between", "random", "no label", "one class", "no labelled edge"],
)
def test_adjusted_homophily(pairs: list[list[int]], labels: list[int], expected: float) -> None:
    found = adjusted_homophily(torch.tensor(pairs).T, torch.tensor(labels))
    assert found == pytest.approx(expected)


@pytest.mark.parametrize(
    ("facts", "local_model", "layer"),
    [
        (FACTS, "gatedgcn", "gps"),
        (ALONE, "gcn", "residual"),
        (replace(ALONE, homophily=0.1), "sage", "residual"),
        (replace(ALONE, homophily=None), "sage", "residual"),
    ],
    ids=["many", "homophilous", "heterophilous", "unknown"],
)
def test_the_policy_reads_the_facts(facts: DataFacts, local_model: str, layer: str) -> None:
    made = experiment_of(default_entries(facts)[0])
    assert (made.model.local_model, made.model.layer) == (local_model, layer)
    assert made.model.global_model == "mamba"
    assert made.model.input_norm == "layer"
    assert 0 < made.train.early_stopping < made.train.epochs


@pytest.mark.parametrize("is_homophilous", [True, False])
def test_facts_of_one_graph(is_homophilous: bool) -> None:
    source, store = one_graph(is_homophilous)
    assert source.features is not None
    assert source.labels is not None
    facts = facts_of(store, source.features, source.labels)
    assert (facts.is_single, facts.labels, facts.is_bag_of_words) == (True, 40, False)
    # edges whose ends are labelled in training are too few, those of validation help out
    assert facts.homophily == pytest.approx(1.0 if is_homophilous else -1.0, abs=0.01)


def test_words_are_known_by_their_sparse_counts() -> None:
    words = torch.zeros(8, 200)
    words[torch.arange(8), torch.arange(8)] = 1.0
    ring = torch.tensor([[0, 1], [1, 0]])
    for x, expected in ((words, "bag_of_words"), (words - 1, "train"), (words[:, :50], "train")):
        graphs = [Data(x=x, edge_index=ring, y=torch.tensor(n % 2)) for n in range(10)]
        made, _ = take_graphs(graphs)
        assert made.encoder.normalize_inputs == expected


def test_nodes_without_features_are_told_apart_by_their_edges() -> None:
    rings = noisy_rings()
    bare = [Data(num_nodes=each.num_nodes, edge_index=each.edge_index, y=each.y) for each in rings]
    for graphs, expected in ((rings, False), (bare, True)):
        made, store = take_graphs(graphs)
        assert made.encoder.has_degree == (made.encoder.random_walk is not None) == expected
        assert ("without features" in made.chosen) == expected
    made, store = take_graphs(bare, size="tiny")
    model = made.build(0)
    model.measure_inputs(store)
    assert model(store.batch(torch.arange(4))).shape == (4, 2)


def test_what_the_user_says_comes_first_and_sizes_are_kept() -> None:
    made, store = take_graphs(noisy_rings(), size="500k")
    assert made.data is not None
    parameters = sum(each.numel() for each in made.outline().parameters())
    assert 400_000 < parameters <= 500_000
    own = default_experiment(made.data, store, "tiny", {"model.layers": 5, "optim.lr": 0.5})
    assert (own.model.layers, own.optim.lr, own.model.channels) == (5, 0.5, 32)
    assert "32 channels x 5 layers" in own.chosen
    assert own.chosen.endswith("given instead of the defaults: model.layers, optim.lr")
    assert "given instead" not in made.chosen
    assert Experiment.of(own.content(), "own") == own
    with (
        typecheck_off(),
        pytest.raises(UserError, match=r"size must be one of .*'500k'.* got 'huge'"),
    ):
        default_experiment(made.data, store, "huge")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="size must be left out beside an experiment, got 'tiny'"):
        graphmamba.fit(own, noisy_rings(), size="tiny")


def test_streamed_graphs_are_measured_where_there_is_room_for_all() -> None:
    made, store = take_graphs(noisy_rings())
    models = [made.build(0), made.build(0)]
    for model, each in zip(models, (store, store.streamed("meta")), strict=True):
        model.measure_inputs(each)
    buffers, others = (dict(model.named_buffers()) for model in models)
    assert all(torch.equal(each, others[name]) for name, each in buffers.items())
    assert any(name.endswith("standardize.mean") and each.any() for name, each in others.items())


def test_features_of_edges_that_one_graph_does_not_use_are_named() -> None:
    edges, x = torch.randint(40, (2, 90)), torch.randn(40, 2)
    graph = Data(x=x, edge_index=edges, edge_weight=torch.rand(90), y=(x[:, 0] > 0).long())
    made, _ = take_graphs(graph)
    assert "inputs standardised, those of edges unused;" in made.chosen


def test_inputs_a_thousand_times_as_large_do_not_explode(tmp_path: Path) -> None:
    made, store = take_graphs(noisy_rings(), size="tiny")
    made = replace(made, train=replace(made.train, epochs=2))
    run = graphmamba.fit(made, store, RunOptions(device="cpu"), tmp_path / "run")
    predictor = graphmamba.load(tmp_path / "run")
    graphs = noisy_rings()
    usual = predictor.predict(graphs).outputs
    for graph in graphs:
        graph.x = 1000 * graph.x
    large = predictor.predict(graphs).outputs
    assert torch.as_tensor(large).isfinite().all()
    spread = [torch.as_tensor(each).double().abs().max() for each in (usual, large)]
    assert spread[1] < 20 * (1 + spread[0])
    assert run.scores["validation"]["loss"] < 5


def test_training_on_files_says_what_was_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, run = write_rings(tmp_path / "rings"), str(tmp_path / "run")
    words = ["--size", "tiny", "--train.epochs", "1", "--run_dir", run]
    main(["train", str(folder), "--data.target", "taste", *words])
    shown = capsys.readouterr().out
    assert "defaults: separate graphs: GatedGCN beside Mamba; 32 channels x 2 layers" in shown
    experiment = read_config(run).experiment
    assert (experiment.train.epochs, experiment.model.channels) == (1, 32)
    assert experiment.encoder.normalize_inputs == "train"
    assert status_of(["train", "pattern", "--size", "tiny"]) == 2
    assert "--size must be given to custom graphs, got it for pattern" in capsys.readouterr().err


def test_molecules_are_predicted_by_descriptors_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("rdkit")
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "sets"))
    path, new, out = tmp_path / "chains.csv", tmp_path / "new.csv", tmp_path / "out.csv"
    path.write_text("smiles,length\n" + "".join(f"{'C' * n}O,{n}.5\n" for n in range(1, 25)))
    new.write_text("smiles\nCCO\nX(\nCCCO\n")
    words = ["train", str(path), "--data.target", "length", "--size", "tiny"]
    described, plain = str(tmp_path / "described"), str(tmp_path / "plain")
    main([*words, "--train.epochs", "2", "--run_dir", described])
    assert "descriptors of each graph" in capsys.readouterr().out
    own = read_config(described).experiment.data
    assert own is not None
    assert own.features is not None
    assert own.descriptors
    assert own.features.graph_columns > 100
    main([*words, "--train.epochs", "1", "--run_dir", plain, "--data.descriptors", "false"])
    bare = read_config(plain).experiment.data
    assert bare is not None
    assert bare.features == MOLECULES
    for run in (described, plain):
        main(["predict", run, "--input", str(new), "--output", str(out)])
        assert len(out.read_text().splitlines()) == 4
        main(["evaluate", run, "--input", str(path)])
        main(["evaluate", run])
    main(["train", "--resume", described])
