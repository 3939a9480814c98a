"""One sort that lines up the nodes of all graphs, in all bins, for all samples."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int, Int32
from torch import Tensor

from graphmamba.data.random_bits import draw_bits, take_bits
from graphmamba.data.topology import Topology
from graphmamba.errors import UserError
from graphmamba.order.policy import OrderPolicy
from graphmamba.order.scores import SortKey, noise_key, score_keys

BIN_BITS = 32
WORD_BITS = 63


@dataclass(frozen=True)
class LineUp:
    """Sequences laid end to end: sequence `i` is steps `cu_seqlens[i]` to `cu_seqlens[i + 1]`."""

    order: Int[Tensor, " steps"] | None
    """Slot of each step, `sample * nodes + node`; none if every step is its own slot."""
    cu_seqlens: Int32[Tensor, " boundaries"]
    """Where the sequences (sample, graph, bin), in this order, begin and end."""
    samples: int
    """Line-ups of the whole batch, one behind the other."""


def line_up(policy: OrderPolicy, topology: Topology, *, samples: int = 1, layer: int = 0) -> LineUp:
    """Line up every graph's nodes `samples` times.

    The draws depend on the seed, the layer, the sample, the graph's key and the node's place in
    its graph, on nothing else: neither the device nor the other graphs of the batch matter. No
    shape depends on the data, and nothing is read back from the device.
    """
    device = topology.batch.device
    starts = torch.searchsorted(
        topology.batch, torch.arange(topology.num_graphs + 1, device=device)
    )
    if policy.is_identity:
        return LineUp(None, _repeat(starts, samples), samples)
    nodes = torch.arange(topology.batch.shape[0], device=device)
    place = (nodes - starts[topology.batch]).expand(samples, -1)  # [samples, nodes]
    streams = _streams(policy, topology, samples, layer)
    bits = draw_bits(streams[:, topology.batch], place)

    groups = samples * topology.num_graphs * policy.bins
    group = torch.arange(samples, device=device)[:, None] * topology.num_graphs + topology.batch
    if policy.bins > 1:
        group = group * policy.bins + _deal(policy, place, bits)
    score = score_keys(policy, topology, bits)
    cluster = _cluster_keys(policy, topology, streams)
    inner = [*cluster, *score] if policy.clusters == "first" else [*score, *cluster]
    ties = [noise_key(bits)] if policy.noise == "ties" else []
    order = _sort([(group, groups), *inner, *ties])
    if policy.bins == 1:
        return LineUp(order, _repeat(starts, samples), samples)
    return LineUp(order, _count(group.flatten(), groups), samples)


def _streams(
    policy: OrderPolicy, topology: Topology, samples: int, layer: int
) -> Int[Tensor, "samples graphs"]:
    """One stream of random bits for each sample of each graph."""
    sample = torch.arange(samples, device=topology.batch.device)[:, None]
    key = topology.graph_key
    if key is None:
        key = sample.new_zeros(topology.num_graphs)
    seed = topology.seed
    if seed is None:
        if policy.is_random:
            raise UserError("topology.seed must be given for a random order, got None")
        seed = sample.new_zeros(())
    return draw_bits(draw_bits(draw_bits(seed, layer), sample), key)


def _deal(
    policy: OrderPolicy, place: Int[Tensor, "samples nodes"], bits: Int[Tensor, "samples nodes"]
) -> Int[Tensor, "samples nodes"]:
    """Bin of each node; random ones come from bits that the noise does not read."""
    if policy.deal == "modulo":
        return place % policy.bins
    return (take_bits(bits, 0, BIN_BITS) * policy.bins) >> BIN_BITS


def _cluster_keys(
    policy: OrderPolicy, topology: Topology, streams: Int[Tensor, "samples graphs"]
) -> list[SortKey]:
    """Keys that keep clusters together; where there is noise, in a random order of clusters."""
    if policy.clusters == "none":
        return []
    if topology.cluster is None:
        raise UserError(
            f"topology.cluster must be given for clusters={policy.clusters!r}, got None"
        )
    cluster = topology.cluster.long().expand(streams.shape[0], -1)
    # A cluster's number is below its graph's node count; it parts clusters that drew alike.
    number: SortKey = (cluster, topology.batch.shape[0] + 1)
    if policy.noise == "none":
        return [number]
    # A stream of its own, so that clusters and nodes do not share their draws.
    apart = draw_bits(streams, -2)[:, topology.batch]
    return [noise_key(draw_bits(apart, cluster)), number]


def _sort(keys: Sequence[SortKey]) -> Int[Tensor, " steps"]:
    """Stable order by several keys, the first the most significant.

    Keys are written as digits of one 64-bit number as long as they fit, which takes one sort;
    what does not fit is sorted before, since a stable sort keeps it.
    """
    words: list[tuple[Tensor, int]] = []
    for values, number in keys:
        if words and words[-1][1] * number < 1 << WORD_BITS:
            word, numbers = words.pop()
            words.append((word * number + values, numbers * number))
        else:
            words.append((values, number))
    order = torch.argsort(words[-1][0].flatten(), stable=True)
    for word, _ in reversed(words[:-1]):
        order = order[torch.argsort(word.flatten()[order], stable=True)]
    return order


def _repeat(starts: Int[Tensor, " boundaries"], samples: int) -> Int32[Tensor, " all_boundaries"]:
    """Boundaries of all graphs, sample after sample."""
    shift = torch.arange(samples, device=starts.device)[:, None] * starts[-1]
    return torch.cat([(starts[:-1] + shift).flatten(), starts[-1:] * samples]).int()


def _count(group: Int[Tensor, " steps"], groups: int) -> Int32[Tensor, " boundaries"]:
    """Boundaries from the group of each step."""
    counts = group.new_zeros(groups + 1)
    return counts.scatter_add(0, group + 1, torch.ones_like(group)).cumsum(0).int()
