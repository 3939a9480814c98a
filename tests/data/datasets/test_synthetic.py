"""Small random graphs of each benchmark's kind."""

import pytest
import torch

from graphmamba.data.catalog import ATOM_VOCABULARY, CATALOG
from graphmamba.data.datasets.synthetic import sized_graphs
from tests.helpers.synthetic import synthetic_graphs


@pytest.mark.parametrize("name", CATALOG)
def test_graphs_have_the_columns_of_their_benchmark(name: str) -> None:
    benchmark = CATALOG[name]
    for graph in synthetic_graphs(benchmark, count=3):
        graph.validate()
        assert graph.x.shape[1] == benchmark.features.node_columns
        assert graph.x.is_floating_point() == (benchmark.features.nodes == "numbers")
        if benchmark.features.edges == "none":
            assert graph.edge_attr is None
        else:
            assert graph.edge_attr.shape[1] == benchmark.features.edge_columns
        if benchmark.features.nodes == "atoms":
            assert (graph.x < torch.tensor(ATOM_VOCABULARY)).all()


def test_same_seed_same_graphs() -> None:
    first, second = (synthetic_graphs(CATALOG["mnist"], 2, seed=3) for _ in range(2))
    assert all(torch.equal(a.x, b.x) for a, b in zip(first, second, strict=True))
    assert not torch.equal(first[0].x, synthetic_graphs(CATALOG["mnist"], 2, seed=4)[0].x)


def test_links_are_symmetric_and_without_contradiction() -> None:
    graph = synthetic_graphs(CATALOG["pcqm-contact"], 1, nodes=(9, 9))[0]
    labels: dict[tuple[int, int], set[float]] = {}
    for i, j, label in zip(
        *graph.edge_label_index.tolist(), graph.edge_label.tolist(), strict=True
    ):
        labels.setdefault((min(i, j), max(i, j)), set()).add(label)
    assert all(i != j and len(seen) == 1 for (i, j), seen in labels.items())
    assert {0.0, 1.0} == set.union(*labels.values())


def test_catalogue_has_the_published_sizes() -> None:
    graphs = [benchmark.graphs for benchmark in CATALOG.values()]
    published = [15_535, 15_535, 11_355, 123_286, 529_434, 5_000, 60_000, 70_000, 12_000, 14_000]
    assert graphs == published


@pytest.mark.parametrize("name", ["malnet-tiny", "pcqm-contact", "pascalvoc-sp"])
def test_graphs_of_given_sizes_have_as_many_edges_as_the_benchmark(name: str) -> None:
    benchmark = CATALOG[name]
    graphs = sized_graphs(benchmark, [1, 40, 300], seed=1)
    assert [graph.num_nodes for graph in graphs] == [1, 40, 300]
    assert graphs[0].num_edges == 0
    degree = benchmark.mean_edges / benchmark.mean_nodes
    for graph in graphs[1:]:
        graph.validate()
        assert not graph.has_self_loops()
        assert graph.num_edges / graph.num_nodes == pytest.approx(degree, abs=0.05)
