"""Training, scores and predictions on one graph whose nodes or pairs are split."""

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import graphmamba
from graphmamba.data.custom.options import DataOptions
from graphmamba.training.evaluate import evaluate, labelled_batch, labels_per_graph
from graphmamba.training.experiment import Experiment, RunOptions, experiment_of
from graphmamba.training.graphs import open_data, take_graphs

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


def test_one_graph_is_learned_by_its_masks_and_predicted_whole(tmp_path: Path) -> None:
    graph = ring()
    long = experiment_of({**SMALL, "train.epochs": 30, "optim.lr": 0.01})
    result = graphmamba.fit(long, graph, run_dir=tmp_path / "run")
    assert result.scores["test"]["accuracy"] > 0.9
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


def test_an_epoch_has_several_steps_and_the_screen_counts_nodes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = ring()
    del graph.train_mask, graph.val_mask, graph.test_mask
    made = experiment_of({**SMALL, "train.steps_per_epoch": 3})
    options = DataOptions(split_ratios=(0.5, 0.25, 0.25))
    graphmamba.fit(made, graph, RunOptions(), tmp_path / "run", data=options, progress=True)
    assert "20 + 10 + 10 nodes" in capsys.readouterr().out
    state = torch.load(tmp_path / "run" / "last.pt", weights_only=False)
    assert "sampler" in str(state.keys())


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "sizes", "shape"),
    [("cora", [140, 500, 1000], [2708, 10556]), ("minesweeper", [5000, 2500, 2500], [10000, 78804])],
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
