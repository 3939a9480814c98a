"""Files of PyG's classes: read whatever their form, fetched whole; nothing is downloaded here."""

import io
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset
from torch_geometric.datasets import GNNBenchmarkDataset, LRGBDataset

from graphmamba.data.datasets.download import (
    download_gnn_benchmark,
    download_lrgb,
    read_fetched,
    read_tensors,
    renumber,
)
from graphmamba.data.datasets.malnet import read_malnet
from graphmamba.data.datasets.sources import build_benchmark
from graphmamba.data.tables import GraphColumns
from graphmamba.errors import UserError
from tests.helpers.raw_files import cut, spoil

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
PAIRS, LABELS = torch.tensor([[0, 2, 0], [2, 0, 1]]), torch.tensor([1, 1, 0])
PARTS = ("train", "val", "test")


def contacts(nodes: int) -> tuple[torch.Tensor, ...]:
    return torch.full((nodes, 9), nodes), torch.ones(4, 3).long(), EDGES, PAIRS, LABELS


def image(nodes: int) -> dict[str, torch.Tensor]:
    return {
        "x": torch.full((nodes, 3), float(nodes)),
        "pos": torch.rand(nodes, 2),
        "edge_index": EDGES,
        "edge_attr": torch.rand(4),
        "y": torch.tensor([nodes]),
    }


def save_contacts(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(("train", "val", "test")):
        torch.save([contacts(3), contacts(4 + number)], folder / f"{part}.pt")


def save_processed(folder: Path) -> None:
    """Write as PyG does; one part has a single graph, which PyG keeps without boundaries."""
    folder.mkdir(parents=True)
    names = ("x", "edge_attr", "edge_index", "edge_label_index", "edge_label")
    for number, part in enumerate(("train", "val", "test")):
        graphs = [contacts(3), contacts(4 + number)][: 2 - (part == "test")]
        each = [Data(**dict(zip(names, graph, strict=True))) for graph in graphs]
        InMemoryDataset.save(each, str(folder / f"{part}.pt"))


def check_contacts(columns: GraphColumns, sizes: list[int], split: list[int]) -> None:
    assert columns.node_ptr.diff().tolist() == sizes
    assert columns.split is not None
    assert columns.split.tolist() == split
    assert torch.equal(columns.edge_index, EDGES.repeat(1, len(sizes)))
    assert torch.equal(columns.nodes["x"][:, 0], torch.tensor(sizes).repeat_interleave(
        torch.tensor(sizes)
    ))  # fmt: skip
    kept = columns.pairs["edge_label_index"]
    assert torch.equal(kept.index, PAIRS[:, :2].repeat(1, len(sizes)))


@pytest.mark.parametrize("place", ["", "raw", "pcqm-contact/raw"])
def test_raw_files_are_found_where_pyg_puts_them(place: str, tmp_path: Path) -> None:
    save_contacts(tmp_path / place)
    check_contacts(read_fetched("pcqm-contact", tmp_path), [3, 4, 3, 5, 3, 6], [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("place", ["", "processed", "pcqm-contact/processed"])
def test_processed_files_are_cut_into_graphs(place: str, tmp_path: Path) -> None:
    save_processed(tmp_path / "set" / place)
    columns = read_fetched("pcqm-contact", tmp_path / "set")
    check_contacts(columns, [3, 4, 3, 5, 3], [0, 0, 1, 1, 2])


def test_raw_files_go_before_processed_ones(tmp_path: Path) -> None:
    save_contacts(tmp_path / "pcqm-contact/raw")
    save_processed(tmp_path / "pcqm-contact/processed")
    assert read_fetched("pcqm-contact", tmp_path).node_ptr.shape == (7,)


def test_an_archive_is_unpacked_elsewhere(tmp_path: Path) -> None:
    save_contacts(tmp_path / "made")
    folder = tmp_path / "given"
    folder.mkdir()
    with zipfile.ZipFile(folder / "pcqmcontact.zip", "w") as packed:
        for file in (tmp_path / "made").iterdir():
            # A member that would leave the folder is read like any other and goes nowhere.
            packed.write(file, f"../pcqmcontact/{file.name}")
    columns = read_fetched("pcqm-contact", folder)
    check_contacts(columns, [3, 4, 3, 5, 3, 6], [0, 0, 1, 1, 2, 2])
    assert columns.source == "built from pcqmcontact.zip"
    assert [path.name for path in folder.iterdir()] == ["pcqmcontact.zip"]
    assert {path.name for path in tmp_path.iterdir()} == {"made", "given"}


@pytest.mark.parametrize("is_processed", [False, True], ids=["raw", "processed"])
def test_superpixels_of_pyg_are_built_by_name(is_processed: bool, tmp_path: Path) -> None:
    graphs = [[image(3), image(4)], [image(5), image(6)], [image(7), image(8)]]
    folder = tmp_path / "CIFAR10" / ("processed" if is_processed else "raw")
    folder.mkdir(parents=True)
    if is_processed:
        for part, name in zip(graphs, ("train", "val", "test"), strict=True):
            each = [Data(**graph) for graph in part]
            InMemoryDataset.save(each, str(folder / f"{name}_data.pt"))
    else:
        torch.save(graphs, folder / "CIFAR10_v2.pt")
    store = build_benchmark("cifar10", tmp_path, tmp_path / "sets")
    assert [int(store[i].y) for i in range(6)] == [3, 4, 5, 6, 7, 8]
    assert torch.equal(store[3].x[:, 3:], graphs[1][1]["pos"])
    assert store[3].edge_attr.shape == (4, 1)


def test_coco_is_numbered_as_pyg_numbers_it() -> None:
    numbers = LRGBDataset.label_remap_coco(None)
    assert renumber(list(numbers)).tolist() == list(numbers.values())
    with pytest.raises(ValueError, match=r"labels \[12, 83\] name no category"):
        renumber([1, 12, 83])


def test_edge_lists_lie_in_the_raw_folder_of_pyg(tmp_path: Path) -> None:
    folder = tmp_path / "raw"
    (folder / "malnet-graphs-tiny/benign/a").mkdir(parents=True)
    (folder / "malnet-graphs-tiny/benign/a/b.edgelist").write_text("#\n" * 5 + "0 1\n1 4\n")
    (folder / "split_info_tiny/type").mkdir(parents=True)
    for part in ("train", "val", "test"):
        (folder / f"split_info_tiny/type/{part}.txt").write_text("benign/a/b\n")
    assert read_malnet(tmp_path).node_ptr.tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(b"none"), r"pcqmcontact\.zip must be a whole \.zip file"),
        (lambda path: zipfile.ZipFile(path, "w").close(), r"zip must hold train\.pt and val\.pt"),
        (lambda path: torch.save([1], path.with_name("train.pt")), "must hold train.pt and val.pt"),
    ],
)
def test_missing_files_are_reported(
    write: Callable[[Path], object], message: str, tmp_path: Path
) -> None:
    write(tmp_path / "pcqmcontact.zip")
    with pytest.raises(UserError, match=message):
        read_fetched("pcqm-contact", tmp_path)


