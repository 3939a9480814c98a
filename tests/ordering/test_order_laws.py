"""Laws of orders that a look at single orders does not show."""

from dataclasses import replace

import torch

from graphmamba.ordering.permutation import order_nodes
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.ordering.scores import _deviation, _smooth, out_degree
from tests.ordering.test_permutation import path, random_topology, sequences, with_spectrum


def test_waves_are_as_large_as_one_over_the_root_of_their_eigenvalue() -> None:
    topology = with_spectrum(path(12), [12], num_eigenvectors=6)
    drawn = _smooth(6, topology, torch.arange(4000)[:, None])
    vectors, values = topology.laplacian_vectors.double(), topology.laplacian_values[0].double()
    # what all nodes have in common is taken away, which the first wave alone has
    sizes = (drawn @ vectors)[:, 1:].std(dim=0) * values[1:].sqrt()
    torch.testing.assert_close(sizes, torch.ones(5).double(), rtol=0.06, atol=0.0)


def test_clusters_go_before_the_score() -> None:
    topology = random_topology((60,))
    degree = out_degree(topology)
    line = order_nodes(OrderPolicy(score="degree", clusters="first"), topology, samples=4)
    falls = 0
    for slots in sequences(line, 60):
        cluster = topology.cluster[slots % 60]
        runs = torch.unique_consecutive(cluster).tolist()
        assert len(runs) == len(set(runs)) == 3
        for each in runs:
            assert (degree[slots % 60][cluster == each].diff() >= 0).all()
        falls += int((degree[slots % 60].diff() < 0).sum())
    # where the score went first, it would never fall
    assert falls > 0


def test_noise_is_as_wide_as_the_deviation_of_a_sample() -> None:
    edges = torch.tensor([[0, 0, 0, 1, 2], [1, 2, 3, 2, 3]])
    topology = replace(random_topology((4,)), edge_index=edges, edge_layout=None)
    degree = out_degree(topology).double()
    found = _deviation(OrderPolicy(noise="normal"), topology, degree)
    torch.testing.assert_close(found, degree.std(correction=1).expand(4))


def test_nodes_of_a_padding_graph_do_not_count_for_the_deviation() -> None:
    edges = torch.tensor([[0, 0, 0, 1, 2, 4, 4, 4, 4], [1, 2, 3, 2, 3, 5, 5, 5, 5]])
    topology = replace(random_topology((4, 2)), edge_index=edges, edge_layout=None)
    padded = replace(topology, num_real_nodes=torch.tensor(4))
    degree = out_degree(topology).double()
    whole_batch = OrderPolicy(noise="normal", noise_scope="batch")
    found = _deviation(whole_batch, padded, degree)
    torch.testing.assert_close(found, degree[:4].std(correction=1).expand(6))
