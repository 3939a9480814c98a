"""Random regular graphs."""

import math

import pytest
import torch
from torch import Tensor

from graphmamba.data.transforms import expander
from graphmamba.data.transforms.expander import expander_edges, spectral_gap


@pytest.mark.parametrize("degree", [3, 5])
def test_every_node_has_twice_the_degree(degree: int) -> None:
    edges = expander_edges(40, degree, torch.Generator().manual_seed(0))
    for side in edges:
        assert side.bincount(minlength=40).tolist() == [2 * degree] * 40


def test_gap_nears_the_best_possible() -> None:
    edges = expander_edges(60, 5, torch.Generator().manual_seed(0))
    assert spectral_gap(edges, 60) >= 10 - 2 * math.sqrt(9) - 0.1


def test_the_best_draw_is_kept_where_none_is_good_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    gaps, drawn = [0.1, 0.3, 0.2] + [0.0] * 97, []

    def judge(edges: Tensor, _: int) -> float:
        drawn.append(edges)
        return gaps[len(drawn) - 1]

    monkeypatch.setattr(expander, "spectral_gap", judge)
    assert expander_edges(20, 3) is drawn[1]
    assert len(drawn) == 100


@pytest.mark.parametrize("nodes", [0, 1, 2, 10])
def test_small_graphs_get_all_pairs(nodes: int) -> None:
    edges = expander_edges(nodes, 5)
    assert edges.shape == (2, nodes * (nodes - 1))
    assert not (edges[0] == edges[1]).any()


@pytest.mark.parametrize("ring", [2, 40, 150])
def test_gap_of_two_parts_is_zero(ring: int) -> None:
    one = torch.stack([torch.arange(ring), (torch.arange(ring) + 1) % ring])
    both = torch.cat([one, one.flip(0), one + ring, one.flip(0) + ring], dim=1)
    assert spectral_gap(both, 2 * ring) == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("nodes", [20, 250])
def test_loops_count_in_the_degrees_alone(nodes: int) -> None:
    source, generator = torch.arange(nodes).repeat(2), torch.Generator().manual_seed(0)
    fixed = torch.cat([torch.arange(4), 4 + torch.randperm(nodes - 4, generator=generator)])
    target = torch.cat([fixed, torch.randperm(nodes, generator=generator)])
    edges = torch.cat([torch.stack([source, target]), torch.stack([target, source])], dim=1)
    joined = edges[:, edges[0] != edges[1]]
    adjacency = torch.zeros(nodes, nodes).double()
    adjacency.index_put_(tuple(joined), torch.ones(joined.shape[1]).double(), accumulate=True)
    gap = torch.linalg.eigvalsh(4 * torch.eye(nodes) - adjacency)[1]
    cancelled = torch.linalg.eigvalsh(torch.diag(adjacency.sum(dim=1)) - adjacency)[1]
    assert spectral_gap(edges, nodes) == pytest.approx(float(gap), abs=1e-5)
    assert gap > cancelled + 1e-3


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
