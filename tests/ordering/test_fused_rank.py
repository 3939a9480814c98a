"""Kernels that order steps by comparing them, held to a sort."""

import torch

from graphmamba.data.topology import Topology
from graphmamba.ordering import OrderPolicy
from graphmamba.ordering.line_up import _find_groups, _join, _keys, _sort
from tests.helpers.graphs import random_topology
from tests.helpers.processes import needs_triton, only_interpreted, run_apart

LAYERS, SAMPLES = 3, 2


def assert_ranks_are_a_sort(policy: OrderPolicy, topology: Topology) -> None:
    from graphmamba.ordering.fused_rank import find_boundaries, rank_words

    steps = SAMPLES * topology.batch.shape[0]
    groups = LAYERS * SAMPLES * topology.num_graphs * policy.bins
    words = _join(_keys(policy, topology, SAMPLES, range(LAYERS)))
    [(values, number)] = words
    order, ascending = _sort(words, topology, steps)
    ours = rank_words(values, topology, steps)
    assert torch.equal(ours[0], order)
    assert torch.equal(ours[1], ascending)
    rest = number // groups
    rows = find_boundaries(ascending, groups, rest, LAYERS, groups // LAYERS + 1)
    for row, truth in zip(rows, _find_groups(ascending, groups, rest, steps, LAYERS), strict=True):
        assert torch.equal(row, truth)


def assert_interpreted_kernels_sort() -> None:
    topology = random_topology((70, 1, 130, 0, 3, 64))
    # Without noise nearly all nodes tie.
    for policy in (OrderPolicy(), OrderPolicy(noise="none"), OrderPolicy(bins=3)):
        assert_ranks_are_a_sort(policy, topology)
    assert_ranks_are_a_sort(OrderPolicy(bins=2), random_topology((0, 0)))
    assert_ranks_are_a_sort(OrderPolicy(bins=2), random_topology((0, 5, 0)))


@only_interpreted
def test_interpreted_kernels_order_steps_as_a_sort_does() -> None:
    run_apart(
        "from tests.ordering.test_fused_rank import assert_interpreted_kernels_sort\n"
        "assert_interpreted_kernels_sort()\n",
        TRITON_INTERPRET="1",
    )


@needs_triton
def test_graphs_too_large_to_compare_all_nodes_are_sorted() -> None:
    from graphmamba.ordering.fused_rank import is_ranked

    few, many = random_topology((100, 200)), random_topology((9_000, 1))
    assert is_ranked(16, few)
    assert not is_ranked(16, many)
