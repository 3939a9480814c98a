"""Node orders: one sort by integer keys orders all graphs, bins, samples and layers.

Scores and noise become integers that are the same on all devices.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float32, Float64, Int, Int32
from torch import Tensor

from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.ops.backends import uses_triton
from graphmamba.ops.random import draw_bits, take_bits
from graphmamba.ordering.policy import OrderPolicy

BIN_BITS = 32
WORD_BITS = 63
ALIGNED = 4  # entries of `cu_seqlens` in 16 bytes
MOST_TOKENS = 1 << 22  # of one sort; with more, layers are sorted one by one to save memory
CLUSTER_STREAM, SPECTRAL_STREAM = -2, -3  # random streams, different from those of nodes
NOISE_BITS = 28
NORMAL_TERMS = 12
FLOAT_BITS = 32
# Bound on degrees for torch.export, where the number of edges is unknown: degree, noise and up to
# seven samples fit into one 64-bit word.
MOST_DEGREES = 1 << 32
# Smaller eigenvalues count as 0. Their eigenvectors are constant on each connected component; their
# coefficients are so large that the nodes of a component nearly always stay together.
FLATTEST = 1e-8
TIE_BITS = {"spectral": 20}  # fewer than NOISE_BITS, since ties are rare: keys fit into one word
SortKey = tuple[Int[Tensor, "lines nodes"], int]  # keys, exclusive bound; line: sample of a layer
NodeKey = tuple[Int[Tensor, " nodes"], int]  # keys that all lines share, exclusive bound


@dataclass(frozen=True)
class NodeOrder:
    """Packed sequences: sequence `i` is tokens `cu_seqlens[i]` to `cu_seqlens[i + 1]`."""

    order: Int[Tensor, " tokens"] | None
    """Index `sample * nodes + node` of each token; None if nodes keep their order."""
    cu_seqlens: Int32[Tensor, " boundaries"]
    """Boundaries of the sequences, by sample, graph and bin."""
    samples: int
    """Number of orders of the whole batch, one after another."""


Request = tuple[OrderPolicy, int, int]  # policy, number of samples, index of the layer


def order_nodes(
    policy: OrderPolicy, topology: Topology, *, samples: int = 1, layer: int = 0
) -> NodeOrder:
    """Order the nodes of every graph `samples` times.

    Random numbers depend only on the seed, the layer, the sample, the key of the graph and the
    index of the node in its graph, not on the device or on other graphs. Shapes do not depend on
    values, and no GPU is synchronised.
    """
    return order_layers(policy, topology, samples=samples, layers=range(layer, layer + 1))[0]


def order_layers(
    policy: OrderPolicy, topology: Topology, *, samples: int = 1, layers: range
) -> list[NodeOrder]:
    """Order the nodes for several layers in one sort; same results as `order_nodes`."""
    check_given(policy, topology.columns)
    if topology.seed is None and policy.is_random:
        raise UserError("topology.seed must be given for a random order, got None")
    starts = topology.starts()
    topology = replace(topology, ptr=starts)
    tokens = samples * topology.batch.shape[0]
    if policy.bins == 1:
        every = starts
        if samples > 1:  # the boundaries of all graphs, sample after sample
            shift = torch.arange(samples, device=starts.device)[:, None] * starts[-1]
            every = torch.cat([(starts[:-1] + shift).flatten(), starts[-1:] * samples])
        boundaries = [every.int()] * len(layers)
        if policy.is_identity:
            return [NodeOrder(None, each, samples) for each in boundaries]
    groups = len(layers) * samples * topology.num_graphs * policy.bins
    words = _words_by_kernel(policy, topology, samples, layers)
    if words is None:
        words = _join(_keys(policy, topology, samples, layers))
    order, word = _sort(words, topology, tokens)
    if policy.bins > 1:
        # The group is the most significant key: group g begins at the first word >= g * rest.
        boundaries = _find_groups(word, groups, words[0][1] // max(groups, 1), tokens, len(layers))
    orders = order.view(len(layers), tokens).unbind()
    return [NodeOrder(*each, samples) for each in zip(orders, boundaries, strict=True)]


def node_orders_of(requests: Iterable[Request], topology: Topology) -> dict[Request, NodeOrder]:
    """Compute the requested node orders."""
    layers: dict[tuple[OrderPolicy, int], set[int]] = defaultdict(set)
    for policy, samples, layer in requests:
        layers[policy, samples].add(layer)
    computed: dict[Request, NodeOrder] = {}
    for (policy, samples), numbers in layers.items():
        every = range(min(numbers), max(numbers) + 1)
        are_many = len(every) * samples * topology.batch.shape[0] > MOST_TOKENS
        for run in [range(number, number + 1) for number in numbers] if are_many else [every]:
            orders = order_layers(policy, topology, samples=samples, layers=run)
            for layer, each in zip(run, orders, strict=True):
                computed[policy, samples, layer] = each
    return computed


def check_given(
    policy: OrderPolicy, columns: Mapping[str, Tensor], prefix: str = "topology."
) -> None:
    """Reject a batch without the columns that the policy reads."""
    for name, reader in policy.columns.items():
        if columns.get(name) is None:
            raise UserError(f"{prefix}{name} must be given for {reader}, got None")


def _keys(policy: OrderPolicy, topology: Topology, samples: int, layers: range) -> list[SortKey]:
    """Sort keys of the tokens, most significant (the group) first; a line per layer and sample."""
    device, lines = topology.batch.device, len(layers) * samples
    # One random stream per layer, sample and graph, one draw per node.
    zeros = torch.zeros(topology.num_graphs + 1, dtype=torch.int64, device=device)
    seed = zeros[0] if topology.seed is None else topology.seed
    graph_key = topology.columns.get("graph_key", zeros[1:])
    layer = torch.arange(layers.start, layers.stop, device=device)[:, None]
    sample = torch.arange(samples, device=device)
    draws = draw_bits(draw_bits(seed, layer), sample).view(-1, 1)
    streams = draw_bits(draws, graph_key)  # [lines, graphs]
    nodes = torch.arange(topology.batch.shape[0], device=device)
    place = (nodes - topology.starts()[topology.batch]).expand(lines, -1)  # [lines, nodes]
    bits = draw_bits(streams[:, topology.batch], place)

    groups = lines * topology.num_graphs * policy.bins
    group = torch.arange(lines, device=device)[:, None] * topology.num_graphs + topology.batch
    if policy.bins > 1:
        if policy.bin_assignment == "modulo":
            bins = place % policy.bins
        else:  # from bits that are not used for noise
            bins = (take_bits(bits, 0, BIN_BITS) * policy.bins) >> BIN_BITS
        group = group * policy.bins + bins
    keys = [(group, groups)]
    if policy.clusters == "first":
        keys += _cluster_keys(policy, topology, streams)
    if policy.score != "none":
        keys.append(score_key(policy, topology, bits, streams))
    if policy.clusters == "tie_breaking":
        keys += _cluster_keys(policy, topology, streams)
    if policy.noise == "tie_breaking":
        keys.append(noise_key(bits, TIE_BITS.get(policy.score, NOISE_BITS)))
    return keys


def _cluster_keys(
    policy: OrderPolicy, topology: Topology, streams: Int[Tensor, "lines graphs"]
) -> list[SortKey]:
    """Sort keys that keep clusters together, in random order if there is noise."""
    cluster = topology.columns["cluster"]
    if cluster.is_floating_point():
        raise UserError(f"topology.cluster must hold integers, got {cluster.dtype}")
    cluster = cluster.long()
    # Cluster numbers are arbitrary; their rank is below the number of nodes. It separates clusters
    # with equal random keys.
    rank = torch.searchsorted(cluster.sort().values, cluster)
    number: SortKey = (rank.expand(streams.shape[0], -1), topology.batch.shape[0] + 1)
    if policy.noise == "none":
        return [number]
    apart = draw_bits(streams, CLUSTER_STREAM)[:, topology.batch]
    return [noise_key(draw_bits(apart, cluster.expand(streams.shape[0], -1))), number]


def _join(keys: Sequence[SortKey]) -> list[SortKey]:
    """Pack keys, the most significant first, into as few 64-bit words as possible.

    A key that does not fit, or in an exported program might not fit, starts another word.
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
    """`_join(_keys(...))` by one Triton kernel; None if it does not apply."""
    is_plain = policy.clusters == "none" and policy.score != "spectral" and not policy.is_blurred
    if not is_plain or not uses_triton("auto", topology.batch.device):
        return None
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
    """Stable sort by several words, the most significant first.

    Returns indices within each layer of `tokens` tokens, and the first word, sorted.
    """
    values, _ = words[-1]
    if len(words) == 1 and uses_triton("auto", values.device):
        from graphmamba.ordering.triton import is_ranked, rank_words

        if is_ranked(values.shape[0], topology):
            return rank_words(values, topology, tokens)
    word, order = torch.sort(values.flatten(), stable=True)
    # Sort by the least significant word first: stable sorts keep the order of equal keys.
    for earlier, _ in reversed(words[:-1]):
        word, place = torch.sort(earlier.flatten()[order], stable=True)
        order = order[place]
    is_single = values.numel() == tokens
    return order if is_single else order % tokens, word


