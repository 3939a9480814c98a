"""Own graphs by their path: read once, kept, opened again."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba import whole_files
from graphmamba.data.catalog import Features, Task
from graphmamba.data.own import OwnData, OwnOptions, open_own
from graphmamba.data.own import open as own_open
from graphmamba.data.splits import draw_split
from graphmamba.data.transforms import precompute
from graphmamba.data.transforms.precompute import Precompute
from graphmamba.errors import UserError

NODES = "graph,node,charge\n" + "".join(f"g{graph},{node},{node}.5\n" for graph in range(9) for node in range(3))  # fmt: skip # noqa: E501
EDGES = "graph,source,target\n" + "".join(f"g{graph},0,{1 + graph % 2}\n" for graph in range(9))
GRAPHS = "graph,taste\n" + "".join(f"g{graph},{'sour' if graph % 2 else 'sweet'}\n" for graph in range(9))  # fmt: skip # noqa: E501
TASTE = OwnOptions(label=("taste",))


def write_folder(place: Path, graphs: str = GRAPHS) -> Path:
    place.mkdir(exist_ok=True)
    for name, text in (("nodes", NODES), ("edges", EDGES), ("graphs", graphs)):
        (place / f"{name}.csv").write_text(text)
    return place


def write_npz(path: Path) -> Path:
    np.savez(
        path, node_ptr=[0, 2, 3, 5], edge_ptr=[0, 1, 1, 1], edge_index=[[0], [1]], y=[0.5, 1, 2]
    )
    return path


def refuse(*_: object) -> OwnData:
    raise AssertionError("what is kept must be opened")


def never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("read_folder", "read_npz", "read_smiles_csv"):
        monkeypatch.setattr(own_open, name, refuse)


def test_a_folder_is_all_that_training_needs(tmp_path: Path) -> None:
    own = open_own(write_folder(tmp_path / "fruit"), TASTE, tmp_path / "sets")
    assert own.features == Features("numbers", 1)
    assert own.task == Task("graph", 2, "cross_entropy", "accuracy", classes=2)
    assert own.names == ("sour", "sweet")
    assert own.store.source == "read from fruit"
    assert [len(own.store.split_ids(part)) for part in ("train", "validation", "test")] == [7, 1, 1]
    batch = own.store.batch(torch.tensor([1, 0]))
    assert batch.y.tolist() == [0, 1]
    assert batch.edge_index.tolist() == [[0, 3], [2, 4]]


def test_parts_are_drawn_where_they_are_wanted(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "fruit")
    assert open_own(folder, TASTE, tmp_path / "sets", draws_split=False).store.split is None
    assert open_own(folder, TASTE, tmp_path / "sets").store.split is not None
    write_folder(folder, GRAPHS.replace("\n", ",test\n").replace("taste,test", "taste,split"))
    own = open_own(folder, TASTE, tmp_path / "sets", draws_split=False)
    assert len(own.store.split_ids("test")) == 9


def test_what_is_kept_is_opened_without_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {write_folder(tmp_path / "fruit"): TASTE, write_npz(tmp_path / "three.npz"): None}
    first = [open_own(path, options, tmp_path / "sets") for path, options in given.items()]
    never_read(monkeypatch)
    for (path, options), before in zip(given.items(), first, strict=True):
        again = open_own(path, options, tmp_path / "sets")
        assert (again.features, again.task, again.names) == (
            before.features, before.task, before.names,
        )  # fmt: skip
        assert torch.equal(again.store.split_ids("train"), before.store.split_ids("train"))
        assert torch.equal(again.store[2].y, before.store[2].y)


def test_a_single_class_that_was_kept_is_read_anew(tmp_path: Path) -> None:
    """As programs did that saw nothing wrong in it."""
    folder = write_folder(tmp_path / "fruit")
    own = open_own(folder, TASTE, tmp_path / "sets")
    (about,) = [each for each in own.folder.glob("*.json") if "task" in each.read_text()]
    content = json.loads(about.read_text())
    content["task"] |= {"outputs": 1, "classes": 1}
    about.write_text(json.dumps(content))
    assert open_own(folder, TASTE, tmp_path / "sets").task == own.task


def test_other_content_or_options_are_read_anew(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "fruit")
    open_own(folder, TASTE, tmp_path)
    write_folder(folder, GRAPHS.replace("sour", "bitter"))
    assert open_own(folder, TASTE, tmp_path).names == ("bitter", "sweet")
    stated = OwnOptions(label=("taste",), classes=("sweet", "bitter", "salty"), is_undirected=True)
    own = open_own(folder, stated, tmp_path)
    assert own.task.outputs == 3
    assert own.store[0].edge_index.shape == (2, 2)


def test_molecules_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rdkit")
    path = tmp_path / "molecules.csv"
    path.write_text("formula,heavy,split\nCCO,3.5,train\nO,1,test\n")
    options = OwnOptions(label="heavy", smiles="formula")
    own = open_own(path, options, tmp_path)
    assert own.features.nodes == "atoms"
    assert own.names == ("heavy",)
    assert own.store.split_ids("test").tolist() == [1]
    never_read(monkeypatch)
    assert open_own(path, options, tmp_path).store[0].num_nodes == 3


def test_another_split_shares_what_was_computed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_folder(tmp_path / "fruit")
    asked = Precompute(frequencies=2)
    first = open_own(folder, TASTE, tmp_path).with_columns(asked)
    assert first.store[0].laplacian_vectors.shape == (3, 2)
    never_read(monkeypatch)
    monkeypatch.setattr(precompute, "precomputed", refuse)
    kept = sorted(path.name for path in (tmp_path / "own").iterdir())
    options = OwnOptions(label=("taste",), split_seed=5, fractions=(0.2, 0.2, 0.6))
    other = open_own(folder, options, tmp_path).with_columns(asked)
    assert len(other.store.split_ids("test")) > len(first.store.split_ids("test"))
    assert sorted(path.name for path in (tmp_path / "own").iterdir()) == kept


def test_a_mistake_in_a_file_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "fruit", GRAPHS.replace("g3,sour", "g3,sour,3"))
    with pytest.raises(UserError, match=r"graphs.csv, line 5: a row must have 2 cells, got 3"):
        open_own(folder, TASTE, tmp_path / "sets")
    assert not [
        path for path in (tmp_path / "sets").rglob("*") if path.suffix != ".lock" and path.is_file()
    ]


def test_a_full_disk_leaves_nothing_that_would_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    path = write_npz(tmp_path / "three.npz")
    monkeypatch.setattr(whole_files, "flush", full)
    with pytest.raises(UserError, match=r"json' cannot be written .*No space left on device"):
        open_own(path, root=tmp_path)
    assert [each.suffix for each in (tmp_path / "own").iterdir()] == [".lock"]
    monkeypatch.undo()
    assert open_own(path, root=tmp_path).task.loss == "l1"


@pytest.mark.parametrize(
    "damage",
    [Path.unlink, lambda path: path.write_text("{"), lambda path: path.write_text('{"names": []}')],
    ids=["missing", "cut", "foreign"],
)
@pytest.mark.parametrize("kept", ["*.json", "*/about.json", "*/columns.safetensors"])
def test_what_is_kept_and_damaged_is_made_again(
    damage: Callable[[Path], object], kept: str, tmp_path: Path
) -> None:
    path = write_npz(tmp_path / "three.npz")
    asked = Precompute(walks=2)
    before = open_own(path, root=tmp_path).with_columns(asked)
    expected = before.store.batch(torch.arange(2)).random_walk.clone()
    for file in (tmp_path / "own").glob(kept):
        damage(file)
    again = open_own(path, root=tmp_path).with_columns(asked)
    assert (again.task, again.names) == (before.task, ("y0",))
    assert torch.equal(again.store.batch(torch.arange(2)).random_walk, expected)


@pytest.mark.parametrize(
    ("name", "told"),
    [("none", "got no '.*none'"), ("graphs.txt", "must be a folder, an .npz or a .csv, got")],
)
def test_what_is_no_own_data_is_told(name: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "graphs.txt").touch()
    with pytest.raises(UserError, match=told):
        open_own(tmp_path / name, root=tmp_path)


def test_a_path_from_elsewhere_is_told_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"got no 'none' in '{tmp_path}'"):
        open_own("none", root=tmp_path)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"split_seed": -1}, r"split_seed must be at least 0 and less than 2\*\*63, got -1"),
        ({"split_seed": 1 << 63}, "split_seed must be at least 0 and less than"),
        ({"fractions": (0.5, 0.1, 0.1)}, r"fractions must be .* that add up to 1, got"),
        ({"fractions": (0.5, 0.5, 0.0)}, r"fractions must be .* above 0, .* got \(0.5, 0.5, 0.0\)"),
        ({"fractions": (1.5, -0.5, 0.0)}, "fractions must be three shares above 0"),
        ({"fractions": (0.5, 0.5, float("nan"))}, "fractions must be three shares above 0"),
        ({"kind": "regression", "classes": 3}, "classes must be left out"),
    ],
)
def test_options_are_checked(options: dict[str, object], told: str) -> None:
    with pytest.raises(UserError, match=told):
        OwnOptions(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("graphs", "fractions", "sizes"),
    [
        (10, (0.8, 0.1, 0.1), [8, 1, 1]),
        (7, (0.8, 0.1, 0.1), [5, 1, 1]),
        (1, (0.8, 0.1, 0.1), [1, 0, 0]),
        (2, (0.8, 0.1, 0.1), [1, 1, 0]),
        (5, (0.0, 0.0, 1.0), [0, 0, 5]),
        (100, (0.29, 0.36, 0.35), [29, 36, 35]),
        (0, (0.8, 0.1, 0.1), [0, 0, 0]),
    ],
)  # fmt: skip
def test_splits_have_their_shares(
    graphs: int, fractions: tuple[float, float, float], sizes: list[int]
) -> None:
    split = draw_split(graphs, fractions, seed=3)
    assert split.bincount(minlength=3).tolist() == sizes
    assert torch.equal(split, draw_split(graphs, fractions, seed=3))
    if graphs == 100:
        assert not torch.equal(split, draw_split(graphs, fractions, seed=4))
