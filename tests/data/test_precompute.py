"""Columns of a whole set are those of its graphs, one by one."""

import json

import networkx
import pytest
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmamba.data import expander, spectrum
from graphmamba.data.expander import expander_edges, spectral_gap
from graphmamba.data.louvain import louvain_communities
from graphmamba.data.node_scores import eigenvector_centrality
from graphmamba.data.positional import (
    Precompute,
    add_columns,
    laplacian_spectrum,
    local_degree_profile,
    return_probabilities,
)
from graphmamba.data.precompute import add_precomputed
from graphmamba.data.random_bits import draw_bits
from graphmamba.data.sparse_spectrum import smallest_eigenpairs
from graphmamba.data.tables import GraphColumns

Graph = tuple[Tensor, int]


def edges_of(graph: networkx.Graph) -> Graph:
    graph = networkx.convert_node_labels_to_integers(graph)
    pairs = torch.tensor(list(graph.edges), dtype=torch.int64).reshape(-1, 2).T
    return torch.cat([pairs, pairs.flip(0)], dim=1), len(graph)


def random_graph(nodes: int, edges: int, seed: int) -> Graph:
    """Directions, self-loops, repeated edges and isolated nodes all occur."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(nodes, (2, edges), generator=generator), nodes


NONE = torch.empty(2, 0, dtype=torch.int64)
GRAPHS: dict[str, Graph] = {
    "one node": (NONE, 1),
    "a loop alone": (torch.zeros(2, 3, dtype=torch.int64), 1),
    "empty": (NONE, 0),
    "no edges": (NONE, 5),
    "path": edges_of(networkx.path_graph(12)),
    "path again": edges_of(networkx.path_graph(12)),
    "star": edges_of(networkx.star_graph(11)),
    "two rings": edges_of(
        networkx.disjoint_union(networkx.cycle_graph(6), networkx.cycle_graph(6))
    ),
    "many pairs": (torch.arange(200).reshape(100, 2).T, 200),
    "sparse": random_graph(30, 20, 0),
    "dense": random_graph(25, 300, 1),
    "large": edges_of(networkx.connected_watts_strogatz_graph(290, 4, 0.3, seed=0)),
}


def laid_end_to_end(graphs: list[Graph]) -> GraphColumns:
    counts = torch.tensor([0] + [nodes for _, nodes in graphs])
    edges = torch.tensor([0] + [index.shape[1] for index, _ in graphs])
    index = torch.cat([NONE, *(index for index, _ in graphs)], dim=1)
    return GraphColumns(counts.cumsum(0), edges.cumsum(0), index)


SET = laid_end_to_end(list(GRAPHS.values()))


def rows_of(column: Tensor, place: int) -> Tensor:
    return column[SET.node_ptr[place] : SET.node_ptr[place + 1]]


def assert_same_spectrum(ours: tuple[Tensor, Tensor], edges: Tensor, nodes: int) -> None:
    """Equal values, and equal projectors onto each eigenspace that is there as a whole."""
    vectors, values = ours
    every_vector, every_value = laplacian_spectrum(edges, nodes, max(nodes, 1))
    asked = values.shape[1]
    kept = min(nodes, asked)
    assert torch.isnan(vectors).equal(torch.isnan(values))
    assert torch.isnan(values[:, kept:]).all()
    assert torch.allclose(values[:, :kept], every_value[:, :kept], atol=2e-6)
    gram = vectors[:, :kept].T @ vectors[:, :kept]
    assert torch.allclose(gram, torch.eye(kept), atol=1e-5)
    for value in every_value[:1, :kept].unique():
        # equal numbers come out of the solver a rounding apart
        same = (every_value[0] - value).abs() < 1e-5 if nodes else every_value[:, 0] > 0
        if same[kept:].any():
            continue
        truth, found = every_vector[:, same], vectors[:, same[:asked].nonzero().flatten()]
        assert torch.allclose(found @ found.T, truth @ truth.T, atol=2e-4)


@pytest.mark.parametrize("dense_up_to", [512, 10], ids=["dense", "sparse"])
@pytest.mark.parametrize("frequencies", [1, 4, 10, 40])
def test_spectra_are_those_of_each_graph(
    monkeypatch: pytest.MonkeyPatch, dense_up_to: int, frequencies: int
) -> None:
    monkeypatch.setattr(spectrum, "DENSE_UP_TO", dense_up_to)
    vectors, values = spectrum.laplacian_spectra(SET, frequencies)
    for place, (edges, nodes) in enumerate(GRAPHS.values()):
        assert_same_spectrum((rows_of(vectors, place), rows_of(values, place)), edges, nodes)


@pytest.mark.parametrize(
    "graph",
    [
        networkx.star_graph(350),
        networkx.star_graph(700),
        networkx.complete_graph(300),
        networkx.complete_bipartite_graph(130, 160),
        networkx.random_regular_graph(4, 600, seed=0),
        networkx.grid_2d_graph(18, 18),
        networkx.path_graph(350),
        networkx.disjoint_union(networkx.star_graph(300), networkx.path_graph(290)),
        networkx.barabasi_albert_graph(350, 1, seed=0),
        networkx.empty_graph(70),
    ],
    ids=[
        "star",
        "large star",
        "complete",
        "bipartite",
        "regular",
        "grid",
        "path",
        "two parts",
        "hubs",
        "no edges",
    ],
)
def test_the_sparse_solver_finds_every_copy_of_an_eigenvalue(graph: networkx.Graph) -> None:
    edges, nodes = edges_of(graph)
    values, vectors = smallest_eigenpairs(edges.numpy(), nodes, 10, dense_up_to=60)
    repeated = torch.from_numpy(values).float().expand(nodes, 10)
    assert_same_spectrum((torch.from_numpy(vectors).float(), repeated), edges, nodes)


def test_spectra_are_the_same_each_time_on_any_number_of_threads() -> None:
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(spectrum.laplacian_spectra(SET, 6))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    once, again = found
    for one, other in zip(once, again, strict=True):
        assert torch.equal(one.nan_to_num(9), other.nan_to_num(9))


def test_no_eigenvalue_is_below_zero() -> None:
    graphs = laid_end_to_end([random_graph(20, 60, seed) for seed in range(50)])
    _, values = spectrum.laplacian_spectra(graphs, 4)
    assert values.min() >= 0


@pytest.mark.parametrize("width", [512, 7], ids=["at once", "by columns"])
def test_walks_are_those_of_each_graph(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr("graphmamba.data.precompute.WALK_COLUMNS", width)
    monkeypatch.setattr("graphmamba.data.precompute.WALK_ENTRIES", 600)
    returns = add_precomputed(SET, Precompute(walks=6)).nodes["random_walk"]
    for place, (edges, nodes) in enumerate(GRAPHS.values()):
        truth = return_probabilities(edges, nodes, 6)
        assert torch.allclose(rows_of(returns, place), truth, atol=1e-6)


@pytest.mark.parametrize("dense_up_to", [512, 10], ids=["dense", "sparse"])
def test_centralities_are_those_of_each_graph(
    monkeypatch: pytest.MonkeyPatch, dense_up_to: int
) -> None:
    monkeypatch.setattr("graphmamba.data.centralities.DENSE_UP_TO", dense_up_to)
    scores = add_precomputed(SET, Precompute(has_centrality=True)).nodes["centrality"]
    for place, (edges, nodes) in enumerate(GRAPHS.values()):
        truth = eigenvector_centrality(edges, nodes)
        assert torch.allclose(rows_of(scores, place), truth, atol=1e-5)


def test_communities_and_degree_profiles_are_those_of_each_graph() -> None:
    asked = Precompute(has_clusters=True, degree_profile="unbiased")
    nodes_of_set = add_precomputed(SET, asked).nodes
    biased = add_precomputed(SET, Precompute(degree_profile="biased")).nodes["degree_profile"]
    for place, (edges, nodes) in enumerate(GRAPHS.values()):
        assert torch.equal(
            rows_of(nodes_of_set["cluster"], place), louvain_communities(edges, nodes)
        )
        truth = local_degree_profile(edges, nodes)
        assert torch.allclose(rows_of(nodes_of_set["degree_profile"], place), truth, atol=1e-6)
        truth = local_degree_profile(edges, nodes, is_unbiased=False)
        assert torch.allclose(rows_of(biased, place), truth, atol=1e-6)


def test_expanders_are_those_of_each_graph_and_of_its_number() -> None:
    expander = add_precomputed(SET, Precompute(expander_degree=3, seed=5)).pairs["expander_index"]
    for place, (_, nodes) in enumerate(GRAPHS.values()):
        own_seed = int(draw_bits(torch.tensor(5), torch.tensor(place)))
        truth = expander_edges(nodes, 3, torch.Generator().manual_seed(own_seed))
        assert torch.equal(expander.index[:, expander.ptr[place] : expander.ptr[place + 1]], truth)


def test_expanders_of_a_batch_are_those_of_a_set() -> None:
    graphs = [Data(edge_index=edges, num_nodes=nodes) for edges, nodes in GRAPHS.values()]
    state = torch.get_rng_state()
    for seed in (0, 5):
        asked = Precompute(expander_degree=3, seed=seed)
        batch = add_columns(Batch.from_data_list(graphs), asked)
        expander = add_precomputed(SET, asked).pairs["expander_index"]
        for place, graph in enumerate(batch.to_data_list()):
            truth = expander.index[:, expander.ptr[place] : expander.ptr[place + 1]]
            assert torch.equal(graph.expander_index, truth)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("seed", range(3))
def test_the_gap_is_the_same_by_both_ways(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    edges = expander_edges(150, 2, generator)
    falls_apart = torch.cat([edges, edges + 150], dim=1)
    with monkeypatch.context() as patched:
        patched.setattr(expander, "DENSE_UP_TO", 300)
        dense = spectral_gap(edges, 150), spectral_gap(falls_apart, 300)
    monkeypatch.setattr(expander, "DENSE_UP_TO", 20)
    assert spectral_gap(edges, 150) == pytest.approx(dense[0], abs=1e-5)
    assert spectral_gap(falls_apart, 300) == pytest.approx(dense[1], abs=1e-5)


def test_only_what_is_asked_for_is_computed_and_the_rest_stays() -> None:
    column = torch.ones(int(SET.node_ptr[-1]), 2)
    with_x = GraphColumns(SET.node_ptr, SET.edge_ptr, SET.edge_index, nodes={"x": column})
    assert add_precomputed(with_x, Precompute()).nodes == {"x": column}
    done = add_precomputed(with_x, Precompute(frequencies=2))
    assert set(done.nodes) == {"x", "laplacian_vectors", "laplacian_values"}
    assert not done.pairs
    assert set(with_x.nodes) == {"x"}


EVERYTHING = Precompute(4, 3, 2, True, True, "unbiased")


def test_a_set_without_graphs_has_columns_without_rows() -> None:
    done = add_precomputed(laid_end_to_end([]), EVERYTHING)
    assert {len(rows) for rows in done.nodes.values()} == {0}
    assert done.pairs["expander_index"].index.shape == (2, 0)


def test_columns_have_the_names_and_types_of_a_single_graph() -> None:
    graph = Data(edge_index=GRAPHS["sparse"][0], num_nodes=30)
    alone = add_columns(graph, EVERYTHING)
    together = add_precomputed(laid_end_to_end([GRAPHS["sparse"]]), EVERYTHING)
    for name, rows in together.nodes.items():
        assert alone[name].shape == rows.shape
        assert alone[name].dtype == rows.dtype
    assert set(alone.keys()) - set(graph.keys()) == {*together.nodes, *together.pairs}


def test_parts_ask_for_the_same_columns_one_by_one() -> None:
    asked = Precompute(4, 3, 2, True, True, "unbiased", seed=7)
    together = {}
    for name, part in asked.parts().items():
        assert set(part.recipe()) == {name}
        together |= part.recipe()
    assert together == asked.recipe()
    assert Precompute().parts() == {}


def test_recipes_name_what_is_asked_for_and_nothing_else() -> None:
    assert Precompute().recipe() == {}
    assert set(Precompute(frequencies=4).recipe()) == {"laplacian"}
    assert "seed" not in json.dumps(Precompute(walks=4, seed=3).recipe())
    recipe = EVERYTHING.recipe()
    assert json.loads(json.dumps(recipe)) == recipe
    assert len(recipe) == 6
    variants = [
        Precompute(frequencies=5), Precompute(frequencies=4), Precompute(walks=4),
        Precompute(expander_degree=4), Precompute(expander_degree=4, seed=1),
        Precompute(degree_profile="biased"), Precompute(degree_profile="unbiased"),
    ]  # fmt: skip
    assert len({json.dumps(variant.recipe()) for variant in variants}) == len(variants)
