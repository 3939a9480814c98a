"""Graphs to measure on: the benchmark's own or such as it has, whole or in part."""

from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

from graphmamba.data.cache import write_store
from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.sources import place_of, recipe_of
from graphmamba.data.datasets.synthetic import sized_graphs
from graphmamba.data.store import GraphStore
from graphmamba.study.graphs import SPREADS, draw_sizes, study_graphs, subsample


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("name", SPREADS)
def test_generated_graphs_have_the_sizes_of_the_set(name: str) -> None:
    sizes = draw_sizes(name, 2000)
    # what lies beyond the largest graph is cut off, MalNet's far end above all
    assert sum(sizes) / len(sizes) == pytest.approx(CATALOG[name].mean_nodes, rel=0.12)
    assert max(sizes) <= SPREADS[name].largest


@pytest.mark.parametrize("name", ["malnet-tiny", "pcqm-contact"])
def test_what_is_not_built_is_generated_and_says_so(name: str, tmp_path: Path) -> None:
    found = study_graphs(name, 2, tmp_path, scale=0.1)
    assert len(found.graphs) == 2
    assert f"generated like {CATALOG[name].title}, 0.1 times as large" == found.source
    assert not any(tmp_path.iterdir())


def test_a_set_with_a_recipe_is_drawn_by_it(tmp_path: Path) -> None:
    found = study_graphs("cluster", 3, tmp_path)
    assert len(found.graphs) == 3
    assert "drawn" in found.source
    assert found.graphs[0].x.shape[1] == 7


def test_a_set_that_is_built_is_used_with_its_degree_profile(tmp_path: Path) -> None:
    graphs = sized_graphs(CATALOG["malnet-tiny"], [9, 7, 8])
    for graph in graphs:
        graph.num_nodes = graph.x.shape[0]
        del graph.x
    store = GraphStore.from_pyg(graphs, split=torch.tensor([0, 1, 0]))
    store.source = "built for this test"
    place = place_of("malnet-tiny", tmp_path)
    place.parent.mkdir(parents=True)
    write_store(store, place, recipe_of("malnet-tiny"))
    found = study_graphs("malnet-tiny", 4, tmp_path)
    assert found.source == "built for this test"
    # two graphs are for training, and are gone through twice
    assert sorted(graph.num_nodes for graph in found.graphs) == [8, 8, 9, 9]
    assert all(graph.x.shape == (graph.num_nodes, 5) for graph in found.graphs)


def test_a_share_of_the_nodes_keeps_their_order_features_and_edges() -> None:
    nodes = torch.arange(10)
    graph = Data(
        x=nodes[:, None].float(), edge_index=torch.stack([nodes, (nodes + 1) % 10]), y=nodes[:1]
    )
    half = subsample(graph, 0.5, generator())
    kept = half.x[:, 0].long()
    assert kept.tolist() == sorted(kept.tolist())
    assert len(kept) == 5
    edges = {(int(kept[i]), int(kept[j])) for i, j in half.edge_index.T.tolist()}
    whole = {(i, (i + 1) % 10) for i in range(10)}
    assert edges == {(i, j) for i, j in whole if {i, j} <= set(kept.tolist())}


@pytest.mark.parametrize(("nodes", "fraction"), [(10, 0.1), (10, 1.0), (1, 0.5), (19, 0.1)])
def test_what_would_leave_less_than_two_nodes_stays_whole(nodes: int, fraction: float) -> None:
    graph = sized_graphs(CATALOG["malnet-tiny"], [nodes])[0]
    assert subsample(graph, fraction, generator()) is graph


def test_an_unknown_set_is_refused() -> None:
    with pytest.raises(ValueError, match="name must be one of malnet-tiny"):
        study_graphs("mnist", 1)
