"""A Triton kernel that maps the rows of edges and adds what both their ends say."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.encode.batch_norm.tile_kernels import real_rows
from graphmamba.stack.gated_sum.line_kernels import as_stored, store_line, take_in
from graphmamba.stack.gated_sum.walk_kernels import load_rows, store_rows


@no_type_check
@triton.jit
def load_edges(
    e_ptr, source_ptr, target_ptr, row, edges, c, E_STRIDE: tl.constexpr, CHANNELS: tl.constexpr
):
    """Load rows of edges and their ends; 0 behind the last."""
    inside = row < edges
    e = load_rows(e_ptr, row, inside, c, E_STRIDE, CHANNELS)
    source = tl.load(source_ptr + row, mask=inside, other=0)
    return e, source, tl.load(target_ptr + row, mask=inside, other=0)


@no_type_check
@triton.jit(do_not_specialize=["edges"])
def map_edges_kernel(
    e_ptr, matrix_ptr, bias_ptr, nodes_ptr, source_ptr, target_ptr, real_ptr, e_hat_ptr, lines_ptr,
    sizes_ptr, edges, CHANNELS: tl.constexpr, E_STRIDE: tl.constexpr, NODES_STRIDE: tl.constexpr,
    R: tl.constexpr, C: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_GHOSTS: tl.constexpr,
):  # fmt: skip
    """Write e_hat for every so-manieth tile of R edges, and leave the line of their statistics.

    A program holds the whole matrix. Rows and ends of the next tile are on their way while this
    one is multiplied.
    """
    c = tl.arange(0, C)
    inside = (c < CHANNELS)[:, None] & (c < CHANNELS)[None, :]
    matrix = tl.load(matrix_ptr + c[None, :] * CHANNELS + c[:, None], mask=inside, other=0.0)
    bias = tl.zeros([C], tl.float32)
    if HAS_BIAS:
        bias = tl.load(bias_ptr + c, mask=c < CHANNELS, other=0.0)
    real = real_rows(real_ptr, edges, HAS_GHOSTS)
    count = tl.zeros([R], tl.float32)
    mean, spread = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    row = tl.program_id(0) * R + tl.arange(0, R)
    e, source, target = load_edges(e_ptr, source_ptr, target_ptr, row, edges, c, E_STRIDE, CHANNELS)
    for _ in range(tl.cdiv(tl.cdiv(edges, R) - tl.program_id(0), tl.num_programs(0))):
        exists = row < edges
        e_hat = load_rows(nodes_ptr + 2 * CHANNELS, target, exists, c, NODES_STRIDE, CHANNELS)
        e_hat += load_rows(nodes_ptr + 3 * CHANNELS, source, exists, c, NODES_STRIDE, CHANNELS)
        following = row + tl.num_programs(0) * R
        next_e, source, target = load_edges(
            e_ptr, source_ptr, target_ptr, following, edges, c, E_STRIDE, CHANNELS
        )
        e_hat += tl.dot(e, matrix, input_precision="tf32") + bias[None, :]
        store_rows(e_hat_ptr, row, exists, c, e_hat, CHANNELS, CHANNELS)
        stored = as_stored(e_hat, e_hat_ptr)
        count, mean, spread = take_in(count, mean, spread, stored, row < real)
        row, e = following, next_e
    store_line(lines_ptr, sizes_ptr, tl.program_id(0), count, mean, spread, c, CHANNELS)
