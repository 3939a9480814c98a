"""Closed formulas for the layers: operations of a forward pass, from widths and sizes alone."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from torch import nn

from graphmamba.errors import UserError
from graphmamba.stack.attention import Attention
from graphmamba.stack.big_bird import BigBird
from graphmamba.stack.exphormer import ExphormerAttention, ExphormerStack
from graphmamba.stack.gated_gcn import GatedGCN
from graphmamba.stack.gps_layer import GPSLayer
from graphmamba.stack.graph_mamba_mixer import GraphMambaMixer
from graphmamba.stack.mamba_block import MambaBlock, SelectivePath
from graphmamba.stack.norm import NodeNorm
from graphmamba.stack.performer import Performer
from graphmamba.study.batch_size import BatchSize
from graphmamba.study.flops import Flops
from graphmamba.study.operator_flops.costs import DROPOUT, KNOWN_NORM, NORM, SCORE, SOFTMAX
from graphmamba.study.operator_flops.scan import conv_step_flops, scan_step_flops

SPARSE_BLOCKS = 5
"""Blocks that one of BigBird's attends to beside the random ones: both ends, itself, both sides."""


def layer_flops(layer: nn.Module, size: BatchSize) -> Flops:
    """Operations of one layer of a stack, or of one part of a layer."""
    formula = next((FORMULAS[kind] for kind in type(layer).__mro__ if kind in FORMULAS), None)
    if formula is None:
        known = ", ".join(kind.__name__ for kind in FORMULAS)
        raise UserError(f"layer must be one of {known}, got {type(layer).__name__}")
    return formula(layer, size)


def linear(rows: int, layer: nn.Module) -> Flops:
    """A product; its bias is the value that the sum starts from."""
    own = cast(nn.Linear, layer)
    return Flops(products=2 * rows * own.in_features * own.out_features)


def pointwise(*counts: int) -> Flops:
    """Numbers that pointwise functions return, or sums take in."""
    return Flops(elementwise=sum(counts))


def dropped(numbers: int, rate: float, module: nn.Module) -> Flops:
    """Dropout, which at evaluation or at rate 0 does nothing."""
    return pointwise(DROPOUT * numbers if rate and module.training else 0)


def batch_norm(module: nn.Module) -> int:
    """Cost of a BatchNorm for each number; at evaluation its statistics are known."""
    return NORM if module.training else KNOWN_NORM


def _gated_gcn(local: GatedGCN, size: BatchSize) -> Flops:
    d = local.edges.in_features
    nodes, edges = size.nodes * d, size.edges * d
    # Edges: two sums, sigmoid, product with what is sent, two sums at the target. Nodes: quotient
    # with epsilon, sum. Both: norm, activation, residual.
    flops = linear(size.nodes, local.nodes) + linear(size.edges, local.edges)
    follow = nodes + edges if size.wants_edges else nodes
    flops += pointwise(6 * edges, 3 * nodes, (batch_norm(local) + 2) * follow)
    flops += dropped(follow, local.dropout, local)
    if local.stable_gate is not None:
        first, last = local.stable_gate[0], local.stable_gate[2]
        flops += linear(size.edges, first) + linear(size.edges, last)
        # Squared distance, ReLU, sigmoid, product with the gate.
        flops += pointwise(3 * edges, edges, size.edges, edges)
    return flops


def _selective_path(path: SelectivePath, steps: int) -> Flops:
    inner, state = path.A_log.shape
    each = conv_step_flops(path.options.width) + scan_step_flops(state)
    flops = linear(steps, path.x_proj) + linear(steps, path.dt_proj)
    return flops + Flops(scan=steps * inner * each) + pointwise(2 * inner * state)


def _mamba(block: MambaBlock, nodes: int, samples: int) -> Flops:
    steps, inner = nodes * samples, block.D.shape[0]
    flops = linear(nodes, block.in_proj) + _selective_path(block, steps)
    if block.way_back is not None:
        flops += _selective_path(block.way_back, steps) + pointwise(2 * steps * inner)
    average = pointwise(steps * inner if samples > 1 else 0)
    return flops + average + linear(nodes, block.out_proj)


def _graph_mamba(mixer: GraphMambaMixer, size: BatchSize) -> Flops:
    samples = mixer.policy.samples(mixer.training)
    rows = size.nodes * mixer.mamba.in_proj.in_features
    norm = pointwise(NORM * rows if isinstance(mixer.norm, nn.LayerNorm) else 0)
    return norm + _mamba(mixer.mamba, size.nodes, samples)


def _attention(mixer: Attention, size: BatchSize) -> Flops:
    d, scores = mixer.out_proj.in_features, size.slots * size.longest
    flops = linear(size.nodes, mixer.in_proj) + linear(size.nodes, mixer.out_proj)
    flops += Flops(products=4 * scores * d) + pointwise(SCORE * scores * mixer.heads)
    return flops + dropped(scores * mixer.heads, mixer.dropout, mixer)


