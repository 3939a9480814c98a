"""Call graphs from edge lists."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data import spans
from graphmamba.data.malnet import KINDS, read_edge_lists, read_malnet
from graphmamba.errors import UserError
from tests.helpers.raw_files import write_malnet


@pytest.mark.parametrize("rows", [1, 1000], ids=["graph by graph", "at once"])
def test_isolated_nodes_are_removed_with_their_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(spans, "ROWS", rows)
    write_malnet(tmp_path)
    columns = read_malnet(tmp_path)
    assert columns.node_ptr.tolist() == [0, 3, 6, 8]
    assert columns.edge_ptr.tolist() == [0, 3, 5, 6]
    # names 0, 2, 7 become 0, 1, 2; node 2 keeps its loop, since it has another edge
    assert columns.edge_index.tolist() == [[0, 2, 1, 1, 2, 0], [2, 1, 1, 0, 1, 1]]
    assert columns.graphs["y"].tolist() == [1, 0, 4]


def test_as_read_every_named_node_stays(tmp_path: Path) -> None:
    write_malnet(tmp_path)
    columns = read_malnet(tmp_path, keep_isolated=True)
    assert columns.node_ptr.diff().tolist() == [4, 3, 2]
    assert columns.edge_ptr.diff().tolist() == [4, 2, 1]
    assert columns.edge_index[:, 3].tolist() == [3, 3]


def test_published_edge_lists_give_the_same(tmp_path: Path) -> None:
    write_malnet(tmp_path)
    packed = read_malnet(tmp_path)
    edges = np.array([[0, 7, 2, 9, 1, 3, 0], [7, 2, 2, 9, 0, 1, 1]]).T
    lists = tmp_path / "split_info_tiny" / "type"
    lists.mkdir(parents=True)
    for part, kind, some in (
        ("train", 1, edges[:4]),
        ("val", 0, edges[4:6]),
        ("test", 4, edges[6:]),
    ):
        name = f"{KINDS[kind]}/family/{part}"
        (lists / f"{part}.txt").write_text(f"{name}\n")
        file = tmp_path / "malnet-graphs-tiny" / f"{name}.edgelist"
        file.parent.mkdir(parents=True)
        rows = "".join(f"{i} {j}\n" for i, j in some)
        file.write_text("# header\n" * 5 + rows)
    listed = read_malnet(tmp_path)
    assert torch.equal(listed.edge_index, packed.edge_index)
    assert torch.equal(listed.node_ptr, packed.node_ptr)
    assert torch.equal(listed.graphs["y"], packed.graphs["y"])
    assert listed.split is not None
    assert listed.split.tolist() == [0, 1, 2]
    file.write_text("# header\n" * 5 + "0 1\n2\n")
    with pytest.raises(UserError, match=r"test\.edgelist must hold two node numbers a line"):
        read_edge_lists(tmp_path)
    file.unlink()
    with pytest.raises(UserError, match=r"family must hold test\.edgelist, got no such file"):
        read_edge_lists(tmp_path)


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("label", [1, 0, 5], "label must be below 5, got 5"),
        ("edge_ptr", [0, 4, 6, 8], "edge_ptr must run from 0 to 7"),
        ("edge_ptr", [0, 6, 4, 7], "edge_ptr must never fall"),
        ("split", [0, 1], "split must have 3 entries, got 2"),
        ("edge", [[0, 1]], "edge must have two rows"),
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, name: str, values: list[int], told: str) -> None:
    write_malnet(tmp_path, **{name: np.array(values)})
    with pytest.raises(UserError, match=told):
        read_malnet(tmp_path)