@pytest.mark.parametrize("damage", [cut, spoil])
def test_a_damaged_archive_is_named(damage: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "pcqmcontact.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("pcqmcontact/train.pt", " ".join(map(str, range(5000))))
    damage(path)
    with pytest.raises(UserError, match=r"pcqmcontact\.zip must be a whole \.zip file"):
        read_fetched("pcqm-contact", tmp_path)


def test_a_damaged_file_of_tensors_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.pt"
    torch.save([contacts(3)], path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"little", b"li\xfftle"))
    assert path.read_bytes() != whole
    with pytest.raises(UserError, match=r"train\.pt must be a whole file of tensors"):
        read_tensors(path)


def test_other_graphs_are_reported(tmp_path: Path) -> None:
    for part in ("train", "val", "test"):
        torch.save([contacts(3)], tmp_path / f"{part}.pt")
    with pytest.raises(UserError, match=r"train\.pt must hold the graphs of peptides-func"):
        read_fetched("peptides-func", tmp_path)


def test_targets_that_are_missing_are_reported(tmp_path: Path) -> None:
    targets = torch.arange(11.0)[None]
    for number, part in enumerate(("train", "val", "test")):
        targets = targets + number
        targets[0, 7] = float("nan") if number else 0.0
        torch.save([(*contacts(3)[:3], targets)], tmp_path / f"{part}.pt")
    with pytest.raises(UserError, match=rf"{tmp_path}: length_b must differ .* and be finite"):
        read_fetched("peptides-struct", tmp_path)


def test_the_class_of_processed_files_is_never_made(tmp_path: Path) -> None:
    torch.save(({"x": torch.ones(1)}, None, Data), tmp_path / "train.pt")
    assert read_tensors(tmp_path / "train.pt")[2] is not Data
    torch.save(Data(x=torch.ones(1)), tmp_path / "train.pt")
    with pytest.raises(UserError, match="must be a whole file of tensors"):
        read_tensors(tmp_path / "train.pt")


def raw_folder(data_dir: Path, name: str) -> Path:
    folder = data_dir / name / "raw"
    folder.mkdir(parents=True)
    return folder


