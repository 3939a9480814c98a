"""Arrays in an `.npz` are read as documented, or rejected; nothing in them is ever run."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from graphmamba.data.catalog import Task
from graphmamba.data.custom import LabelRule, npz, read_npz
from graphmamba.data.custom.labels import number_labels
from graphmamba.errors import UserError

PATHS: dict[str, Any] = {
    "node_ptr": [0, 3, 4],
    "edge_ptr": [0, 2, 3],
    "edge_index": [[0, 1, 0], [1, 2, 0]],
    "y": [1, 0],
}
LINKS: dict[str, Any] = {"pair_ptr": [0, 1, 1], "edge_label_index": [[0], [2]], "edge_label": [1]}


def save(folder: Path, **arrays: Any) -> Path:
    """The arrays above, but for those given; None leaves one out."""
    chosen = {name: value for name, value in (PATHS | arrays).items() if value is not None}
    np.savez(folder / "graphs.npz", **chosen)
    return folder / "graphs.npz"


def test_arrays_become_columns(tmp_path: Path) -> None:
    x = np.arange(8, dtype=">f8").reshape(4, 2)
    own = read_npz(save(tmp_path, x=x, edge_attr=[[1], [2], [3]], split=np.uint8([0, 2])))
    columns = own.columns
    assert columns.nodes["x"].tolist() == x.tolist()
    assert columns.nodes["x"].dtype == columns.edges["edge_attr"].dtype == torch.float32
    assert columns.edge_index.tolist() == PATHS["edge_index"]
    assert columns.graphs["y"].tolist() == [1, 0]
    assert columns.split.tolist() == [0, 2]
    assert own.class_names == ("0", "1")
    assert own.task == Task("graph", 2, "cross_entropy", "accuracy", classes=2)
    assert (own.features.node_columns, own.features.edge_columns) == (2, 1)


@pytest.mark.parametrize(
    ("y", "task"),
    [
        ([0, 2, 1, -1], Task("node", 3, "cross_entropy", "accuracy", classes=3)),
        ([0.5, np.nan], Task("graph", 1, "l1", "mean_absolute_error")),
        ([[0, 1], [1, 1]], Task("graph", 2, "binary_cross_entropy", "average_precision")),
        ([[0.0, np.nan], [1, 1]], Task("graph", 2, "binary_cross_entropy", "average_precision")),
        ([[0, 1, 2], [1, 1, 1]], Task("graph", 3, "l1", "mean_absolute_error")),
        ([True, False], Task("graph", 2, "cross_entropy", "accuracy", classes=2)),
    ],
    ids=["nodes", "target", "answers", "unanswered", "targets", "booleans"],
)
def test_labels_tell_the_task(tmp_path: Path, y: list[Any], task: Task) -> None:
    assert read_npz(save(tmp_path, y=y)).task == task


def test_whole_answers_have_a_word_for_none() -> None:
    found = number_labels(torch.tensor([[0, -1], [1, 1]]), LabelRule(), str)
    assert found.kind == "multi-label"
    assert found.values.isnan().tolist() == [[False, True], [False, False]]
    assert number_labels(torch.tensor([[0, -2], [1, 1]]), LabelRule(), str).kind == "regression"


@pytest.mark.parametrize("y", [[0, 100, 200, 300], [0, 20], [*range(0, 63, 3)], [*range(30)]])
def test_whole_numbers_that_hardly_repeat_are_targets(y: list[int]) -> None:
    whole = torch.tensor(y)
    assert number_labels(whole, LabelRule(), str).kind == "regression"
    assert number_labels(whole, LabelRule("classes"), str).names == tuple(map(str, y))
    assert len(number_labels(whole, LabelRule(classes=y[-1] + 1), str).names) == y[-1] + 1


def test_pairs_tell_a_link_task(tmp_path: Path) -> None:
    own = read_npz(save(tmp_path, y=None, **LINKS))
    assert own.task == Task("link", 0, "link_cross_entropy", "mrr")
    pairs = own.columns.pairs["edge_label_index"]
    assert (pairs.index.tolist(), pairs.columns["edge_label"].tolist()) == ([[0], [2]], [1.0])


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"edge_ptr": None}, "array 'edge_ptr' must be there"),
        ({"masses": [1]}, "got 'masses'"),
        ({"labels": [1, 0]}, "y must be given once, got node_ptr, edge_ptr, edge_index, y, labe"),
        ({"node_ptr": [0, 4]}, "edge_ptr must hold one int64 more than the 1 graphs"),
        ({"node_ptr": [0.0, 3, 4]}, "node_ptr must hold one int64 more than the 2 graphs"),
        ({"node_ptr": [0, 5, 4]}, "must start at 0 and never fall"),
        ({"node_ptr": [0, 4, 4]}, "graph 1: every graph must have a node, got none"),
        ({"edge_index": [[0, 1], [1, 2]]}, "edge_index must hold integers of shape [2, 3]"),
        ({"edge_index": [[0, 1, 1], [1, 2, 0]]}, "must hold nodes 0 to 0 in graph 1, got [1, 0]"),
        ({"x": [1, 2, 3, 4]}, "[4] of int64; a single column has shape [4, 1]"),
        ({"x": [[0], [1], [2], [np.inf]]}, "graph 1, row 0: x column 0 must be a finite number"),
        ({"x": [["a"]] * 4}, "x must hold numbers"),
        ({"split": [0, 3]}, "split must be 0, 1 or 2 for each of 2 graphs, got [2] of int64 with"),
        ({"y": [0, 1, 2]}, "y must have a row for each of 2 graphs or 4 nodes, got 3"),
        ({"y": [-1, -1]}, "y must hold a label somewhere"),
        ({"y": [np.nan, np.nan]}, "'y0' must hold a label somewhere"),
        ({"y": [1, 1]}, "y must hold 2 classes at least, got 1 in all rows"),
        ({"y": [0.5, np.inf]}, "graph 1, row 0: y0 must be a finite number"),
        ({"y": None}, "array 'y' must hold labels of graphs or nodes, or 'edge_label_index'"),
        (LINKS, "array y is there and pair_ptr; level must say which is meant"),
        ({"y": None, "edge_label": [2]}, "array 'pair_ptr' must be there"),
        ({"y": None, **LINKS, "edge_label": [2]}, "graph 0, row 0: y0 must be 0 or 1, got 2"),
        ({"y": None, **LINKS, "edge_label_index": [[0], [3]]}, "must hold nodes 0 to 2 in graph 0"),
    ],
)
def test_what_is_wrong_is_reported(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as rejected:
        read_npz(save(tmp_path, **arrays))
    assert message in str(rejected.value)


class Trap:
    """What a stranger's file may hold: loading it would run code."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path("sprung").touch, ()


