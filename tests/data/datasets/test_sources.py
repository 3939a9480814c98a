"""Benchmarks: built from files, drawn or downloaded, kept, opened with computed columns."""

import math
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.download import GNN_BENCHMARKS, RAW_FILES
from graphmamba.data.datasets.sources import (
    SOURCES,
    build_benchmark,
    check_benchmark,
    how_to_get,
    open_benchmark,
    open_with_columns,
)
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.transforms.degree_profile import degree_profiles
from graphmamba.data.transforms.precompute import Precompute, add_columns
from graphmamba.errors import UserError
from graphmamba.training.experiment import load_experiment
from tests.helpers.raw_files import write_malnet, write_superpixels

SIZES = (4, 2, 1)


def test_every_benchmark_has_a_source() -> None:
    assert list(SOURCES) == list(CATALOG)
    for name, source in SOURCES.items():
        assert bool(source.read) == bool(source.files)
        assert f"graphmamba data build {name}" in how_to_get(name)


def test_the_files_of_every_source_are_documented() -> None:
    page = (Path(__file__).parents[3] / "docs" / "benchmark-files.md").read_text()
    for name, source in SOURCES.items():
        assert bool(source.files) == (f"| `{name}` |" in page)
        for word in source.files.split():
            file = word.strip(",()")
            assert file in page or not {".", "/"} & set(file), f"{name}: {file}"


def test_a_set_built_from_files_is_opened_again(tmp_path: Path) -> None:
    write_superpixels(tmp_path / "mnist_75sp.npz.xz", 1)
    built = build_benchmark("mnist", tmp_path, tmp_path / "sets")
    opened = open_benchmark("mnist", tmp_path / "sets")
    assert len(opened) == len(built) == 4
    assert torch.equal(opened[3].edge_index, built[3].edge_index)
    assert opened[0].edge_index.dtype == torch.int64
    assert opened.source == "built from mnist_75sp.npz.xz"


def test_a_wrong_file_leaves_nothing_behind(tmp_path: Path) -> None:
    write_malnet(tmp_path, label=np.array([2, 2, 9]))
    with pytest.raises(UserError, match="graphs of MalNet-Tiny: y must be 0 to 4, got 2 to 9"):
        build_benchmark("malnet-tiny", tmp_path, tmp_path / "sets")
    assert not list((tmp_path / "sets").rglob("*.safetensors"))
    with pytest.raises(UserError, match="malnet-tiny is not in"):
        open_benchmark("malnet-tiny", tmp_path / "sets")


def save_parts(folder: Path, name: str, graph: dict[str, object]) -> None:
    """Three parts of two graphs each, as PyG fetches them."""
    folder.mkdir()
    if name in GNN_BENCHMARKS:
        torch.save([[graph] * 2] * 3, folder / RAW_FILES[name][0])
        return
    values = tuple(graph[column] for column in ("x", "edge_attr", "edge_index", "y"))
    for file in RAW_FILES[name]:
        if file.endswith(".pickle"):
            (folder / file).write_bytes(pickle.dumps([values] * 2))
        else:
            torch.save([values] * 2, folder / file)


EDGES = torch.tensor([[0, 1], [1, 0]])
ATOMS = {"x": torch.ones(2, 9).long(), "edge_index": EDGES, "edge_attr": torch.ones(2, 3).long()}
PIXELS = {"pos": torch.rand(2, 2), "edge_index": EDGES, "edge_attr": torch.rand(2)}
REGIONS = {"x": torch.rand(2, 14), "edge_index": EDGES, "edge_attr": torch.rand(2, 2)}
BLOCKS = {"x": torch.eye(2, 3), "edge_index": EDGES}
CLASS, EACH = torch.tensor([1]), torch.tensor([0, 1])


