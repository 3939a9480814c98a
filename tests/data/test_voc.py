"""Regions of photographs."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.voc import read_voc
from graphmamba.errors import UserError
from tests.helpers.raw_files import write_regions

FILES = {"a.npz": 0, "b.npz": 2}


def test_boundaries_go_both_ways_and_loops_once(tmp_path: Path) -> None:
    for name in FILES:
        write_regions(tmp_path / f"{name}.xz")
    columns = read_voc(tmp_path, FILES)
    assert columns.node_ptr.tolist() == [0, 3, 4, 7, 8]
    assert columns.edge_ptr.tolist() == [0, 6, 7, 13, 14]
    assert columns.edge_index[:, :7].tolist() == [[0, 1, 0, 2, 1, 2, 0], [1, 0, 2, 0, 2, 1, 0]]
    sobel, count = columns.edges["edge_attr"][:7].T
    torch.testing.assert_close(sobel, torch.tensor([1, 1, 0.04, 0.04, 0, 0, 0]))
    assert count.tolist() == [5, 5, 6, 6, 7, 7, 0]
    assert columns.split is not None
    assert columns.split.tolist() == [0, 0, 2, 2]


def test_features_have_their_scales(tmp_path: Path) -> None:
    write_regions(tmp_path / "a.npz")
    columns = read_voc(tmp_path, {"a.npz": 0})
    scale = torch.tensor([255.0] * 3 + [510.0] * 3 + [255.0] * 6 + [4.0] * 2)
    raw = torch.cat([torch.arange(48.0).reshape(12, 4).T, torch.arange(8.0).reshape(2, 4).T], dim=1)
    torch.testing.assert_close(columns.nodes["x"], raw / scale)
    assert columns.nodes["y"].tolist() == [0, 20, 3, 1]


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("offset", [1, 2, 2, 0], r"source \+ offset must be a node of its graph, 0 to 2, got 3"),
        ("label", [0, 21, 0, 0], "label must be below 21, got 21"),
        ("sobel", [1], r"sobel must have the shape \(4,\), got \(1,\)"),
        ("node_ptr", [0, 3, 5], "node_ptr must run from 0 to 4"),
    ],
)
def test_wrong_arrays_are_named(tmp_path: Path, name: str, values: list[int], told: str) -> None:
    write_regions(tmp_path / "a.npz", **{name: np.array(values)})
    with pytest.raises(UserError, match=told):
        read_voc(tmp_path, {"a.npz": 0})
