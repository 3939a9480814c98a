"""What nodes are sorted by, as integers that sort alike on every device."""

import torch
from jaxtyping import Float32, Float64, Int
from torch import Tensor

from graphmamba.data.batch import Topology
from graphmamba.ops.random import draw_bits, take_bits
from graphmamba.ordering.policy import OrderPolicy

NOISE_BITS = 28
NORMAL_TERMS = 12
FLOAT_BITS = 32
MOST_DEGREES = 1 << 32
"""Degrees that a program tells apart which is exported for any number of edges: with the noise, and
up to seven samples, they fit into one word."""
FLATTEST = 1e-8
"""Eigenvalues below it count as 0. Theirs are functions that are constant on each part of a graph,
with coefficients so large that parts without an edge between them nearly always follow one
another."""
TIE_BITS = {"spectral": 20}
"""Bits that shuffle tied nodes, fewer where ties are rare: so all keys fit into one word."""
SPECTRAL_STREAM = -3
"""Sets the draws of low-frequency functions apart from those of nodes and clusters."""
SortKey = tuple[Int[Tensor, "lines nodes"], int]
"""Values and their number: all lie in range(number). A line is a sample of a layer."""
NodeKey = tuple[Int[Tensor, " nodes"], int]
"""The same for all lines."""


def out_degree(topology: Topology) -> Int[Tensor, " nodes"]:
    """Edges that leave each node, self-loops and repeated edges counted."""
    if topology.edge_layout is not None:
        return topology.edge_layout.source_ptr.diff()
    source = topology.edge_index[0]
    degree = torch.zeros_like(topology.batch, dtype=torch.int64)
    return degree.scatter_add(0, source, torch.ones_like(source, dtype=torch.int64))


def node_key(policy: OrderPolicy, topology: Topology) -> NodeKey:
    """Sort key for the score of `policy` as it is, without noise."""
    if policy.score == "degree":
        # No float holds degree and noise exactly: they stay two keys.
        degree, number = out_degree(topology), topology.edge_index.shape[1] + 1
        if torch.compiler.is_exporting() and not is_sure(number <= MOST_DEGREES):
            return degree.long().clamp_max(MOST_DEGREES - 1), MOST_DEGREES
        return degree, number
    return _as_sortable(_score(policy, topology).float()), 1 << FLOAT_BITS


def score_keys(
    policy: OrderPolicy,
    topology: Topology,
    bits: Int[Tensor, "lines nodes"],
    streams: Int[Tensor, "lines graphs"],
) -> list[SortKey]:
    """Sort keys for the score of `policy`, without those that break its ties.

    Args:
        policy: The rule.
        topology: The batch.
        bits: Random bits of each node in each line.
        streams: What random bits of each graph are drawn from.
    """
    if policy.score == "none":
        return []
    if policy.score == "spectral":
        field = _low_frequency(policy.num_eigenvectors, topology, streams)
        return [(_as_sortable(field.float()), 1 << FLOAT_BITS)]
    if not policy.is_blurred:
        values, number = node_key(policy, topology)
        return [(values.expand_as(bits), number)]
    score = _score(policy, topology)
    width = policy.noise_width * _deviation(policy, topology, score)
    noise = _uniform(bits) if policy.noise == "uniform" else _normal(bits)
    return [(_as_sortable((score + width * noise).float()), 1 << FLOAT_BITS)]


def _score(policy: OrderPolicy, topology: Topology) -> Float64[Tensor, " nodes"]:
    if policy.score == "degree":
        return out_degree(topology).double()
    if policy.score == "eigenvector":
        return topology.columns["centrality"].double()
    # Rows are few numbers wide; added up one by one, they round alike everywhere.
    columns = topology.columns["random_walk"].double().unbind(dim=1)
    return -sum(columns, start=torch.zeros_like(columns[0]))


def _low_frequency(
    num_eigenvectors: int, topology: Topology, streams: Int[Tensor, "lines graphs"]
) -> Float64[Tensor, "lines nodes"]:
    """A random function on each graph, drawn again for each line.

    It is a Gaussian free field, the part of it that the lowest eigenvectors of the Laplacian
    span: normal coefficients over the root of the eigenvalue. Its law is the same whatever signs
    they have, and whatever basis where an eigenvalue repeats, unless only some of its
    eigenvectors are among the few.
    """
    vectors = topology.columns["laplacian_vectors"][:, :num_eigenvectors]
    values = topology.columns["laplacian_values"][:, :num_eigenvectors]
    # graphs of few nodes have fewer vectors than columns
    waves = (vectors.double() / values.double().clamp_min(FLATTEST).sqrt()).nan_to_num(0.0)
    apart = draw_bits(streams, SPECTRAL_STREAM)
    numbers = torch.arange(waves.shape[1], device=waves.device)
    drawn = _normal(draw_bits(apart.reshape(-1, 1), numbers))
    coefficients = drawn.view(*streams.shape, waves.shape[1]).unbind(dim=2)
    score = waves.new_zeros(streams.shape[0], waves.shape[0])
    # added up one by one, they round alike everywhere
    for coefficient, wave in zip(coefficients, waves.unbind(dim=1), strict=True):
        score = score + coefficient.index_select(1, topology.batch) * wave
    # What all nodes of a graph have in common is large, and would cost the rest its digits.
    return score - score.index_select(1, topology.starts()[topology.batch])


def _deviation(
    policy: OrderPolicy, topology: Topology, score: Float64[Tensor, " nodes"]
) -> Float64[Tensor, " nodes"]:
    """Standard deviation of the score over its graph or the batch, given to each node.

    Sums are taken over integers, which, unlike floats, add up to the same number in any order.
    Nodes of a padding graph do not count.
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
    # One node has no spread, an empty graph no nodes: neither divides by zero.
    variance = (squares - total * total / count.clamp_min(1)) / (count - 1).clamp_min(1)
    return (variance.clamp_min(0).sqrt() / resolution)[group]


def _uniform(bits: Int[Tensor, "lines nodes"]) -> Float64[Tensor, "lines nodes"]:
    """Uniform in [0, 1), from the bits that break ties elsewhere."""
    return noise_key(bits)[0].double() / (1 << NOISE_BITS)


def _normal(bits: Int[Tensor, "*shape"]) -> Float64[Tensor, "*shape"]:
    """Twelve uniform numbers less six: normal enough, and without logarithms that round apart."""
    terms = torch.arange(NORMAL_TERMS, device=bits.device)
    whole, _ = noise_key(draw_bits(bits.reshape(-1, 1), terms))
    return whole.sum(dim=1).view_as(bits).double() / (1 << NOISE_BITS) - NORMAL_TERMS / 2


def noise_key(bits: Int[Tensor, "*shape"], count: int = NOISE_BITS) -> SortKey:
    """Sort key that shuffles what all keys before it leave tied."""
    return take_bits(bits, 64 - count, count), 1 << count


def _as_sortable(score: Float32[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Integers in range(2**32) that sort as the numbers do."""
    # Zero has two signs, which must not tell equal scores apart.
    bits = (score + 0.0).view(torch.int32).long()
    # Negative numbers have their magnitude in the low bits, where more must come to mean less.
    return torch.where(bits < 0, -bits - 1, bits + (1 << (FLOAT_BITS - 1)))


def is_sure(fact: bool) -> bool:
    """Tell whether a fact about sizes holds; in an export, whether it does for all of them.

    To ask for more would limit the exported program to sizes that are like those of its example.
    """
    if not torch.compiler.is_exporting():
        return fact
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(fact)