def _find_groups(
    word: Int[Tensor, " all_tokens"], groups: int, rest: int, tokens: int, layers: int
) -> list[Int32[Tensor, " boundaries"]]:
    """Boundaries of the sequences of each layer, from the sorted words."""
    own = groups // layers
    # Rows are aligned to 16 bytes, so that Triton compiles kernels for aligned pointers only.
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


def out_degree(topology: Topology) -> Int[Tensor, " nodes"]:
    """Out-degree of each node, with self-loops and repeated edges."""
    if topology.edge_layout is not None:
        return topology.edge_layout.source_ptr.diff()
    source = topology.edge_index[0]
    degree = torch.zeros_like(topology.batch, dtype=torch.int64)
    return degree.scatter_add(0, source, torch.ones_like(source, dtype=torch.int64))


def node_key(policy: OrderPolicy, topology: Topology) -> NodeKey:
    """Sort key of the score, without noise."""
    if policy.score == "degree":
        # A separate key from the noise, since a float cannot represent their sum exactly.
        degree, number = out_degree(topology), topology.edge_index.shape[1] + 1
        if torch.compiler.is_exporting() and not is_sure(number <= MOST_DEGREES):
            return degree.long().clamp_max(MOST_DEGREES - 1), MOST_DEGREES
        return degree, number
    return _as_sortable(_score(policy, topology).float()), 1 << FLOAT_BITS


