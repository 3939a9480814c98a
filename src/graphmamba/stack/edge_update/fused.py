"""Gated sum, norm of the edges and what follows it on a GPU: which kernels run."""

from typing import NamedTuple

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.encode.batch_norm import fused as norm
from graphmamba.encode.batch_norm.tiles import Tile
from graphmamba.kernel_sizes import block_of, starts_early
from graphmamba.line_sums import add_lines
from graphmamba.stack.edge_update.fused_kernels import join_lines_kernel
from graphmamba.stack.edge_update.map_kernels import map_edges_kernel
from graphmamba.stack.gated_sum import fused as gated
from graphmamba.stack.gated_sum.lines import ENDS, Lines
from graphmamba.stack.gated_sum.slopes import Slopes
from graphmamba.stack.gated_sum.tiles import cut

JOINED, CHANNELS, WARPS, UNROLL = 512, 4, 16, 4
"""Lines that a program brings together at a time, channels of them, warps, and times a round. A
thread that has all channels of a line need not ask another one for its count."""
MAP_TILE = Tile(rows=16, warps=4, programs=528)
"""Edges that are mapped at a time; by default four programs for each of an H200's processors."""
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
    map_weight: Float[Tensor, "channels channels"] | None = None,
    map_bias: Channels | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """x_hat, e_hat, the new edges, what sum and norm keep, and statistics of edges and nodes.

    With a map, the edges are those before it.
    """
    is_mapped, e_hat = map_weight is not None and edges.numel() > 0, None
    own = _share_rows(edges.shape[0]) if is_mapped else None
    lines = _room(nodes.shape[0], edges, own, real_edges, real_nodes)
    if map_weight is not None and is_mapped:
        e_hat = _map(edges, map_weight, map_bias, nodes, layout.edge_index, lines)
    x_hat, e_hat, kept = gated.forward(nodes, edges, scale, *layout[:3], lines=lines, e_hat=e_hat)
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
    nodes: int,
    edges: Rows,
    edge_lines: int | None,
    real_edges: Int[Tensor, ""] | None,
    real_nodes: Int[Tensor, ""] | None,
) -> Lines:
    """Room for lines: as many of the edges, if it is not the gated sum that leaves them."""
    count, channels = edges.shape
    grid = cut(nodes, count, channels, gated.TILE)
    programs: int = grid.programs // grid.constants["BLOCKS"]
    edge_lines = programs if edge_lines is None else edge_lines
    parts = edges.new_empty((edge_lines + programs, 2, channels), dtype=torch.float32)
    return Lines(parts, parts.new_empty(len(parts)), edge_lines, real_edges, real_nodes)


def _map(
    edges: Rows,
    weight: Float[Tensor, "channels channels"],
    bias: Channels | None,
    nodes: Float[Tensor, "nodes four_channels"],
    edge_index: Int[Tensor, "2 edges"],
    lines: Lines,
) -> Rows:
    """e_hat of rows that have yet to be mapped; lines of their statistics are left."""
    rows, channels = edges.shape
    e_hat = edges.new_empty(edges.shape)
    map_edges_kernel[(lines.edges,)](
        *(edges, weight, weight if bias is None else bias, nodes, *edge_index),
        *(edge_index if lines.real_edges is None else lines.real_edges, e_hat),
        *(lines.parts, lines.sizes, rows),
        CHANNELS=channels,
        E_STRIDE=edges.stride(0),
        NODES_STRIDE=nodes.stride(0),
        R=MAP_TILE.rows,
        C=block_of(channels),
        HAS_BIAS=bias is not None,
        HAS_GHOSTS=lines.real_edges is not None,
        num_warps=MAP_TILE.warps,
        num_stages=1,
    )
    return e_hat


def _share_rows(rows: int) -> int:
    """Programs that share all edges, as many as make the rounds that the slowest needs anyway."""
    tiles = triton.cdiv(rows, MAP_TILE.rows)
    return triton.cdiv(tiles, triton.cdiv(tiles, MAP_TILE.programs))


def _join(lines: Lines) -> Float[Tensor, "2 2 channels"]:
    """Mean and squared deviations of all edges, and of all nodes."""
    parts, sizes, counts = lines.parts, lines.sizes, (lines.edges, lines.nodes)
    channels, is_last = parts.shape[2], False
    if not len(parts):
        return parts.new_zeros((ENDS, 2, channels))
    while not is_last:
        is_last = max(counts) <= MOST_JOINED
        own = max(counts) if is_last else JOINED
        groups = triton.cdiv(max(counts), own)
        joined = parts.new_empty((ENDS * groups, 2, channels))
        together = sizes.new_empty(ENDS * groups)
        join_lines_kernel[(groups, triton.cdiv(channels, CHANNELS), ENDS)](
            *(parts, sizes, joined, together, *counts, own),
            CHANNELS=channels,
            L=JOINED,
            C=CHANNELS,
            UNROLL=UNROLL,
            PDL=is_last and starts_early(parts.device),
            num_warps=WARPS,
        )
        parts, sizes, counts = joined, together, (groups, groups)
    return parts.view(ENDS, 2, channels)
