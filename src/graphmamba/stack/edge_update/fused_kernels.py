"""A Triton kernel that brings the lines of many programs together."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.encode.batch_norm.tile_kernels import lead
from graphmamba.stack.gated_sum.line_kernels import store_line


@no_type_check
@triton.jit(do_not_specialize=["edge_lines", "node_lines", "own"])
def join_lines_kernel(
    lines_ptr, sizes_ptr, out_ptr, out_sizes_ptr, edge_lines, node_lines, own,
    CHANNELS: tl.constexpr, L: tl.constexpr, C: tl.constexpr, UNROLL: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Make one line of `own` lines, L at a time, for C channels of edges or nodes."""
    lead(PDL)
    group, groups = tl.program_id(0), tl.num_programs(0)
    c = tl.program_id(1) * C + tl.arange(0, C)
    end = tl.program_id(2)
    lines = tl.where(end == 0, edge_lines, node_lines)
    lines_ptr += end.to(tl.int64) * edge_lines * (2 * CHANNELS)
    sizes_ptr += end * edge_lines
    first = group * own
    last = tl.minimum(first + own, lines)
    count = tl.zeros([L], tl.float32)
    mean, spread = tl.zeros([L, C], tl.float32), tl.zeros([L, C], tl.float32)
    for begin in tl.range(first, last, L, loop_unroll_factor=UNROLL):
        line = begin + tl.arange(0, L)
        at = line.to(tl.int64)[:, None] * (2 * CHANNELS) + c[None, :]
        inside = (line < last)[:, None] & (c < CHANNELS)[None, :]
        more = tl.load(sizes_ptr + line, mask=line < last, other=0.0)
        off = tl.load(lines_ptr + at, mask=inside, other=0.0) - mean
        spread += tl.load(lines_ptr + CHANNELS + at, mask=inside, other=0.0)
        both = count + more
        share = more / tl.maximum(both, 1.0)
        mean += off * share[:, None]
        spread += off * off * (count * share)[:, None]
        count = both
    store_line(out_ptr, out_sizes_ptr, end * groups + group, count, mean, spread, c, CHANNELS)