def score_key(
    policy: OrderPolicy,
    topology: Topology,
    bits: Int[Tensor, "lines nodes"],
    streams: Int[Tensor, "lines graphs"],
) -> SortKey:
    """Sort key of the score, with `uniform` or `normal` noise but without tie-breaking."""
    if policy.score == "spectral":
        field = _low_frequency(policy.num_eigenvectors, topology, streams)
        return _as_sortable(field.float()), 1 << FLOAT_BITS
    if not policy.is_blurred:
        values, number = node_key(policy, topology)
        return values.expand_as(bits), number
    score = _score(policy, topology)
    width = policy.noise_width * _deviation(policy, topology, score)
    if policy.noise == "uniform":  # in [0, 1), from the bits of tie-breaking
        noise = noise_key(bits)[0].double() / (1 << NOISE_BITS)
    else:
        noise = _normal(bits)
    return _as_sortable((score + width * noise).float()), 1 << FLOAT_BITS


def _score(policy: OrderPolicy, topology: Topology) -> Float64[Tensor, " nodes"]:
    if policy.score == "degree":
        return out_degree(topology).double()
    if policy.score == "eigenvector":
        return topology.columns["centrality"].double()
    # Columns are added one by one, for the same rounding on all devices.
    columns = topology.columns["random_walk"].double().unbind(dim=1)
    return -sum(columns, start=torch.zeros_like(columns[0]))


