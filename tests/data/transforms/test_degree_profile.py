"""Degrees of nodes and around them."""

import torch
from torch_geometric.data import Data

from graphmamba.data.transforms.degree_profile import degree_profiles
from tests.helpers.graphs import graph_columns


def test_degree_profile_by_hand() -> None:
    # 0 -> 1, 0 -> 2, 1 -> 0; out-degrees 2, 1, 0; node 3 stands alone
    edges = torch.tensor([[0, 0, 1], [1, 2, 0]])
    expected = [
        [2, 0, 1, 0.5, 0.5**0.5],
        [1, 2, 2, 2, 0],
        [0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0],
    ]
    assert torch.allclose(degree_profiles(graph_columns((edges, 4))), torch.tensor(expected))


def test_biased_degree_profile_is_that_of_pyg() -> None:
    from torch_geometric.transforms import LocalDegreeProfile

    edges = torch.randint(9, (2, 30), generator=torch.Generator().manual_seed(0))
    theirs = LocalDegreeProfile()(Data(edge_index=edges, num_nodes=9)).x
    ours = degree_profiles(graph_columns((edges, 9)), is_unbiased=False)
    assert torch.allclose(ours, theirs, atol=1e-5)
