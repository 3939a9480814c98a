"""Files of PyG's classes: read whatever their form, fetched whole; nothing is downloaded here."""

import io
import pickle
import tarfile
from collections.abc import Mapping
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import torch
from torch_geometric.datasets import GNNBenchmarkDataset, LRGBDataset, MalNetTiny

from graphmamba.data.datasets.download import (
    download,
    find_fetched,
    read_fetched,
    read_tensors,
    renumber,
)
from graphmamba.data.datasets.sources import build_benchmark
from graphmamba.data.tables import GraphColumns
from graphmamba.errors import UserError

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


def read(name: str, folder: Path) -> GraphColumns:
    paths = find_fetched(name, folder)
    return read_fetched(name, paths)


@pytest.mark.parametrize("place", ["", "raw", "pcqm-contact/raw"])
def test_raw_files_are_found_where_pyg_puts_them(place: str, tmp_path: Path) -> None:
    assert find_fetched("pcqm-contact", tmp_path) is None
    (tmp_path / place).mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(PARTS):
        torch.save([contacts(3), contacts(4 + number)], tmp_path / place / f"{part}.pt")
    columns, sizes = read("pcqm-contact", tmp_path), [3, 4, 3, 5, 3, 6]
    assert columns.node_ptr.diff().tolist() == sizes
    assert columns.split.tolist() == [0, 0, 1, 1, 2, 2]
    assert torch.equal(columns.edge_index, EDGES.repeat(1, 6))
    assert columns.nodes["x"][:, 0].tolist() == [size for size in sizes for _ in range(size)]
    assert torch.equal(columns.pairs["edge_label_index"].index, PAIRS[:, :2].repeat(1, 6))


def test_superpixels_of_pyg_are_built_by_name(tmp_path: Path) -> None:
    graphs = [[image(3), image(4)], [image(5), image(6)], [image(7), image(8)]]
    torch.save(graphs, raw_folder(tmp_path, "CIFAR10") / "CIFAR10_v2.pt")
    store = build_benchmark("cifar10", tmp_path, tmp_path / "sets")
    assert [int(store[i].y) for i in range(6)] == [3, 4, 5, 6, 7, 8]
    assert torch.equal(store[3].x[:, 3:], graphs[1][1]["pos"])
    assert store[3].edge_attr.shape == (4, 1)


def test_coco_is_numbered_as_pyg_numbers_it() -> None:
    numbers = LRGBDataset.label_remap_coco(None)
    assert renumber(list(numbers)).tolist() == list(numbers.values())
    with pytest.raises(ValueError, match=r"labels \[12, 83\] name no category"):
        renumber([1, 12, 83])


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
    with pytest.raises(UserError, match=r"train\.pt must be a file of the graphs of peptides-func"):
        read("peptides-func", tmp_path)


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
    columns = download("peptides-struct", tmp_path)
    torch.testing.assert_close(
        columns.graphs["y"], torch.tensor([-1.0, 0, 1])[:, None].expand(3, 11)
    )
    assert columns.split.tolist() == [0, 1, 2]
    assert columns.node_ptr.tolist() == [0, 3, 6, 9]


def test_coco_labels_lose_their_gaps(tmp_path: Path) -> None:
    folder = raw_folder(tmp_path, "coco-sp")
    labels = {"train": [0, 13, 90], "val": torch.tensor([1, 2, 3]), "test": np.array([11, 0, 14])}
    for part, label in labels.items():
        graph = (torch.ones(3, 14).half(), torch.ones(4, 2).half(), EDGES, label)
        (folder / f"{part}.pickle").write_bytes(pickle.dumps([graph]))
    columns = download("coco-sp", tmp_path)
    assert columns.nodes["y"].tolist() == [0, 12, 80, 1, 2, 3, 11, 0, 13]
    assert columns.nodes["x"].dtype == columns.edges["edge_attr"].dtype == torch.float32


def test_node_labels_stay_with_their_nodes(tmp_path: Path) -> None:
    graph = {"x": torch.eye(3), "edge_index": EDGES, "y": torch.tensor([1, 0, 1])}
    graph["edge_attr"] = torch.ones(4)
    torch.save([[graph], [graph], [graph]], raw_folder(tmp_path, "PATTERN") / "PATTERN_v2.pt")
    columns = download("pattern", tmp_path)
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


@pytest.mark.parametrize("name", ["peptides-func", "pattern"])
def test_a_set_is_fetched_into_an_empty_root(
    name: str, tmp_path: Path, served: dict[str, Path]
) -> None:
    assert len(download(name, tmp_path / "new" / "raw").node_ptr) == 4
    served[name].unlink()
    # once there, nothing is asked for
    assert len(download(name, tmp_path / "new" / "raw").node_ptr) == 4
    assert not [*(tmp_path / "new").rglob(".download-*")]


@pytest.mark.parametrize("name", ["peptides-func", "pattern"])
def test_what_broke_off_is_reported_and_fetched_again(
    name: str, tmp_path: Path, served: dict[str, Path]
) -> None:
    whole = served[name].read_bytes()
    served[name].write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="cannot be downloaded: "):
        download(name, tmp_path / "raw")
    assert not [path for path in (tmp_path / "raw").rglob("*") if path.is_file()]
    served[name].write_bytes(whole)
    assert len(download(name, tmp_path / "raw").node_ptr) == 4


@pytest.mark.usefixtures("served")
def test_what_no_checksum_is_published_for_is_named_by_its_content(tmp_path: Path) -> None:
    found = [download("peptides-func", tmp_path / data_dir).source for data_dir in ("one", "other")]
    assert found[0] == found[1]
    assert "compared with no checksum, since none is published; its files have the hash" in found[0]
    (tmp_path / "other" / "peptides-func" / "raw" / "more").write_text("more")
    assert download("peptides-func", tmp_path / "other").source != found[0]


@pytest.mark.parametrize("link", [None, tarfile.LNKTYPE, tarfile.SYMTYPE], ids=str)
@pytest.mark.parametrize("name", ["../../../escaped", "/tmp/graphmamba-escaped"])
def test_archives_cannot_write_outside_of_their_folder(
    name: str, link: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(tmp_path / "malnet-graphs-tiny.tar.gz", "w:gz") as archive:
        if link is not None:
            # a name for a place outside, through which the file is then written
            leads = tarfile.TarInfo("inside")
            leads.type, leads.linkname = link, name
            archive.addfile(leads)
        member = tarfile.TarInfo(name if link is None else "inside")
        member.size = 4
        archive.addfile(member, io.BytesIO(b"evil"))
    zipped(tmp_path / "split_info_tiny.zip", "", {})
    files = {"data_url": "malnet-graphs-tiny.tar.gz", "split_url": "split_info_tiny.zip"}
    for field, file in files.items():
        monkeypatch.setattr(MalNetTiny, field, (tmp_path / file).as_uri())
    before = getattr(tarfile.TarFile, "extraction_filter", None)
    with pytest.raises(UserError):
        download("malnet-tiny", tmp_path / "root" / "raw")
    assert all("malnet-tiny" in place.parts for place in tmp_path.rglob("*escaped"))
    assert not Path("/tmp/graphmamba-escaped").exists()
    assert getattr(tarfile.TarFile, "extraction_filter", None) == before