def _low_frequency(
    num_eigenvectors: int, topology: Topology, streams: Int[Tensor, "lines graphs"]
) -> Float64[Tensor, "lines nodes"]:
    """Random low-frequency function on each graph, new for each line.

    A Gaussian free field restricted to the lowest Laplacian eigenvectors: normal coefficients
    divided by the square root of the eigenvalue. Its distribution does not depend on the signs of
    eigenvectors, nor on the basis of a repeated eigenvalue unless it is cut.
    """
    vectors = topology.columns["laplacian_vectors"][:, :num_eigenvectors]
    values = topology.columns["laplacian_values"][:, :num_eigenvectors]
    # graphs of few nodes have NaN in some columns
    waves = (vectors.double() / values.double().clamp_min(FLATTEST).sqrt()).nan_to_num(0.0)
    apart = draw_bits(streams, SPECTRAL_STREAM)
    numbers = torch.arange(waves.shape[1], device=waves.device)
    drawn = _normal(draw_bits(apart.reshape(-1, 1), numbers))
    coefficients = drawn.view(*streams.shape, waves.shape[1]).unbind(dim=2)
    score = waves.new_zeros(streams.shape[0], waves.shape[0])
    # added one by one, for the same rounding on all devices
    for coefficient, wave in zip(coefficients, waves.unbind(dim=1), strict=True):
        score = score + coefficient.index_select(1, topology.batch) * wave
    # The constant part is large and would cost digits in float32.
    return score - score.index_select(1, topology.starts()[topology.batch])


def _deviation(
    policy: OrderPolicy, topology: Topology, score: Float64[Tensor, " nodes"]
) -> Float64[Tensor, " nodes"]:
    """Standard deviation of the score over its graph or the batch, for each node.

    Sums are over integers, so they do not depend on the order of summation. Nodes of a padding
    graph are left out.
    """
    resolution = 1 if policy.score == "degree" else 1 << 16
    whole = (score * resolution).round().long()
    over_batch = policy.noise_scope == "batch"
    group = torch.zeros_like(topology.batch) if over_batch else topology.batch
    sums = whole.new_zeros(3, 1 if over_batch else topology.num_graphs)
    is_real = torch.ones_like(whole)
    if topology.num_real_nodes is not None:
        nodes = torch.arange(whole.shape[0], device=whole.device)
        is_real = (nodes < topology.num_real_nodes).long()
    values = torch.stack([is_real, whole * is_real, whole * whole * is_real])
    count, total, squares = sums.index_add(1, group, values).double()
    variance = (squares - total * total / count.clamp_min(1)) / (count - 1).clamp_min(1)
    return (variance.clamp_min(0).sqrt() / resolution)[group]


def _normal(bits: Int[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """Nearly normal numbers: the sum of twelve uniform ones, minus six; exact on every device."""
    terms = torch.arange(NORMAL_TERMS, device=bits.device)
    whole, _ = noise_key(draw_bits(bits.reshape(-1, 1), terms))
    return whole.sum(dim=1).view_as(bits).double() / (1 << NOISE_BITS) - NORMAL_TERMS / 2


def noise_key(bits: Int[Tensor, "*shape"], count: int = NOISE_BITS) -> SortKey:
    """Random sort key that breaks ties of the keys before it."""
    return take_bits(bits, 64 - count, count), 1 << count


def _as_sortable(score: Float32[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Integers in range(2**32) in the order of the scores."""
    bits = (score + 0.0).view(torch.int32).long()  # -0.0 + 0.0 is 0.0
    # Invert negative numbers, whose bits are sign and magnitude.
    return torch.where(bits < 0, -bits - 1, bits + (1 << (FLOAT_BITS - 1)))


def is_sure(fact: bool) -> bool:
    """Whether a condition on sizes holds; in `torch.export`, whether it holds for all sizes.

    A plain test would limit the exported program to sizes for which it has the same result.
    """
    if not torch.compiler.is_exporting():
        return fact
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(fact)
