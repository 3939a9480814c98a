"""One sort that orders the nodes of all graphs, in all bins, for all samples and layers."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Int, Int32
from torch import Tensor

from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.ops.backends import uses_triton
from graphmamba.ops.random import draw_bits, take_bits
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.ordering.scores import (
    NOISE_BITS,
    TIE_BITS,
    SortKey,
    is_sure,
    node_key,
    noise_key,
    score_keys,
)

BIN_BITS = 32
WORD_BITS = 63
ALIGNED = 4
"""Boundaries in 16 bytes."""
CLUSTER_STREAM = -2
"""Sets the draws of clusters apart from those of nodes."""
MOST_TOKENS = 1 << 22
"""Tokens of one sort, at most: beyond, it takes memory, and what it spares no longer counts."""


@dataclass(frozen=True)
class NodeOrder:
    """Sequences laid end to end: sequence `i` is tokens `cu_seqlens[i]` to `cu_seqlens[i + 1]`."""

    order: Int[Tensor, " tokens"] | None
    """Slot of each token, `sample * nodes + node`; none if every token is its own slot."""
    cu_seqlens: Int32[Tensor, " boundaries"]
    """Where the sequences (sample, graph, bin), in this order, begin and end."""
    samples: int
    """Node orders of the whole batch, one behind the other."""


Request = tuple[OrderPolicy, int, int]
"""Policy, samples and layer."""


def order_nodes(
    policy: OrderPolicy, topology: Topology, *, samples: int = 1, layer: int = 0
) -> NodeOrder:
    """Order every graph's nodes `samples` times.

    The draws depend on the seed, the layer, the sample, the graph's key and the node's place in
    its graph, on nothing else: neither the device nor the other graphs of the batch matter. No
    shape depends on the data, and nothing is read back from the device.
    """
    return order_layers(policy, topology, samples=samples, layers=range(layer, layer + 1))[0]


def order_layers(
    policy: OrderPolicy, topology: Topology, *, samples: int = 1, layers: range
) -> list[NodeOrder]:
    """Order for several layers by one sort; each gets what `order_nodes` would give it."""
    check_given(policy, topology.columns)
    starts = topology.starts()
    topology = replace(topology, ptr=starts)
    if policy.is_identity:
        return [NodeOrder(None, _repeat(starts, samples), samples)] * len(layers)
    groups = len(layers) * samples * topology.num_graphs * policy.bins
    words = _words_by_kernel(policy, topology, samples, layers)
    if words is None:
        words = _join(_keys(policy, topology, samples, layers))
    tokens = samples * topology.batch.shape[0]
    order, word = _sort(words, topology, tokens)
    if policy.bins == 1:
        boundaries = [_repeat(starts, samples)] * len(layers)
    else:
        # The group is the first digit: each begins where the other digits can only be 0.
        boundaries = _find_groups(word, groups, words[0][1] // max(groups, 1), tokens, len(layers))
    orders = order.view(len(layers), tokens).unbind()
    return [NodeOrder(*each, samples) for each in zip(orders, boundaries, strict=True)]


def node_orders_of(requests: Iterable[Request], topology: Topology) -> dict[Request, NodeOrder]:
    """Make the node orders that layers will ask for."""
    layers: dict[tuple[OrderPolicy, int], set[int]] = defaultdict(set)
    for policy, samples, layer in requests:
        layers[policy, samples].add(layer)
    made: dict[Request, NodeOrder] = {}
    for (policy, samples), numbers in layers.items():
        most = max(MOST_TOKENS // max(samples * topology.batch.shape[0], 1), 1)
        for run in _runs(sorted(numbers), most):
            orders = order_layers(policy, topology, samples=samples, layers=run)
            made |= {
                (policy, samples, layer): each for layer, each in zip(run, orders, strict=True)
            }
    return made


def _runs(numbers: Sequence[int], most: int) -> Iterator[range]:
    """Divide ascending numbers into runs without gaps, of `most` at most."""
    first = 0
    for place in range(1, len(numbers) + 1):
        is_end = place == len(numbers) or numbers[place] != numbers[place - 1] + 1
        if is_end or place - first == most:
            yield range(numbers[first], numbers[place - 1] + 1)
            first = place


def check_given(
    policy: OrderPolicy, columns: Mapping[str, Tensor], prefix: str = "topology."
) -> None:
    """Reject a batch that lacks what the policy reads; a message has `prefix` before the name."""
    for name, reader in policy.columns.items():
        if columns.get(name) is None:
            raise UserError(f"{prefix}{name} must be given for {reader}, got None")


def _keys(policy: OrderPolicy, topology: Topology, samples: int, layers: range) -> list[SortKey]:
    """What tokens are sorted by, lines (layer, sample) being rows; the group comes first."""
    device, lines = topology.batch.device, len(layers) * samples
    nodes = torch.arange(topology.batch.shape[0], device=device)
    place = (nodes - topology.starts()[topology.batch]).expand(lines, -1)  # [lines, nodes]
    streams = _streams(policy, topology, samples, layers)
    bits = draw_bits(streams[:, topology.batch], place)

    groups = lines * topology.num_graphs * policy.bins
    group = torch.arange(lines, device=device)[:, None] * topology.num_graphs + topology.batch
    if policy.bins > 1:
        group = group * policy.bins + _bins_of(policy, place, bits)
    score = score_keys(policy, topology, bits, streams)
    cluster = _cluster_keys(policy, topology, streams)
    inner = [*cluster, *score] if policy.clusters == "first" else [*score, *cluster]
    parted = TIE_BITS.get(policy.score, NOISE_BITS)
    ties = [noise_key(bits, parted)] if policy.noise == "tie_breaking" else []
    return [(group, groups), *inner, *ties]


def _streams(
    policy: OrderPolicy, topology: Topology, samples: int, layers: range
) -> Int[Tensor, "lines graphs"]:
    """One stream of random bits for each layer and sample of each graph."""
    device = topology.batch.device
    sample = torch.arange(samples, device=device)
    layer = torch.arange(layers.start, layers.stop, device=device)[:, None]
    key = topology.columns.get("graph_key")
    if key is None:
        key = sample.new_zeros(topology.num_graphs)
    seed = _seed(policy, topology)
    if seed is None:
        seed = sample.new_zeros(())
    return draw_bits(draw_bits(draw_bits(seed, layer), sample).view(-1, 1), key)


def _seed(policy: OrderPolicy, topology: Topology) -> Int[Tensor, ""] | None:
    if topology.seed is None and policy.is_random:
        raise UserError("topology.seed must be given for a random order, got None")
    return topology.seed


def _bins_of(
    policy: OrderPolicy, place: Int[Tensor, "lines nodes"], bits: Int[Tensor, "lines nodes"]
) -> Int[Tensor, "lines nodes"]:
    """Bin of each node; random ones come from bits that the noise does not read."""
    if policy.bin_assignment == "modulo":
        return place % policy.bins
    return (take_bits(bits, 0, BIN_BITS) * policy.bins) >> BIN_BITS


def _cluster_keys(
    policy: OrderPolicy, topology: Topology, streams: Int[Tensor, "lines graphs"]
) -> list[SortKey]:
    """Keys that keep clusters together; where there is noise, in a random order of clusters."""
    if policy.clusters == "none":
        return []
    cluster = topology.columns["cluster"]
    if cluster.is_floating_point():
        raise UserError(f"topology.cluster must hold integers, got {cluster.dtype}")
    cluster = cluster.long()
    # A number may be any; its rank among all is below the node count, and parts clusters that
    # drew alike.
    rank = torch.searchsorted(cluster.sort().values, cluster)
    number: SortKey = (rank.expand(streams.shape[0], -1), topology.batch.shape[0] + 1)
    if policy.noise == "none":
        return [number]
    apart = draw_bits(streams, CLUSTER_STREAM)[:, topology.batch]
    return [noise_key(draw_bits(apart, cluster.expand(streams.shape[0], -1))), number]


def _join(keys: Sequence[SortKey]) -> list[SortKey]:
    """Write keys, the most significant first, as digits of one 64-bit number as long as they fit.

    What does not fit, or may not where a model is exported, begins a further number.
    """
    words: list[SortKey] = []
    for values, number in keys:
        if words and is_sure(words[-1][1] * number < 1 << WORD_BITS):
            word, numbers = words.pop()
            words.append((word * number + values, numbers * number))
        else:
            words.append((values, number))
    return words


def _words_by_kernel(
    policy: OrderPolicy, topology: Topology, samples: int, layers: range
) -> list[SortKey] | None:
    """Return what `_join` makes of `_keys`, by one kernel; None where that cannot be."""
    is_plain = policy.clusters == "none" and policy.score != "spectral" and not policy.is_blurred
    if not is_plain or not uses_triton("auto", topology.batch.device):
        return None
    _seed(policy, topology)
    score = None if policy.score == "none" else node_key(policy, topology)
    numbers = len(layers) * samples * topology.num_graphs * policy.bins
    numbers *= score[1] if score else 1
    numbers <<= NOISE_BITS if policy.noise == "tie_breaking" else 0
    if numbers >= 1 << WORD_BITS:
        return None
    from graphmamba.ordering.triton import join_words

    return [(join_words(policy, topology, score, samples, layers), numbers)]


def _sort(
    words: Sequence[SortKey], topology: Topology, tokens: int
) -> tuple[Int[Tensor, " all_tokens"], Int[Tensor, " all_tokens"]]:
    """Stable order by several keys, the first the most significant, and that one sorted.

    Slots are counted in layers of `tokens` tokens.
    """
    values, _ = words[-1]
    if len(words) == 1 and uses_triton("auto", values.device):
        from graphmamba.ordering.triton import is_ranked, rank_words

        if is_ranked(values.shape[0], topology):
            return rank_words(values, topology, tokens)
    word, order = torch.sort(values.flatten(), stable=True)
    # Keys after the first are sorted before it, since a stable sort keeps what it finds.
    for earlier, _ in reversed(words[:-1]):
        word, place = torch.sort(earlier.flatten()[order], stable=True)
        order = order[place]
    is_single = values.numel() == tokens
    return order if is_single else order % tokens, word


def _repeat(starts: Int[Tensor, " boundaries"], samples: int) -> Int32[Tensor, " all_boundaries"]:
    """Boundaries of all graphs, sample after sample."""
    if samples == 1:
        return starts.int()
    shift = torch.arange(samples, device=starts.device)[:, None] * starts[-1]
    return torch.cat([(starts[:-1] + shift).flatten(), starts[-1:] * samples]).int()


def _find_groups(
    word: Int[Tensor, " all_tokens"], groups: int, rest: int, tokens: int, layers: int
) -> list[Int32[Tensor, " boundaries"]]:
    """Boundaries of the groups of each layer, from the sorted words."""
    own = groups // layers
    # Rows of a multiple of 16 bytes: kernels need not be compiled for others too.
    width = own + 1 if layers == 1 else (own // ALIGNED + 1) * ALIGNED
    if uses_triton("auto", word.device):
        from graphmamba.ordering.triton import find_boundaries

        rows = find_boundaries(word, groups, rest, layers, width)
        return [row[: own + 1] for row in rows.unbind()]
    layer = torch.arange(layers, device=word.device)[:, None]
    group = (layer * own + torch.arange(width, device=word.device)).clamp_max(groups)
    found = torch.searchsorted(word, group * rest, out_int32=True)
    shifted = found if layers == 1 else found - layer.int() * tokens
    return [row[: own + 1] for row in shifted.unbind()]
