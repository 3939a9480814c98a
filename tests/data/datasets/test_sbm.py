"""CLUSTER and PATTERN drawn by their recipe."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphmamba.data.datasets import sbm
from graphmamba.data.datasets.sbm import LARGEST, SMALLEST, generate_cluster, generate_pattern
from graphmamba.data.tables import GraphColumns

SIZES = (200, 20, 30)
DRAWS = [generate_cluster, generate_pattern]


def graph_of(columns: GraphColumns, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Adjacency, signal and label of one graph."""
    nodes = slice(*columns.node_ptr[number : number + 2].tolist())
    edges = columns.edge_index[:, slice(*columns.edge_ptr[number : number + 2].tolist())]
    size = nodes.stop - nodes.start
    adjacency = torch.zeros(size, size, dtype=torch.int64)
    adjacency.index_put_((edges[0], edges[1]), torch.tensor(1), accumulate=True)
    return adjacency, columns.nodes["x"][nodes].argmax(dim=1), columns.nodes["y"][nodes]


@pytest.mark.parametrize("draw", DRAWS)
def test_graphs_are_simple_and_in_three_parts(draw: Callable[..., GraphColumns]) -> None:
    columns = draw(SIZES, seed=1)
    assert columns.split.bincount().tolist() == list(SIZES)
    assert torch.equal(columns.nodes["x"].sum(dim=1), torch.ones(int(columns.node_ptr[-1])))
    for number in (0, 130, 249):
        adjacency, _, _ = graph_of(columns, number)
        assert torch.equal(adjacency, adjacency.T)
        assert adjacency.max() == 1
        assert not adjacency.diagonal().any()


@pytest.mark.parametrize("draw", DRAWS)
def test_a_seed_gives_the_same_graphs_on_any_number_of_threads(
    draw: Callable[..., GraphColumns], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sbm, "CHUNK", 3)
    threads, drawn = torch.get_num_threads(), []
    for count in (1, 4):
        torch.set_num_threads(count)
        drawn.append(draw((20, 5, 6), seed=2))
    torch.set_num_threads(threads)
    assert torch.equal(drawn[0].edge_index, drawn[1].edge_index)
    for name in ("x", "y"):
        assert torch.equal(drawn[0].nodes[name], drawn[1].nodes[name])
    assert not torch.equal(drawn[0].edge_ptr, draw((20, 5, 6), seed=3).edge_ptr)


def test_each_community_has_one_known_node() -> None:
    columns = generate_cluster((20, 0, 0))
    for number in range(20):
        _, signal, label = graph_of(columns, number)
        sizes = label.bincount(minlength=6)
        assert SMALLEST <= sizes.min() <= sizes.max() <= LARGEST
        assert signal.bincount(minlength=7)[1:].tolist() == [1] * 6
        known = signal > 0
        assert torch.equal(signal[known], label[known] + 1)


def test_edges_have_the_chances_of_the_recipe() -> None:
    columns, inside, between = generate_cluster((60, 0, 0)), [0, 0], [0, 0]
    for number in range(60):
        adjacency, _, label = graph_of(columns, number)
        pairs = torch.combinations(torch.arange(len(label)))
        alike = label[pairs[:, 0]] == label[pairs[:, 1]]
        joined = adjacency[pairs[:, 0], pairs[:, 1]]
        for count, chosen in ((inside, alike), (between, ~alike)):
            count[0] += int(joined[chosen].sum())
            count[1] += int(chosen.sum())
    # more than 50,000 pairs of each kind: 0.01 is over four standard deviations
    assert inside[0] / inside[1] == pytest.approx(0.55, abs=0.01)
    assert between[0] / between[1] == pytest.approx(0.25, abs=0.01)


def test_graphs_share_their_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sbm, "PATTERNS", 3)
    columns = generate_pattern((6, 3, 0))

    def shape_of(number: int) -> tuple[list[int], list[int]]:
        """What random names leave of a pattern: degrees within, and signals."""
        adjacency, signal, label = graph_of(columns, number)
        member = label == 1
        within = adjacency[member][:, member].sum(dim=1)
        return sorted(within.tolist()), sorted(signal[member].tolist())

    shapes = [shape_of(number) for number in range(9)]
    assert shapes[0] == shapes[3] == shapes[6]
    assert shapes[1] == shapes[4] == shapes[7]
    assert shapes[0] != shapes[1]


def test_pattern_and_host_are_joined_at_chance_one_half() -> None:
    columns, joined, pairs = generate_pattern((60, 0, 0)), 0, 0
    for number in range(60):
        adjacency, _, label = graph_of(columns, number)
        block = adjacency[label == 1][:, label == 0]
        joined, pairs = joined + int(block.sum()), pairs + block.numel()
    assert joined / pairs == pytest.approx(0.5, abs=0.01)
