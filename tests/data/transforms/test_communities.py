"""Communities by Louvain's method."""

import networkx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.data.transforms.communities import louvain_communities


def of_networkx(edges: Tensor, nodes: int, seed: int) -> list[int]:
    graph = networkx.Graph()
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(edges.T.tolist())
    community = [0] * nodes
    for number, members in enumerate(networkx.community.louvain_communities(graph, seed=seed)):
        for node in members:
            community[node] = number
    return community


@given(nodes=st.integers(1, 40), share=st.floats(0, 4), seed=st.integers(0, 1000))
def test_they_are_those_of_networkx(nodes: int, share: float, seed: int) -> None:
    # loops and repeats among them
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(nodes, (2, int(share * nodes)), generator=generator)
    assert louvain_communities(edges, nodes, seed).tolist() == of_networkx(edges, nodes, seed)


@pytest.mark.parametrize("size", [30, 400])
def test_several_levels_are_those_of_networkx(size: int) -> None:
    graph = networkx.random_geometric_graph(size, 1.5 * size**-0.5, seed=0)
    edges = torch.tensor(list(graph.edges)).T
    both = torch.cat([edges, edges.flip(0)], dim=1)
    assert louvain_communities(both, size).tolist() == of_networkx(both, size, seed=0)


@pytest.mark.parametrize("nodes", [0, 1, 3, 100])
def test_without_edges_each_node_is_its_own(nodes: int) -> None:
    edges = torch.empty(2, 0, dtype=torch.int64)
    assert louvain_communities(edges, nodes).tolist() == list(range(nodes))
