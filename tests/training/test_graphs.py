"""Training on a list of PyG graphs, and predicting with what was learnt."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import graphmamba
from graphmamba.cli import main
from graphmamba.data.custom.options import DataOptions
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, RunOptions
from graphmamba.training.graphs import identity_of, take_graphs
from tests.test_cli import status_of

RING = torch.tensor([[0, 1, 2], [1, 2, 0]])


def rings(count: int = 10) -> list[Data]:
    generator = torch.Generator().manual_seed(0)
    return [
        Data(x=torch.randn(4, 3, generator=generator), edge_index=RING, y=torch.tensor(number % 3))
        for number in range(count)
    ]


def experiment(**overrides: object) -> Experiment:
    small = {"model.channels": 24, "model.layers": 1, "train.epochs": 1}
    return graphmamba.load_experiment("mnist", {**small, **overrides})


def test_graphs_become_a_described_experiment_and_a_store() -> None:
    made, store = take_graphs(rings(), experiment(), DataOptions(split_ratios=(0.6, 0.2, 0.2)))
    assert made.dataset_info.task.classes == 3
    assert made.dataset_info.features.node_columns == 3
    assert made.data is not None
    assert made.data.class_names == ("0", "1", "2")
    assert [len(store.split_ids(part)) for part in ("train", "validation", "test")] == [6, 2, 2]
    assert "laplacian_vectors" in store.tables["nodes"].columns


def test_parts_that_graphs_name_are_not_drawn() -> None:
    graphs = rings(6)
    words = ["test", "train", "test", "validation", "train", "train"]
    for graph, word in zip(graphs, words, strict=True):
        graph.split = word
    for given in (graphs, DataLoader(graphs, batch_size=4)):
        _, store = take_graphs(given, experiment())
        parts = [store.split_ids(part).tolist() for part in ("train", "validation", "test")]
        assert parts == [[1, 4, 5], [3], [0, 2]]


def test_what_was_learnt_predicts_without_the_training_data(tmp_path: Path) -> None:
    made, store = take_graphs(rings(), experiment())
    result = graphmamba.fit(made, store, run_dir=tmp_path / "run")
    trained = graphmamba.load(tmp_path / "run")
    assert trained.experiment == made
    # whoever predicts has no use for parts
    mask = torch.ones(4, dtype=torch.bool)
    fresh = [Data(x=torch.randn(4, 3), edge_index=RING, test_mask=mask) for _ in range(2)]
    found = trained.predict(fresh)
    assert found.outputs.shape == (2, 3)
    assert set(found.labels) <= {"0", "1", "2"}
    assert result.run_dir == tmp_path / "run"


def test_a_loss_must_fit_the_graphs_and_not_the_benchmark_before_them() -> None:
    numbers = rings()
    for graph in numbers:
        graph.y = graph.y.float()
    made, _ = take_graphs(numbers, experiment(**{"train.loss": "l1"}))
    assert made.loss == "l1"
    with pytest.raises(UserError, match=r"train\.loss must be 'cross_entropy' or .*, got 'l1'"):
        take_graphs(rings(), experiment(**{"train.loss": "l1"}))


def test_graphs_of_another_kind_are_rejected(tmp_path: Path) -> None:
    made, store = take_graphs(rings(), experiment())
    graphmamba.fit(made, store, run_dir=tmp_path / "run")
    wide = [Data(x=torch.randn(4, 5), edge_index=RING)]
    with pytest.raises(UserError, match=r"graphs\.x must have shape \[4, 3\], got \[4, 5\]"):
        graphmamba.load(tmp_path / "run").predict(wide)


@pytest.mark.parametrize("change", ["features", "split"])
def test_a_run_goes_on_with_the_graphs_it_began_with(change: str, tmp_path: Path) -> None:
    made, store = take_graphs(rings(), experiment(**{"train.epochs": 2}))
    graphmamba.fit(made, store, RunOptions(max_time=0.0), tmp_path / "run")
    graphs = rings()
    graphs[0].x += change == "features"
    other = take_graphs(graphs, made)[1]
    if change == "split":
        assert other.split is not None
        other = GraphStore.from_tables(other.tables, other.split.roll(1), other.source)
    assert identity_of(made, store) != identity_of(made, other)
    with pytest.raises(UserError, match=r"graphs must be those of the training|must be the same"):
        graphmamba.fit(made, other, run_dir=tmp_path / "run", resume=True)


def test_graphs_from_python_are_looked_for_in_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "root"))
    made, store = take_graphs(rings(), experiment())
    graphmamba.fit(made, store, run_dir="run")
    for words in (["evaluate", "run"], ["predict", "run"], ["train", "--resume", "run"]):
        assert status_of(words) == 2
        told = capsys.readouterr().err
        assert "trained on graphs given from Python" in told
        assert "--input" in told
        assert "resume=True" in told
    graphs = rings()
    np.savez(
        "rings.npz",
        node_ptr=4 * np.arange(11),
        edge_ptr=3 * np.arange(11),
        edge_index=np.tile(RING.numpy(), 10),
        x=torch.cat([graph.x for graph in graphs]).numpy(),
        y=np.arange(10) % 3,
    )
    main(["evaluate", "run", "--input", "rings.npz", "--split", "all"])
    main(["predict", "run", "--input", "rings.npz"])
    assert "10 rows written" in capsys.readouterr().out
    assert graphmamba.fit(made, store, run_dir="run", resume=True).is_done