@pytest.mark.parametrize(
    ("name", "graph", "message"),
    [
        ("mnist", PIXELS | {"x": torch.rand(2, 3), "y": CLASS}, "x must have 3 columns .* 5]"),
        ("mnist", PIXELS | {"x": torch.rand(2, 1), "y": 9 + CLASS}, "y must be 0 to 9, got 10 to"),
        ("mnist", PIXELS | {"x": torch.rand(2, 1), "y": EACH}, "y must be of each graph, got none"),
        ("cluster", {"x": torch.rand(2, 3), "edge_index": EDGES, "y": EACH}, "x must have 7 col"),
        ("pattern", PIXELS | {"x": torch.rand(2, 1), "y": EACH}, "x must have 3 col"),
        ("pattern", BLOCKS | {"y": CLASS}, "y must be of each node, got none"),
        ("peptides-func", ATOMS | {"y": torch.rand(1, 11)}, "y must have 10 columns of floating"),
        ("peptides-struct", ATOMS | {"y": torch.rand(1, 10)}, "y must have 11 columns of floating"),
        ("peptides-struct", ATOMS | {"y": torch.rand(2, 11)}, "y must be of each graph, got none"),
        ("pascalvoc-sp", REGIONS | {"y": 20 + EACH}, "y must be 0 to 20, got 20 to 21"),
        ("coco-sp", REGIONS | {"x": torch.rand(2, 9), "y": EACH}, "x must have 14 columns of"),
        ("coco-sp", REGIONS | {"x": math.nan * torch.ones(2, 14), "y": EACH}, "x must hold finite"),
    ],
)
def test_the_files_of_another_set_are_not_kept(
    tmp_path: Path, name: str, graph: dict[str, torch.Tensor], message: str
) -> None:
    save_parts(tmp_path / "raw", name, graph)
    title = CATALOG[name].title
    with pytest.raises(UserError, match=rf"{tmp_path} must hold graphs of {title}: {message}"):
        build_benchmark(name, tmp_path, tmp_path / "sets")
    assert not [path for path in (tmp_path / "sets" / name).iterdir() if path.is_dir()]


@pytest.mark.parametrize("name", ["cluster", "pattern"])
def test_what_is_drawn_is_as_catalogued(name: str) -> None:
    draw = SOURCES[name].generate
    check_benchmark(draw((6, 1, 1), 0), CATALOG[name], "the recipe")


def test_drawn_sets_are_made_when_they_are_asked_for(tmp_path: Path) -> None:
    first = open_benchmark("pattern", tmp_path, sizes=(6, 2, 1))
    assert [len(first.split_ids(part)) for part in ("train", "validation", "test")] == [6, 2, 1]
    again = open_benchmark("pattern", tmp_path, sizes=(6, 2, 1))
    other = open_benchmark("pattern", tmp_path, seed=1, sizes=(6, 2, 1))
    assert torch.equal(first[0].edge_index, again[0].edge_index)
    assert not torch.equal(first[0].x.sum(dim=0), other[0].x.sum(dim=0))


def test_a_missing_set_tells_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"download it with .* or build it from local") as message:
        open_benchmark("peptides-func", tmp_path)
    assert "peptide_multi_class_dataset.csv" in str(message.value)
    assert f"`graphmamba data build peptides-func --data_dir {tmp_path}`" in str(message.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", [name for name in CATALOG if name != "pattern"])
def test_a_folder_without_the_files_tells_what_it_must_hold(tmp_path: Path, name: str) -> None:
    holds = re.escape(SOURCES[name].files or "what PyG has fetched")
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(UserError, match=f"--from must be a folder that holds {holds}"):
            build_benchmark(name, folder, tmp_path / "sets")


@pytest.mark.parametrize(
    "name", ["pattern/graph-mamba", "cluster/exphormer", "pattern/gps-transformer"]
)
def test_a_model_reads_what_open_benchmark_gives(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(name, {"model.layers": 1})
    model = experiment.build().eval()
    store = open_with_columns(experiment.dataset, model.precompute, tmp_path, sizes=SIZES)
    plain = open_benchmark(experiment.dataset, tmp_path, sizes=SIZES)
    batch = store.batch(store.split_ids("validation"))
    given = set(add_columns(plain[0], model.precompute).keys())
    assert set(batch.keys()) - {"batch", "ptr", "graph_key"} == given
    with torch.no_grad():
        assert model(batch).shape == (batch.num_nodes, experiment.dataset_info.task.outputs)


def test_call_graphs_get_their_degrees_as_features(tmp_path: Path) -> None:
    write_malnet(tmp_path)
    build_benchmark("malnet-tiny", tmp_path, tmp_path)
    store = open_with_columns("malnet-tiny", Precompute(walk_length=2), tmp_path)
    graph = store[0]
    assert set(graph.keys()) == {"x", "edge_index", "y", "random_walk"}
    assert torch.allclose(graph.x, degree_profiles(columns_of([graph])))


def test_columns_follow_the_graphs_they_were_computed_from(tmp_path: Path) -> None:
    asked = Precompute(walk_length=2)
    for edge in ([0, 7, 2, 9, 1, 3, 0], [7, 7, 2, 9, 1, 3, 0]):
        write_malnet(tmp_path, edge=np.array([edge, [7, 2, 2, 9, 0, 1, 1]], np.int16))
        build_benchmark("malnet-tiny", tmp_path, tmp_path)
        graph = open_with_columns("malnet-tiny", asked, tmp_path)[0]
        assert torch.equal(graph.random_walk, add_columns(graph, asked).random_walk)
