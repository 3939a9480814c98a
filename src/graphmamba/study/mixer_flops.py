"""Closed formulas for the mixers as they run here: only what happens between nodes is padded."""

from torch import nn

from graphmamba.stack.attention import Attention
from graphmamba.stack.big_bird import BigBird
from graphmamba.stack.exphormer import ExphormerAttention
from graphmamba.stack.graph_mamba_mixer import GraphMambaMixer
from graphmamba.stack.mamba_block import MambaBlock, SelectivePath
from graphmamba.stack.performer import Performer
from graphmamba.study.batch_size import BatchSize
from graphmamba.study.flop_terms import dropped, linear, pointwise
from graphmamba.study.flops import Flops
from graphmamba.study.operator_flops.costs import NORM, SCORE, SOFTMAX
from graphmamba.study.operator_flops.scan import conv_step_flops, scan_step_flops

SPARSE_BLOCKS = 5
"""Blocks that one of BigBird's attends to beside the random ones: both ends, itself, both sides."""


def _selective_path(path: SelectivePath, steps: int) -> Flops:
    inner, state = path.A_log.shape
    each = conv_step_flops(path.options.width) + scan_step_flops(state)
    flops = linear(steps, path.x_proj) + linear(steps, path.dt_proj)
    return flops + Flops(scan=steps * inner * each) + pointwise(2 * inner * state)


def mamba(block: MambaBlock, nodes: int, samples: int = 1) -> Flops:
    """Both projections once for each node, the way between them once for each line-up."""
    steps, inner = nodes * samples, block.D.shape[0]
    flops = linear(nodes, block.in_proj) + _selective_path(block, steps)
    if block.way_back is not None:
        flops += _selective_path(block.way_back, steps) + pointwise(2 * steps * inner)
    average = pointwise(steps * inner if samples > 1 else 0)
    return flops + average + linear(nodes, block.out_proj)


def graph_mamba(mixer: GraphMambaMixer, size: BatchSize) -> Flops:
    """Mamba over the nodes."""
    samples = mixer.policy.samples(mixer.training)
    return input_norm(mixer, size.nodes) + mamba(mixer.mamba, size.nodes, samples)


def input_norm(mixer: GraphMambaMixer, rows: int) -> Flops:
    """The norm before the projections, where there is one."""
    numbers = rows * mixer.mamba.in_proj.in_features
    return pointwise(NORM * numbers if isinstance(mixer.norm, nn.LayerNorm) else 0)


def attention(mixer: Attention, size: BatchSize) -> Flops:
    """Rows of nodes are projected, and attend in the padded batch."""
    d, scores = mixer.out_proj.in_features, size.slots * size.longest
    flops = linear(size.nodes, mixer.in_proj) + linear(size.nodes, mixer.out_proj)
    flops += Flops(products=4 * scores * d) + pointwise(SCORE * scores * mixer.heads)
    return flops + dropped(scores * mixer.heads, mixer.dropout, mixer)


def performer(mixer: Performer, size: BatchSize) -> Flops:
    """Rows of nodes are projected, and meet in the padded batch."""
    features, width = mixer.projection.shape
    rows = size.slots * mixer.heads
    flops = linear(size.nodes, mixer.in_proj) + linear(size.nodes, mixer.out_proj)
    # Features of queries and keys; keys with values, queries with both sums.
    flops += Flops(products=2 * rows * features * (4 * width + 1))
    # Scaling, square and its sum, twice, and the quotient; maximum and four more for the
    # exponential of each feature, twice, and the keys' sum.
    flops += pointwise(7 * rows * width, 11 * rows * features, 2 * rows)
    return flops + dropped(size.nodes * mixer.out_proj.out_features, mixer.dropout, mixer)


def big_bird(mixer: BigBird, size: BatchSize) -> Flops:
    """Every graph has blocks of its own; those at its ends attend node by node."""
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


def exphormer_attention(mixer: ExphormerAttention, rows: int, pairs: int, edge_rows: int) -> Flops:
    """Attention of `rows` along `pairs`, for which `edge_rows` are mapped."""
    d = mixer.edges.in_features
    flops = linear(rows, mixer.nodes) + linear(edge_rows, mixer.edges)
    # Two products and a sum for the score, weighing and summing the values; scaling, clamp,
    # exponential and sum of the weights; the quotient.
    return flops + pointwise(5 * pairs * d, 4 * pairs * mixer.heads, rows * (d + mixer.heads))
