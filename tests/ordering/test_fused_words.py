"""The kernel that writes what steps are sorted by, held to the keys that it joins."""

from collections.abc import Iterator
from dataclasses import replace

import torch

from graphmamba.data.topology import Topology
from graphmamba.ordering import OrderPolicy
from graphmamba.ordering.line_up import BIN_BITS, _join, _keys
from graphmamba.ordering.scores import NOISE_BITS, node_key
from tests.helpers.graphs import random_topology
from tests.helpers.processes import needs_triton, only_interpreted, run_apart

POLICIES = (
    OrderPolicy(),
    OrderPolicy(bins=3),
    OrderPolicy(bins=2, deal="modulo"),
    OrderPolicy(noise="none"),
    OrderPolicy(key="none"),
    OrderPolicy(key="none", bins=2, noise="none"),
    OrderPolicy(key="eigenvector", noise="none"),
)


def cases() -> Iterator[tuple[OrderPolicy, Topology]]:
    topology = random_topology((70, 1, 30, 0, 3))
    known = replace(topology, ptr=topology.starts(), edge_layout=topology.lay_out())
    for policy in POLICIES:
        yield policy, known
    yield OrderPolicy(bins=2), replace(topology, graph_key=None)
    yield OrderPolicy(noise="none"), replace(topology, seed=None)
    yield OrderPolicy(), replace(topology, seed=torch.tensor(-(2**63)))
    yield OrderPolicy(), random_topology((0,))


def assert_interpreted_kernel_joins_alike() -> None:
    from graphmamba.ordering.fused_words import join_words

    for policy, topology in cases():
        [(word, _)] = _join(_keys(policy, topology, 2, range(3, 6)))
        score = None if policy.key == "none" else node_key(policy, topology)
        assert torch.equal(join_words(policy, topology, score, 2, range(3, 6)), word), policy


@only_interpreted
def test_the_interpreted_kernel_writes_the_same_words() -> None:
    run_apart(
        "from tests.ordering.test_fused_words import assert_interpreted_kernel_joins_alike\n"
        "assert_interpreted_kernel_joins_alike()\n",
        TRITON_INTERPRET="1",
    )


@needs_triton
def test_the_kernel_takes_as_many_bits() -> None:
    from graphmamba.ordering import fused_words_kernels as kernels

    assert (kernels.BIN_BITS.value, kernels.NOISE_BITS.value) == (BIN_BITS, NOISE_BITS)