def _performer(mixer: Performer, size: BatchSize) -> Flops:
    features, width = mixer.projection.shape
    rows = size.slots * mixer.heads
    flops = linear(size.nodes, mixer.in_proj) + linear(size.nodes, mixer.out_proj)
    # Features of queries and keys; keys with values, queries with both sums.
    flops += Flops(products=2 * rows * features * (4 * width + 1))
    # Scaling, square and its sum, twice, and the quotient; maximum and four more for the
    # exponential of each feature, twice, and the keys' sum.
    flops += pointwise(7 * rows * width, 11 * rows * features, 2 * rows)
    return flops + dropped(size.nodes * mixer.out_proj.out_features, mixer.dropout, mixer)


def _big_bird(mixer: BigBird, size: BatchSize) -> Flops:
    d, block = mixer.out_proj.in_features, mixer.block
    blocks = (size.nodes + (block - 1) * size.graphs) // block
    near = blocks * block * block * (SPARSE_BLOCKS + mixer.random_blocks)
    far = size.nodes * 2 * block
    flops = Flops(products=4 * near * d + 2 * far * d)
    for layer in (mixer.in_proj, mixer.out_proj, mixer.first, mixer.second):
        flops += linear(size.nodes, layer)
    # Scores near and far, values of the far ones weighed and summed; norms, residuals, ReLU.
    flops += pointwise(SCORE * near * mixer.heads, (SOFTMAX + 1) * far * mixer.heads, 2 * far * d)
    rows = size.nodes * d
    return flops + pointwise((2 * NORM + 3) * rows) + dropped(2 * rows, mixer.dropout, mixer)


def _exphormer_attention(
    mixer: ExphormerAttention, size: BatchSize, virtual: int, others: int, kinds: int
) -> Flops:
    d, rows, pairs = mixer.edges.in_features, size.nodes + virtual, size.edges + others
    flops = linear(rows, mixer.nodes) + linear(size.edges + kinds, mixer.edges)
    # Two products and a sum for the score, weighing and summing the values; scaling, clamp,
    # exponential and sum of the weights; the quotient.
    return flops + pointwise(5 * pairs * d, 4 * pairs * mixer.heads, rows * (d + mixer.heads))


def _exphormer(stack: ExphormerStack, size: BatchSize) -> Flops:
    expanders = size.expanders if stack.has_expander else 0
    others = expanders + 2 * stack.virtual_nodes * size.nodes
    virtual, flops = stack.virtual_nodes * size.graphs, Flops()
    for module in stack.layers:
        layer = cast(GPSLayer, module)
        attention = cast(ExphormerAttention, layer.mixer)
        flops += _exphormer_attention(attention, size, virtual, others, stack.kinds.shape[0])
        is_read = size.wants_edges or module is not stack.layers[-1]
        flops += _combine(layer, replace(size, wants_edges=is_read))
    return flops


def _gps(layer: GPSLayer, size: BatchSize) -> Flops:
    mixed = Flops() if layer.mixer is None else layer_flops(layer.mixer, size)
    return mixed + _combine(layer, size)


def _combine(layer: GPSLayer, size: BatchSize) -> Flops:
    """All but the mixer."""
    rows = size.nodes * layer.widen.in_features
    flops = linear(size.nodes, layer.widen) + linear(size.nodes, layer.narrow)
    # The activation of twice as many channels, and the residual of the feed-forward network.
    flops += pointwise(3 * rows) + _norm(layer.norm, rows) + dropped(3 * rows, layer.dropout, layer)
    if layer.local is not None:
        flops += layer_flops(layer.local, size) + _norm(layer.local_norm, rows)
        if not layer.local.has_residual:
            flops += pointwise(rows) + dropped(rows, layer.dropout, layer)
    if layer.mixer is not None:
        flops += pointwise(rows) + _norm(layer.mixer_norm, rows)
        flops += dropped(rows, layer.dropout, layer)
    has_both = layer.local is not None and layer.mixer is not None
    return flops + pointwise(rows if has_both else 0)


def _norm(norm: NodeNorm | None, numbers: int) -> Flops:
    if norm is None or isinstance(norm.norm, nn.Identity):
        return Flops()
    cost = batch_norm(norm) if isinstance(norm.norm, nn.BatchNorm1d) else NORM
    return pointwise(cost * numbers)


FORMULAS: dict[type[nn.Module], Callable[[Any, BatchSize], Flops]] = {
    GatedGCN: _gated_gcn,
    GraphMambaMixer: _graph_mamba,
    Attention: _attention,
    Performer: _performer,
    BigBird: _big_bird,
    ExphormerStack: _exphormer,
    GPSLayer: _gps,
}
