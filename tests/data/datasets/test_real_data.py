"""Benchmarks built from their real files have the published sizes.

One test a set: each builds its set once, whichever worker it runs on.
"""

from pathlib import Path

import pytest
import torch

from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, CATALOG
from graphmamba.data.datasets.files import read_arrays
from graphmamba.data.datasets.malnet import read_malnet
from graphmamba.data.datasets.peptides import read_peptides_func, read_peptides_struct
from graphmamba.data.datasets.sbm import generate_cluster, generate_pattern
from graphmamba.data.datasets.superpixels import read_superpixels, split_of
from graphmamba.data.datasets.voc import read_voc
from graphmamba.data.tables import GraphColumns

realdata = pytest.mark.realdata


def means(columns: GraphColumns) -> tuple[float, float]:
    graphs = len(columns.node_ptr) - 1
    return int(columns.node_ptr[-1]) / graphs, int(columns.edge_ptr[-1]) / graphs


def assert_has_the_columns_of(name: str, columns: GraphColumns) -> None:
    """Widths, labels and parts are those of the catalogue."""
    benchmark, nodes = CATALOG[name], int(columns.node_ptr[-1])
    assert columns.nodes["x"].shape == (nodes, benchmark.features.node_columns)
    if benchmark.features.edge_columns:
        rows = int(columns.edge_ptr[-1])
        assert columns.edges["edge_attr"].shape == (rows, benchmark.features.edge_columns)
    y = (columns.nodes if benchmark.task.level == "node" else columns.graphs)["y"]
    if benchmark.task.classes:
        assert y.unique().tolist() == list(range(benchmark.task.classes))


def assert_split_is_that_of(name: str, split: torch.Tensor | None) -> None:
    benchmark = CATALOG[name]
    parts = [benchmark.train, benchmark.validation, benchmark.test]
    assert split.bincount(minlength=3).tolist() == parts


@realdata
def test_peptides_func(data_folder: Path) -> None:
    pytest.importorskip("rdkit")
    columns = read_peptides_func(data_folder)
    assert int(columns.node_ptr[-1]) == 2_344_859
    assert int(columns.edge_ptr[-1]) == 4_773_974
    assert_split_is_that_of("peptides-func", columns.split)
    assert_has_the_columns_of("peptides-func", columns)
    assert columns.graphs["y"].shape == (15_535, 10)
    assert (columns.nodes["x"] < torch.tensor(ATOM_VOCABULARY)).all()
    assert (columns.edges["edge_attr"] < torch.tensor(BOND_VOCABULARY)).all()


@realdata
def test_peptides_struct(data_folder: Path) -> None:
    pytest.importorskip("rdkit")
    columns = read_peptides_struct(data_folder)
    targets = columns.graphs["y"]
    assert 3_000 < len(targets) < 15_535
    assert_has_the_columns_of("peptides-struct", columns)
    torch.testing.assert_close(targets.mean(dim=0), torch.zeros(11), atol=1e-5, rtol=0)
    torch.testing.assert_close(targets.std(dim=0), torch.ones(11), atol=1e-5, rtol=0)
    assert columns.split.unique().tolist() == [0, 1, 2]


@realdata
def test_malnet(data_folder: Path) -> None:
    columns = read_malnet(data_folder)
    assert means(columns) == pytest.approx((1_410.3, 2_859.9), abs=0.05)
    assert_split_is_that_of("malnet-tiny", columns.split)
    assert columns.graphs["y"].bincount().tolist() == [1_000] * 5


@realdata
def test_voc(data_folder: Path) -> None:
    columns = read_voc(data_folder)
    # the published means, 479.40 and 2,710.48, from regenerated regions
    assert means(columns) == pytest.approx((479.40, 2_710.48), abs=0.03)
    assert_split_is_that_of("pascalvoc-sp", columns.split)
    assert_has_the_columns_of("pascalvoc-sp", columns)


@realdata
@pytest.mark.parametrize(
    ("name", "file", "colours"), [("mnist", "mnist_75sp", 1), ("cifar10", "cifar10_150sp", 3)]
)
def test_superpixels(name: str, file: str, colours: int, data_folder: Path) -> None:
    ptr = read_arrays(data_folder / f"{file}.npz.xz", ["ptr"])["ptr"]
    assert ptr[-1] / (len(ptr) - 1) == pytest.approx(CATALOG[name].mean_nodes, abs=0.05)
    assert_split_is_that_of(name, split_of(len(ptr) - 1))
    columns = read_superpixels(data_folder, f"{file}.npz", colours, images=2_000)
    nodes = int(columns.node_ptr[-1])
    first = torch.repeat_interleave(columns.node_ptr[:-1], columns.edge_ptr.diff())
    assert torch.equal((columns.edge_index[0] + first).bincount(), torch.full((nodes,), 8))
    assert_has_the_columns_of(name, columns)
    weight = columns.edges["edge_attr"]
    assert 0 <= weight.min() <= weight.max() <= 1


@realdata
def test_cluster_as_a_whole() -> None:
    columns = generate_cluster()
    assert means(columns) == pytest.approx((117.2, 4_303.9), rel=0.01)
    assert_split_is_that_of("cluster", columns.split)
    assert_has_the_columns_of("cluster", columns)


@realdata
def test_pattern_as_a_whole() -> None:
    columns = generate_pattern()
    # the released set has its own draw of 100 pattern sizes
    assert means(columns) == pytest.approx((118.9, 6_098.9), rel=0.05)
    assert_split_is_that_of("pattern", columns.split)
    assert_has_the_columns_of("pattern", columns)
