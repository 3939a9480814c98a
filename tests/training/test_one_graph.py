"""Training, scores and predictions on one graph whose nodes or pairs are split."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import graphmamba
from graphmamba.cli import main
from graphmamba.data.custom.options import DataOptions
from graphmamba.errors import UserError
from graphmamba.training import distributed
from graphmamba.training import graphs as graphs_module
from graphmamba.training.compile import why_not_captured
from graphmamba.training.evaluate import evaluate, labelled_batch, labels_per_graph
from graphmamba.training.experiment import Experiment, RunOptions, experiment_of, load_experiment
from graphmamba.training.graphs import open_data, take_graphs
from graphmamba.training.loop import Loop
from graphmamba.training.losses import Links
from graphmamba.training.metrics import ranks

SMALL = {"model.channels": 16, "model.layers": 1, "train.epochs": 2}


def ring(nodes: int = 40) -> Data:
    """A ring whose feature says the class, with some nodes alone and an edge written twice."""
    y = torch.arange(nodes) % 3
    place = torch.arange(nodes - 4)
    edges = torch.stack([place, (place + 1) % (nodes - 4)])
    edges = torch.cat([edges, edges[:, :1]], dim=1)
    x = torch.nn.functional.one_hot(y, 3).float()
    split = torch.arange(nodes) % 4
    masks = {name: split == n for n, name in enumerate(("train_mask", "val_mask", "test_mask"))}
    return Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1), y=y, **masks)


def several(label: int) -> Data:
    return Data(x=torch.eye(3), edge_index=torch.tensor([[0, 1], [1, 2]]), y=label % 2)


def test_one_graph_is_learned_by_its_masks_and_predicted_whole(tmp_path: Path) -> None:
    graph = ring()
    long = experiment_of({**SMALL, "train.epochs": 10, "optim.lr": 0.01, "optim.warmup": 1})
    result = graphmamba.fit(long, graph, run_dir=tmp_path / "run")
    assert result.scores["test"]["accuracy"] > 0.7
    model = graphmamba.load(tmp_path / "run")
    found = model.predict(graph)
    assert found.node is not None
    assert found.node.tolist() == list(range(40))
    right = (found.outputs.argmax(dim=1) == graph.y)[graph.test_mask].double().mean()
    assert float(right) == pytest.approx(result.scores["test"]["accuracy"])
    # nodes that come later, and whole graphs
    assert len(model.predict([ring(44), ring(12)])) == 56


def test_labels_of_other_splits_change_neither_loss_nor_scores() -> None:
    made, store = take_graphs(ring(), experiment_of(SMALL))
    other = ring()
    other.y = torch.where(other.train_mask, other.y, (other.y + 1) % 3)
    _, changed = take_graphs(other, experiment_of(SMALL))
    torch.manual_seed(0)
    model = made.build().eval()
    scores = [evaluate(model, each, "train") for each in (store, changed)]
    assert scores[0] == scores[1]
    assert evaluate(model, store, "test") != evaluate(model, changed, "test")
    for split, name in (("train", "train_mask"), ("validation", "val_mask"), ("test", "test_mask")):
        graphs, target = labelled_batch(store, torch.tensor([0]), "node", (0,), split)
        assert torch.equal(target, ring().y[ring()[name]])
        assert labels_per_graph(store, "node", split).tolist() == [10]
        logits = model(graphs)[ring()[name]]
        wanted = float((logits.argmax(dim=1) == target).double().mean())
        assert evaluate(model, store, split)["accuracy"] == pytest.approx(wanted)


def test_no_edge_that_is_asked_for_carries_messages_in_either_direction() -> None:
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(60, (2, 300), generator=generator)
    edges = torch.cat([edges, edges[:, :200].flip(0), edges[:, :20]], dim=1)
    graph = Data(
        x=torch.rand(60, 2, generator=generator),
        edge_index=edges,
        edge_attr=torch.arange(520.0)[:, None],
    )
    made, store = take_graphs(graph, experiment_of(SMALL), DataOptions(level="link"))
    all_edges = {tuple(pair) for pair in edges.T.tolist()}
    columns = store.columns()
    seen = [tuple(pair) for pair in columns.edge_index.T.tolist()]
    # rows of edges stay with their edges
    numbers = columns.edges["edge_attr"].flatten().long()
    assert [tuple(pair) for pair in edges[:, numbers].T.tolist()] == seen
    asked: dict[str, set[tuple[int, int]]] = {}
    for split in ("train", "validation", "test"):
        for step in range(3):
            graphs, target = labelled_batch(store, torch.tensor([0]), "link", (step,), split)
            assert {tuple(pair) for pair in graphs.edge_index.T.tolist()} == set(seen)
            pairs = [tuple(pair) for pair in target.pairs.T.tolist()]
            labels = dict(zip(pairs, target.label.tolist(), strict=True))
            right = {pair for pair, label in labels.items() if label == 1}
            assert not {pair for pair, label in labels.items() if label == 0} & set(seen)
            if split != "train":
                wrong = {pair for pair, label in labels.items() if label == 0}
                assert not {each for a, b in wrong for each in ((a, b), (b, a))} & all_edges
            assert asked.setdefault(split, right) == right
        assert not {each for a, b in asked[split] for each in ((a, b), (b, a))} & set(seen)
    # nothing is lost, and nothing is asked for twice
    assert set(seen).union(*asked.values()) == all_edges
    undirected = [{frozenset(pair) for pair in pairs} for pairs in asked.values()]
    assert sum(map(len, undirected)) == len(set.union(*undirected))
    shares = [len(pairs) for pairs in undirected]
    assert shares[1] == pytest.approx(shares[2], abs=1)
    assert made.build()(store.batch(torch.tensor([0]))).shape == (60, 16)


def test_ranks_in_one_graph_are_those_written_out() -> None:
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(12, 3, generator=generator)
    known = torch.tensor([[0, 0, 3, 5], [1, 2, 0, 5]])
    pairs = torch.tensor([[0, 0, 3, 7], [4, 5, 8, 2]])
    links = Links(pairs, torch.ones(4), torch.zeros(12, dtype=torch.int64), 1, known)
    found = ranks(rows, links).T.tolist()
    seen, right = set(map(tuple, known.T.tolist())), set(map(tuple, pairs.T.tolist()))
    for (head, tail), row in zip(pairs.T.tolist(), found, strict=True):
        better = [
            n for n in range(12) if n != tail and rows[head] @ rows[n] > rows[head] @ rows[tail]
        ]
        raw = [n for n in better if (head, n) not in seen]
        filtered = [n for n in raw if (head, n) not in right]
        extended = [n for n in filtered if n != head]
        assert row == [len(raw) + 1, len(filtered) + 1, len(extended) + 1]


def test_links_of_a_grid_are_learned(tmp_path: Path) -> None:
    place = torch.arange(64).view(8, 8)
    pairs = torch.cat(
        [
            torch.stack([place[:, 1:].flatten(), place[:, :-1].flatten()]),
            torch.stack([place[1:].flatten(), place[:-1].flatten()]),
        ],
        dim=1,
    )
    x = torch.stack([place.flatten() // 8, place.flatten() % 8], dim=1) / 8
    graph = Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], dim=1))
    made = experiment_of({**SMALL, "train.epochs": 15, "optim.lr": 0.01})
    options = DataOptions(level="link")
    result = graphmamba.fit(made, graph, run_dir=tmp_path / "run", data=options)
    assert result.scores["test"]["hits@10"] > 2 * 10 / 64
    found = graphmamba.load(tmp_path / "run").predict(graph)
    assert len(found) == 64 * 63 // 2


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "sizes", "shape"),
    [
        ("cora", [140, 500, 1000], [2708, 10556]),
        ("minesweeper", [5000, 2500, 2500], [10000, 78804]),
    ],
)
def test_published_graphs_are_read_and_learned(
    name: str, sizes: list[int], shape: list[int], tmp_path: Path, data_folder: Path
) -> None:
    small = {**SMALL, "train.epochs": 1, "train.steps_per_epoch": 1}
    asked: Experiment = experiment_of({**small, "data.path": str(data_folder / f"own/{name}.npz")})
    made, store = open_data(asked, tmp_path)
    assert [store.split_size(split) for split in ("train", "validation", "test")] == sizes
    assert [int(store.tables[kind].ptr[-1]) for kind in ("nodes", "edges")] == shape
    result = graphmamba.fit(made, store, run_dir=tmp_path / "run")
    assert 0 < result.scores["test"]["accuracy"] < 1


def test_a_graph_that_does_not_fit_is_learned_by_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(graphs_module, "free_memory", lambda _device: 100_000)
    monkeypatch.setattr(graphs_module, "DRAWN", (4, 8))
    made = experiment_of({**SMALL, "train.epochs": 8, "optim.lr": 0.01, "optim.warmup": 1})
    result = graphmamba.fit(made, ring(), run_dir=tmp_path / "run", progress=True)
    told = capsys.readouterr().out
    assert "10 + 10 + 10 nodes" in told
    assert "batches of nodes with 4 and 2 neighbours (train.neighbours)" in told
    assert result.scores["test"]["accuracy"] > 0.8
    model = graphmamba.load(tmp_path / "run")
    assert model.experiment.train.neighbours == 4
    assert model.experiment.train.batch_size == 8
    found = model.predict(ring(44))
    assert found.node is not None
    assert found.node.tolist() == list(range(44))
    assert "scores are those of sampled neighbours too" in told
    assert result.is_sampled
    # with room for one layer at a time scores are those of the whole graph
    monkeypatch.setattr(graphs_module, "free_memory", lambda _device: 300_000)
    deep = experiment_of({**SMALL, "model.layers": 3})
    result = graphmamba.fit(deep, ring(), run_dir=tmp_path / "exact", progress=True)
    assert "scores are exact" in capsys.readouterr().out
    assert not result.is_sampled
    found = graphmamba.load(tmp_path / "exact").predict(ring())
    right = (found.outputs.argmax(dim=1) == ring().y)[ring().test_mask].double().mean()
    assert float(right) == pytest.approx(result.scores["test"]["accuracy"])
    options = DataOptions(level="link")
    result = graphmamba.fit(deep, ring(), run_dir=tmp_path / "links", data=options)
    assert load_experiment(tmp_path / "links" / "config.yaml").train.neighbours == 4
    assert 0 < result.scores["test"]["mrr"] <= 1
    many = experiment_of({**SMALL, "train.neighbours": 3})
    with pytest.raises(UserError, match=r"train\.neighbours must be null or 0 .*, got 3"):
        graphmamba.fit(many, [several(n) for n in range(9)], run_dir=tmp_path / "several")


@pytest.mark.parametrize(
    ("level", "neighbours", "message"),
    [
        ("node", 0, "a step on the whole graph must fit .* set train.neighbours to 10"),
        ("node", 3, "a batch of 8 nodes with their neighbours must fit"),
        ("link", 3, "links are ranked among all nodes, must fit .* lower model.channels"),
        ("graph", None, "a batch of 8 graphs must fit .* lower train.batch_size"),
    ],
)
def test_a_gpu_that_is_too_small_stops_the_run_with_advice(
    level: Any,
    neighbours: int | None,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_: Loop) -> None:
        raise torch.OutOfMemoryError("tried to allocate 1 EiB")

    monkeypatch.setattr(Loop, "run", fail)
    made = experiment_of({**SMALL, "train.batch_size": 8, "train.neighbours": neighbours})
    graphs = [several(number) for number in range(9)] if level == "graph" else ring()
    with pytest.raises(UserError, match=message):
        graphmamba.fit(made, graphs, run_dir=tmp_path / "run", data=DataOptions(level=level))


def test_commands_score_and_predict_one_graph(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "sets"))
    graph, path, run = ring(), str(tmp_path / "one.npz"), str(tmp_path / "run")
    masks = {name: graph[name] for name in ("train_mask", "val_mask", "test_mask")}
    np.savez(path, node_features=graph.x, node_labels=graph.y, edges=graph.edge_index.T, **masks)
    small = [f"--{name}={value}" for name, value in SMALL.items()]
    main(["train", path, "--run_dir", run, *small])
    capsys.readouterr()
    found = {}
    for words in ([], ["--input", path, "--split", "test"], ["--input", path]):
        main(["evaluate", run, "--json", *words])
        found[len(words)] = json.loads(capsys.readouterr().out)
    assert found[0]["accuracy"] == found[0]["reported"]["accuracy"] == found[4]["accuracy"]
    main(["evaluate", run])
    assert "one.npz, nodes scored: 10" in capsys.readouterr().out
    # all labelled nodes are scored where no split is asked for
    out = tmp_path / "all.csv"
    for words in ([], ["--input", path]):
        main(["predict", run, "--output", str(out), *words])
        rows = out.read_text().splitlines()[1:]
        assert len(rows) == 40
        right = sum(int(row.split(",")[2]) == int(graph.y[n]) for n, row in enumerate(rows))
        assert found[2]["accuracy"] == pytest.approx(right / 40)
    main(["data", "info", path])
    assert "training nodes" in capsys.readouterr().out


def test_sets_beyond_the_memory_of_a_gpu_are_sent_batch_by_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, store = take_graphs(ring(), experiment_of(SMALL))
    monkeypatch.setattr(distributed, "free_memory", lambda _device: store.nbytes)
    moved = distributed.move_store(store, torch.device("cuda"))
    assert moved.is_streamed
    assert moved.device == torch.device("cuda")
    why = why_not_captured(RunOptions(), torch.device("cuda"), 1, moved)
    assert why is not None
    if find_spec("triton"):
        assert "no room for the graphs" in why
