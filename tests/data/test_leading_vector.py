"""The leading eigenvector by Lanczos' method."""

import networkx
import numpy as np
import pytest

from graphmamba.data.leading_vector import leading_vector

SMALL_WORLD = networkx.connected_watts_strogatz_graph(150, 4, 0.3, seed=0)
GRAPHS = {
    "two nodes": networkx.path_graph(2),
    "path": networkx.path_graph(300),
    "star": networkx.star_graph(200),
    "complete": networkx.complete_graph(300),
    "regular": networkx.random_regular_graph(4, 200, seed=0),
    "grid": networkx.grid_2d_graph(15, 15),
    "hubs": networkx.barabasi_albert_graph(300, 1, seed=0),
    "falls apart": networkx.gnp_random_graph(300, 0.005, seed=1),
    "two alike": networkx.disjoint_union(SMALL_WORLD, SMALL_WORLD),
    "others that lead alike": networkx.disjoint_union_all(
        [networkx.star_graph(4), networkx.cycle_graph(5), networkx.complete_graph(3)] * 9
    ),
    "nearly alike": networkx.disjoint_union(networkx.path_graph(100), networkx.path_graph(101)),
    "two ends": networkx.barbell_graph(20, 60),
    "a loop": networkx.Graph([(0, 1), (1, 1), (1, 2)]),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_it_is_what_leads_of_the_vector_of_ones(graph: networkx.Graph) -> None:
    adjacency = networkx.to_numpy_array(graph)
    values, vectors = np.linalg.eigh(adjacency)
    leads = vectors[:, values >= values[-1] - 1e-9]
    truth = leads @ leads.sum(axis=0)
    pairs = np.stack(adjacency.nonzero())
    found = leading_vector(pairs, len(graph))
    assert found is not None
    # the paths differ by 2e-5 in their eigenvalues, which rounding is divided by
    assert np.abs(found - truth).max() <= 1e-9
    assert np.array_equal(found, leading_vector(pairs, len(graph)))