def molecule(y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.ones(3, 9, dtype=torch.int64), torch.ones(4, 3, dtype=torch.int64), EDGES, y


def test_struct_targets_are_standardised_over_all_parts(tmp_path: Path) -> None:
    folder = raw_folder(tmp_path, "peptides-struct")
    for number, part in enumerate(PARTS):
        targets = 5.0 + number * torch.arange(1.0, 12.0)[None]
        torch.save([molecule(targets)], folder / f"{part}.pt")
    columns = download_lrgb("peptides-struct", tmp_path)
    torch.testing.assert_close(
        columns.graphs["y"], torch.tensor([-1.0, 0, 1])[:, None].expand(3, 11)
    )
    assert columns.split is not None
    assert columns.split.tolist() == [0, 1, 2]
    assert columns.node_ptr.tolist() == [0, 3, 6, 9]


def test_coco_labels_lose_their_gaps(tmp_path: Path) -> None:
    folder = raw_folder(tmp_path, "coco-sp")
    labels = {"train": [0, 13, 90], "val": torch.tensor([1, 2, 3]), "test": np.array([11, 0, 14])}
    for part, label in labels.items():
        graph = (torch.ones(3, 14).half(), torch.ones(4, 2).half(), EDGES, label)
        (folder / f"{part}.pickle").write_bytes(pickle.dumps([graph]))
    columns = download_lrgb("coco-sp", tmp_path)
    assert columns.nodes["y"].tolist() == [0, 12, 80, 1, 2, 3, 11, 0, 13]
    assert columns.nodes["x"].dtype == columns.edges["edge_attr"].dtype == torch.float32


def test_node_labels_stay_with_their_nodes(tmp_path: Path) -> None:
    graph = {"x": torch.eye(3), "edge_index": EDGES, "y": torch.tensor([1, 0, 1])}
    graph["edge_attr"] = torch.ones(4)
    torch.save([[graph], [graph], [graph]], raw_folder(tmp_path, "PATTERN") / "PATTERN_v2.pt")
    columns = download_gnn_benchmark("pattern", tmp_path)
    assert columns.nodes["y"].tolist() == [1, 0, 1] * 3
    assert not columns.edges


def zipped(path: Path, folder: str, files: Mapping[str, object]) -> Path:
    """An archive of files that torch can read, as the published ones are."""
    with ZipFile(path, "w") as archive:
        for name, content in files.items():
            written = io.BytesIO()
            torch.save(content, written)
            archive.writestr(f"{folder}{name}", written.getvalue())
    return path


def small_sets(folder: Path) -> dict[str, Path]:
    """Archives as they lie on the servers."""
    parts = {f"{part}.pt": [molecule(torch.ones(1, 10))] for part in PARTS}
    graph = {"x": torch.eye(3), "edge_index": EDGES, "y": torch.tensor([1, 0, 1])}
    return {
        "peptides-func": zipped(folder / "func.zip", "peptidesfunc/", parts),
        "pattern": zipped(folder / "PATTERN_v2.zip", "", {"PATTERN_v2.pt": [[graph]] * 3}),
    }


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Archives that PyG's classes find in the place of the published ones."""
    (tmp_path / "served").mkdir()
    archives = small_sets(tmp_path / "served")
    func, pattern = archives["peptides-func"].as_uri(), archives["pattern"].as_uri()
    monkeypatch.setitem(LRGBDataset.urls, "peptides-func", func)
    monkeypatch.setitem(LRGBDataset.dwnld_file_name, "peptides-func", "peptidesfunc")
    monkeypatch.setitem(GNNBenchmarkDataset.urls, "PATTERN", pattern)
    return archives


FETCH = {"peptides-func": download_lrgb, "pattern": download_gnn_benchmark}


@pytest.mark.parametrize("name", FETCH)
def test_a_set_is_fetched_into_an_empty_root(
    name: str, tmp_path: Path, served: dict[str, Path]
) -> None:
    assert len(FETCH[name](name, tmp_path / "new" / "raw").node_ptr) == 4
    served[name].unlink()
    # once there, nothing is asked for
    assert len(FETCH[name](name, tmp_path / "new" / "raw").node_ptr) == 4
    assert not [*(tmp_path / "new").rglob(".download-*")]


@pytest.mark.parametrize("name", FETCH)
def test_what_broke_off_is_reported_and_fetched_again(
    name: str, tmp_path: Path, served: dict[str, Path]
) -> None:
    whole = served[name].read_bytes()
    served[name].write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be downloaded: "):
        FETCH[name](name, tmp_path / "raw")
    assert not [path for path in (tmp_path / "raw").rglob("*") if path.is_file()]
    served[name].write_bytes(whole)
    assert len(FETCH[name](name, tmp_path / "raw").node_ptr) == 4


def test_no_network_is_reported_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reject(_: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(LRGBDataset, "download", reject)
    with pytest.raises(UserError, match="pascalvoc-sp cannot be downloaded: no route"):
        download_lrgb("pascalvoc-sp", tmp_path)
