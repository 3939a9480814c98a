"""MalNet-Tiny: nodes by their names, edge lists, what is wrong with files."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data import parallel
from graphmamba.data.catalog import MALWARE
from graphmamba.data.datasets.malnet import read_edge_list, read_edge_lists, read_malnet
from graphmamba.errors import UserError
from tests.helpers.raw_files import write_malnet

HEADER = "# header\n" * 5


@pytest.mark.parametrize("rows", [1, 1000], ids=["graph by graph", "at once"])
def test_isolated_nodes_are_removed_with_their_loops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(parallel, "ROWS", rows)
    write_malnet(tmp_path)
    columns = read_malnet(tmp_path)
    assert columns.node_ptr.tolist() == [0, 3, 6, 8]
    assert columns.edge_ptr.tolist() == [0, 3, 5, 6]
    # names 0, 2, 7 become 0, 1, 2; node 2 keeps its loop, since it has another edge
    assert columns.edge_index.tolist() == [[0, 2, 1, 1, 2, 0], [2, 1, 1, 0, 1, 1]]
    assert columns.graphs["y"].tolist() == [1, 0, 4]


def write_lists(folder: Path) -> Path:
    """The graphs of `write_malnet` as published; returns the file of the last one."""
    edges = np.array([[0, 7, 2, 9, 1, 3, 0], [7, 2, 2, 9, 0, 1, 1]]).T
    lists = folder / "split_info_tiny" / "type"
    lists.mkdir(parents=True)
    parts = {"train": (1, edges[:4]), "val": (0, edges[4:6]), "test": (4, edges[6:])}
    for part, (kind, some) in parts.items():
        name = f"{MALWARE[kind]}/family/{part}"
        (lists / f"{part}.txt").write_text(f"{name}\n")
        file = folder / "malnet-graphs-tiny" / f"{name}.edgelist"
        file.parent.mkdir(parents=True)
        file.write_text(HEADER + "".join(f"{i} {j}\n" for i, j in some))
    return file


def test_published_edge_lists_give_the_same(tmp_path: Path) -> None:
    write_malnet(tmp_path)
    packed = read_malnet(tmp_path)
    file = write_lists(tmp_path)
    listed = read_malnet(tmp_path)
    assert torch.equal(listed.edge_index, packed.edge_index)
    assert torch.equal(listed.node_ptr, packed.node_ptr)
    assert torch.equal(listed.graphs["y"], packed.graphs["y"])
    assert listed.split.tolist() == [0, 1, 2]
    file.unlink()
    with pytest.raises(UserError, match=r"family must hold test\.edgelist, got no such file"):
        read_edge_lists(tmp_path)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("0 1\n2 3\n", [[0, 2], [1, 3]]),
        ("0\t1\r\n\n 12  3", [[0, 12], [1, 3]]),
        ("", [[], []]),
        (" \n\n", [[], []]),
    ],
    ids=["residual", "other blanks", "no edges", "blanks alone"],
)
def test_an_edge_list_is_read(rows: str, expected: list[list[int]], tmp_path: Path) -> None:
    (tmp_path / "a.edgelist").write_text(HEADER + rows)
    assert read_edge_list(tmp_path / "a.edgelist").tolist() == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (b"0 1\n2\n", r"test\.edgelist must be 5 lines of header, then two node numbers a line"),
        (b"0 1 2\n3 4 5\n", r"test\.edgelist must be"),
        (b"0 1.5\n", r"test\.edgelist must be"),
        (b"0 1\n\xff 2\n", r"test\.edgelist must be"),
        (b"0 99999999999999999999999\n", r"test\.edgelist must be"),
        (b"0 1\n\n4000000000 1\n", "nodes must have numbers 0 to 999999, got 0 to 4000000000"),
        (b"0 -1\n", "nodes must have numbers 0 to 999999, got -1 to"),
    ],
    ids=["one", "three", "fraction", "bytes", "huge", "large", "negative"],
)
def test_a_wrong_edge_list_is_reported(rows: bytes, message: str, tmp_path: Path) -> None:
    file = write_lists(tmp_path)
    file.write_bytes(HEADER.encode() + rows)
    with pytest.raises(UserError, match=message):
        read_edge_lists(tmp_path)


def test_wrong_lists_are_named(tmp_path: Path) -> None:
    write_lists(tmp_path)
    lists = tmp_path / "split_info_tiny" / "type"
    (lists / "val.txt").write_text("worm/family/val")
    with pytest.raises(UserError, match=r"names must begin with one of .* got 'worm'"):
        read_edge_lists(tmp_path)
    (lists / "val.txt").write_text("\n")
    with pytest.raises(UserError, match=r"val\.txt must hold at least one name, got none"):
        read_edge_lists(tmp_path)


def test_arrays_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    write_malnet(tmp_path, edge_ptr=np.array([0, 6, 4, 7]))
    with pytest.raises(UserError, match=r"malnet_tiny\.npz\.xz: edge_ptr must start at 0"):
        read_malnet(tmp_path)