def test_sizes_beyond_reason_are_rejected(tmp_path: Path) -> None:
    huge = {"node_ptr": [0, 2**62], "edge_ptr": [0, 0], "edge_index": np.zeros((2, 0), int)}
    with pytest.raises(UserError, match="node_ptr must end at 268435456 at most where there is no"):
        read_npz(save(tmp_path, **huge, y=[1]))
    sizes = {"node_ptr": None, "num_nodes_list": [2**62, 2**62]}
    with pytest.raises(UserError, match="node_ptr must end at 268435456 at most"):
        read_npz(save(tmp_path, **sizes))
    with pytest.raises(UserError, match=r"x must be below 2\*\*63, got 18446744073709551615"):
        read_npz(save(tmp_path, x=np.full((4, 1), 2**64 - 1, np.uint64)))


def test_a_small_file_that_unpacks_to_a_large_one_is_never_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "graphs.npz"
    np.savez_compressed(path, **PATHS, x=np.zeros((4, 500_000)))
    assert read_npz(path).features.node_columns == 500_000
    monkeypatch.setattr(npz, "MOST_EXPANDED", 10_000_000)
    monkeypatch.setattr(npz.np, "load", lambda *_, **__: pytest.fail("the file was read"))
    with pytest.raises(UserError, match=r"200 times its size at most, got 16,\d{3},\d{3} bytes"):
        read_npz(path)


@pytest.mark.parametrize("kind", ["objects", "pickle", "npy", "cut off", "text", "missing"])
def test_foreign_files_are_rejected_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "graphs.npz"
    if kind == "objects":
        save(tmp_path, x=np.array([Trap()], dtype=object))
    elif kind == "pickle":
        path.write_bytes(pickle.dumps(Trap()))
    elif kind == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros(3))
    elif kind == "cut off":
        path.write_bytes(save(tmp_path).read_bytes()[:-40])
    elif kind == "text":
        path.write_text("graph,node\n")
    with pytest.raises(UserError, match=r"graphs\.npz must be"):
        read_npz(path)
    assert not (tmp_path / "sprung").exists()


small_arrays = st.one_of(
    hnp.arrays(
        st.sampled_from([np.int64, np.int8, np.uint64, np.float32, np.float64, np.bool_, ">i4"]),
        hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    ),
    st.lists(st.integers(-2, 5), max_size=5).map(lambda values: np.array(values, dtype=int)),
)


@given(
    arrays=st.dictionaries(st.sampled_from([*PATHS, *LINKS, "x", "edge_attr", "split"]),
                           small_arrays, min_size=1, max_size=3),
    kind=st.sampled_from([None, "classes", "regression", "multi-label"]),
)  # fmt: skip
def test_no_arrays_bring_anything_but_a_user_error(
    tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any], kind: Any
) -> None:
    path = save(tmp_path_factory.mktemp("fuzz"), **arrays)
    try:
        own = read_npz(path, LabelRule(kind))
    except UserError:
        return
    assert torch.isfinite(own.columns.nodes["x"]).all()
