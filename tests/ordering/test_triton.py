"""Kernels that write sort keys and order tokens, held to the keys that they join and to a sort."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from graphmamba.data.batch import Topology
from graphmamba.ordering import OrderPolicy
from graphmamba.ordering.permutation import (
    BIN_BITS,
    NOISE_BITS,
    _find_groups,
    _join,
    _keys,
    _sort,
    node_key,
)
from tests.helpers.graphs import random_topology, with_columns
from tests.helpers.processes import needs_triton

POLICIES = (
    OrderPolicy(),
    OrderPolicy(bins=3),
    OrderPolicy(bins=2, bin_assignment="modulo"),
    OrderPolicy(noise="none"),
    OrderPolicy(score="none"),
    OrderPolicy(score="none", bins=2, noise="none"),
    OrderPolicy(score="eigenvector", noise="none"),
)


def cases() -> Iterator[tuple[OrderPolicy, Topology]]:
    topology = random_topology((70, 1, 30, 0, 3))
    known = replace(topology, ptr=topology.starts(), edge_layout=topology.lay_out())
    for policy in POLICIES:
        yield policy, known
    yield OrderPolicy(bins=2), with_columns(topology, graph_key=None)
    yield OrderPolicy(noise="none"), replace(topology, seed=None)
    yield OrderPolicy(), replace(topology, seed=torch.tensor(-(2**63)))
    yield OrderPolicy(), random_topology((0,))


def check_words() -> None:
    from graphmamba.ordering.triton import join_words

    for policy, topology in cases():
        [(word, _)] = _join(_keys(policy, topology, 2, range(3, 6)))
        score = None if policy.score == "none" else node_key(policy, topology)
        assert torch.equal(join_words(policy, topology, score, 2, range(3, 6)), word), policy


@needs_triton
def test_the_kernel_takes_as_many_bits() -> None:
    from graphmamba.ordering import triton_kernels as kernels

    assert (kernels.BIN_BITS.value, kernels.NOISE_BITS.value) == (BIN_BITS, NOISE_BITS)


LAYERS, SAMPLES = 3, 2


def assert_ranks_are_a_sort(policy: OrderPolicy, topology: Topology) -> None:
    from graphmamba.ordering.triton import find_boundaries, rank_words

    tokens = SAMPLES * topology.batch.shape[0]
    groups = LAYERS * SAMPLES * topology.num_graphs * policy.bins
    words = _join(_keys(policy, topology, SAMPLES, range(LAYERS)))
    [(values, number)] = words
    order, ascending = _sort(words, topology, tokens)
    ours = rank_words(values, topology, tokens)
    assert torch.equal(ours[0], order)
    assert torch.equal(ours[1], ascending)
    rest = number // groups
    rows = find_boundaries(ascending, groups, rest, LAYERS, groups // LAYERS + 1)
    for row, truth in zip(rows, _find_groups(ascending, groups, rest, tokens, LAYERS), strict=True):
        assert torch.equal(row, truth)


def check_interpreted() -> None:
    check_words()
    topology = random_topology((35, 1, 66, 0, 3, 32))
    # Without noise nearly all nodes tie.
    for policy in (OrderPolicy(), OrderPolicy(noise="none"), OrderPolicy(bins=3)):
        assert_ranks_are_a_sort(policy, topology)
    assert_ranks_are_a_sort(OrderPolicy(bins=2), random_topology((0, 0)))
    assert_ranks_are_a_sort(OrderPolicy(bins=2), random_topology((0, 5, 0)))


@needs_triton
def test_graphs_too_large_to_compare_all_nodes_are_sorted() -> None:
    from graphmamba.ordering.triton import is_ranked

    few, many = random_topology((100, 200)), random_topology((9_000, 1))
    assert is_ranked(16, few)
    assert not is_ranked(16, many)
