"""Benchmarks with the columns that a model reads."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.config import load_experiment
from graphmamba.data import open as opening
from graphmamba.data import precomputed_store, sources
from graphmamba.data.open import open_with_columns
from graphmamba.data.positional import Precompute, add_columns, local_degree_profile
from graphmamba.data.sources import build_benchmark, open_benchmark
from graphmamba.data.store import GraphStore
from tests.helpers.raw_files import write_malnet

SIZES = (4, 2, 1)


@pytest.mark.parametrize(
    "name", ["pattern/graph-mamba", "cluster/exphormer", "pattern/gps-transformer"]
)
def test_a_model_reads_what_the_door_gives(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(name, {"model.layers": 1})
    model = experiment.build().eval()
    store = open_with_columns(experiment.benchmark, model.precompute, tmp_path, sizes=SIZES)
    plain = open_benchmark(experiment.benchmark, tmp_path, sizes=SIZES)
    batch = store.batch(store.split_ids("validation"))
    given = set(add_columns(plain[0], model.precompute).keys())
    assert set(batch.keys()) - {"batch", "ptr", "graph_key"} == given
    with torch.no_grad():
        assert model(batch).shape == (batch.num_nodes, experiment.data.task.outputs)


def test_call_graphs_get_their_degrees_as_features(tmp_path: Path) -> None:
    write_malnet(tmp_path)
    build_benchmark("malnet-tiny", tmp_path, tmp_path)
    store = open_with_columns("malnet-tiny", Precompute(walks=2), tmp_path)
    graph = store[0]
    assert set(graph.keys()) == {"x", "edge_index", "y", "random_walk"}
    assert torch.allclose(graph.x, local_degree_profile(graph.edge_index, graph.x.shape[0]))


def test_nothing_is_computed_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = open_with_columns("pattern", Precompute(frequencies=3), tmp_path, sizes=SIZES)

    def refuse(*_: object) -> None:
        raise AssertionError("what is kept must be opened")

    monkeypatch.setattr(precomputed_store, "precomputed", refuse)
    monkeypatch.setitem(sources.SOURCES, "pattern", sources.Source(refuse, draw=refuse))  # type: ignore[arg-type]
    again = open_with_columns("pattern", Precompute(frequencies=3), tmp_path, sizes=SIZES)
    assert torch.equal(again[1].laplacian_vectors, first[1].laplacian_vectors)
    assert set(open_with_columns("pattern", root=tmp_path, sizes=SIZES)[0].keys()) == {
        "x", "edge_index", "y",
    }  # fmt: skip


def test_columns_follow_the_graphs_they_were_computed_from(tmp_path: Path) -> None:
    asked = Precompute(walks=2)
    for edge in ([0, 7, 2, 9, 1, 3, 0], [7, 7, 2, 9, 1, 3, 0]):
        write_malnet(tmp_path, edge=np.array([edge, [7, 2, 2, 9, 0, 1, 1]], np.int16))
        build_benchmark("malnet-tiny", tmp_path, tmp_path)
        graph = open_with_columns("malnet-tiny", asked, tmp_path)[0]
        assert torch.equal(graph.random_walk, add_columns(graph, asked).random_walk)


def test_a_set_built_after_it_was_opened_leaves_its_columns_to_those_who_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, targets = Precompute(walks=2), [7, 2, 2, 9, 0, 1, 1]

    def build(*edges: int) -> None:
        write_malnet(tmp_path, edge=np.array([edges, targets], np.int16))
        build_benchmark("malnet-tiny", tmp_path, tmp_path)

    def open_just_before(*arguments: object) -> GraphStore:
        store = open_benchmark(*arguments)  # type: ignore[arg-type]
        build(7, 7, 2, 9, 1, 3, 0)
        return store

    build(0, 7, 2, 9, 1, 3, 0)
    with monkeypatch.context() as patched:
        patched.setattr(opening, "open_benchmark", open_just_before)
        open_with_columns("malnet-tiny", asked, tmp_path)
    graph = open_with_columns("malnet-tiny", asked, tmp_path)[0]
    assert torch.equal(graph.random_walk, add_columns(graph, asked).random_walk)
