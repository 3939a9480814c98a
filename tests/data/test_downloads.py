"""Published files turned into columns; the files are small fakes, nothing is fetched."""

import io
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch_geometric.datasets import GNNBenchmarkDataset, LRGBDataset

from graphmamba.data.contacts import with_negatives
from graphmamba.data.datasets.safe_pickle import read_tensor_pickle
from graphmamba.data.downloads import download_gnn_benchmark, download_lrgb
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError

EDGES = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
PARTS = ("train", "val", "test")


def raw_folder(root: Path, name: str) -> Path:
    folder = root / name / "raw"
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


def test_contacts_keep_true_pairs_alone(tmp_path: Path) -> None:
    folder = raw_folder(tmp_path, "pcqm-contact")
    pairs, label = torch.tensor([[0, 2, 0, 1], [2, 0, 1, 1]]), torch.tensor([1, 1, 0, 0])
    for part in PARTS:
        torch.save([(*molecule(label)[:3], pairs, label)] * 2, folder / f"{part}.pt")
    columns = download_lrgb("pcqm-contact", tmp_path)
    kept = columns.pairs["edge_label_index"]
    assert kept.ptr.tolist() == [0, 2, 4, 6, 8, 10, 12]
    assert kept.index[:, :2].tolist() == [[0, 2], [2, 0]]
    assert not kept.columns
    batch = GraphStore(columns).batch(torch.tensor([3, 0]))
    pairs, label = with_negatives(batch.edge_label_index, batch.ptr, torch.Generator())
    assert pairs[:, label == 1].tolist() == [[0, 2, 3, 5], [2, 0, 5, 3]]


def test_coco_labels_lose_their_gaps(tmp_path: Path) -> None:
    folder = raw_folder(tmp_path, "coco-sp")
    labels = {"train": [0, 13, 90], "val": torch.tensor([1, 2, 3]), "test": np.array([11, 0, 14])}
    for part, label in labels.items():
        graph = (torch.ones(3, 14).half(), torch.ones(4, 2).half(), EDGES, label)
        (folder / f"{part}.pickle").write_bytes(pickle.dumps([graph]))
    columns = download_lrgb("coco-sp", tmp_path)
    assert columns.nodes["y"].tolist() == [0, 12, 80, 1, 2, 3, 11, 0, 13]
    assert columns.nodes["x"].dtype == columns.edges["edge_attr"].dtype == torch.float32


def test_colours_and_places_are_put_side_by_side(tmp_path: Path) -> None:
    graph = {
        "x": torch.rand(3, 1),
        "pos": torch.rand(3, 2),
        "edge_index": EDGES,
        "edge_attr": torch.rand(4),
        "y": torch.tensor([7]),
    }
    torch.save([[graph, graph], [graph], [graph]], raw_folder(tmp_path, "MNIST") / "MNIST_v2.pt")
    columns = download_gnn_benchmark("mnist", tmp_path)
    assert torch.equal(columns.nodes["x"][:3], torch.cat([graph["x"], graph["pos"]], dim=1))
    assert columns.edges["edge_attr"].shape == (16, 1)
    assert columns.graphs["y"].tolist() == [7] * 4
    assert columns.split is not None
    assert columns.split.tolist() == [0, 0, 1, 2]


def test_node_labels_stay_with_their_nodes(tmp_path: Path) -> None:
    graph = {"x": torch.eye(3), "edge_index": EDGES, "y": torch.tensor([1, 0, 1])}
    graph["edge_attr"] = torch.ones(4)
    torch.save([[graph], [graph], [graph]], raw_folder(tmp_path, "PATTERN") / "PATTERN_v2.pt")
    columns = download_gnn_benchmark("pattern", tmp_path)
    assert columns.nodes["y"].tolist() == [1, 0, 1] * 3
    assert not columns.edges


def test_a_pickle_that_asks_for_code_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pickle").write_bytes(pickle.dumps([os.getcwd]))
    with pytest.raises(UserError, match=r"a\.pickle must hold tensors alone: it asks for"):
        read_tensor_pickle(tmp_path / "a.pickle")
    folder = raw_folder(tmp_path, "peptides-func")
    for part in PARTS:
        torch.save([os.getcwd], folder / f"{part}.pt")
    with pytest.raises(UserError, match=r"train\.pt must be a whole file of tensors"):
        download_lrgb("peptides-func", tmp_path)


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
def test_what_broke_off_is_told_and_fetched_again(
    name: str, tmp_path: Path, served: dict[str, Path]
) -> None:
    whole = served[name].read_bytes()
    served[name].write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be downloaded: "):
        FETCH[name](name, tmp_path / "raw")
    assert not [path for path in (tmp_path / "raw").rglob("*") if path.is_file()]
    served[name].write_bytes(whole)
    assert len(FETCH[name](name, tmp_path / "raw").node_ptr) == 4


def test_no_network_is_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise OSError("no route")

    monkeypatch.setattr(LRGBDataset, "download", refuse)
    with pytest.raises(UserError, match="pascalvoc-sp cannot be downloaded: no route"):
        download_lrgb("pascalvoc-sp", tmp_path)
