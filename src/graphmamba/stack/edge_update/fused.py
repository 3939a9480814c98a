"""Gated sum, norm of the edges and what follows it on a GPU: which kernels run."""

from typing import NamedTuple

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.encode.batch_norm import fused as norm
from graphmamba.kernel_sizes import starts_early
from graphmamba.line_sums import add_lines
from graphmamba.stack.edge_update.fused_kernels import join_lines_kernel
from graphmamba.stack.gated_sum import fused as gated
from graphmamba.stack.gated_sum.lines import ENDS, Lines
from graphmamba.stack.gated_sum.slopes import Slopes
from graphmamba.stack.gated_sum.tiles import cut

JOINED, CHANNELS, WARPS, UNROLL = 512, 4, 16, 4
"""Lines that a program brings together at a time, channels of them, warps, and times a round. A
thread that has all channels of a line need not ask another one for its count."""
MOST_JOINED = 8192
"""Lines that one program brings together; more come together in two steps."""

Rows = Float[Tensor, "edges channels"]
Channels = Float[Tensor, " channels"]


class Layout(NamedTuple):
    """The tensors of an `EdgeLayout`, as operators take them."""

    edge_index: Int[Tensor, "2 edges"]
    target_ptr: Int[Tensor, " boundaries"]
    target_order: Int[Tensor, " edges"] | None
    source_ptr: Int[Tensor, " boundaries"]
    source_order: Int[Tensor, " edges"]


def forward(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Rows,
    scale: Float[Tensor, " edges"] | None,
    layout: Layout,
    after: Rows | None,
    weight: Channels,
    bias: Channels,
    seed: Int[Tensor, ""] | None,
    real_edges: Int[Tensor, ""] | None,
    real_nodes: Int[Tensor, ""] | None,
    running_mean: Channels,
    running_var: Channels,
    batches: Int[Tensor, ""] | None,
    activation: str,
    rate: float,
    site: int,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x_hat, e_hat, the new edges, what sum and norm keep, and statistics of edges and nodes."""
    lines = _room(nodes.shape[0], edges, real_edges, real_nodes)
    x_hat, e_hat, kept = gated.forward(nodes, edges, scale, *layout[:3], lines=lines)
    sums = _join(lines)
    y, norm_kept = norm.forward(
        *(e_hat, weight, bias, None, after, None, seed, real_edges),
        *(running_mean, running_var, batches, activation, [0.0, rate], [0, site], True),
        *(momentum, eps, sums[0]),
        is_led=True,
    )
    return x_hat, e_hat, y, kept, norm_kept, sums


def backward(
    d_x_hat: Float[Tensor, "nodes channels"],
    grad: Rows,
    e_hat: Rows,
    kept: Float[Tensor, "2 nodes channels"],
    sent: Float[Tensor, "nodes channels"],
    scale: Float[Tensor, " edges"] | None,
    layout: Layout,
    norm_kept: Float[Tensor, "2 channels"],
    weight: Channels,
    bias: Channels,
    seed: Int[Tensor, ""] | None,
    real_edges: Int[Tensor, ""] | None,
    activation: str,
    rate: float,
    site: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of nodes, edges and scale, of shape (0,) if that is None, of weight and bias.

    That of e_hat is nowhere written: who reads it makes it.
    """
    d_weight, d_bias = (norm_kept.new_empty(weight.shape) for _ in range(2))
    if e_hat.numel() == 0:
        d_weight.zero_()
        d_bias.zero_()
    else:
        parts = norm.backward_sums(
            *(grad, norm_kept, e_hat, weight, bias, None, None, seed, real_edges),
            *(activation, [0.0, rate], [0, site]),
        )
        add_lines(parts.flatten(1), d_weight, d_bias)
    slopes = Slopes(
        *(norm_kept, weight, bias, d_weight, d_bias, seed, real_edges, activation, rate, site)
    )
    found = gated.backward(d_x_hat, grad, e_hat, kept, sent, scale, *layout, slopes=slopes)
    return *found, d_weight.to(weight.dtype), d_bias.to(bias.dtype)


def _room(
    nodes: int, edges: Rows, real_edges: Int[Tensor, ""] | None, real_nodes: Int[Tensor, ""] | None
) -> Lines:
    """Room for a line of each program of the gated sum."""
    count, channels = edges.shape
    grid = cut(nodes, count, channels, gated.TILE)
    programs = grid.programs // grid.constants["BLOCKS"]
    parts = edges.new_empty((ENDS, programs, 2, channels), dtype=torch.float32)
    return Lines(parts, parts.new_empty(ENDS, programs), real_edges, real_nodes)


def _join(lines: Lines) -> Float[Tensor, "2 2 channels"]:
    """Mean and squared deviations of all edges, and of all nodes."""
    parts, sizes = lines.parts, lines.sizes
    _, programs, _, channels = parts.shape
    if programs == 0:
        return parts.new_zeros((ENDS, 2, channels))
    is_last = False
    while not is_last:
        is_last = programs <= MOST_JOINED
        own = programs if is_last else JOINED
        groups = triton.cdiv(programs, own)
        joined, counts = parts.new_empty((ENDS, groups, 2, channels)), sizes.new_empty(ENDS, groups)
        join_lines_kernel[(groups, triton.cdiv(channels, CHANNELS), ENDS)](
            *(parts, sizes, joined, counts, programs, own),
            CHANNELS=channels,
            L=JOINED,
            C=CHANNELS,
            UNROLL=UNROLL,
            PDL=is_last and starts_early(parts.device),
            num_warps=WARPS,
        )
        parts, sizes, programs = joined, counts, groups
    return parts.squeeze(1)
