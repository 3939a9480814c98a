"""Triton kernels that put steps in order by comparing them, and find where sequences begin."""

from typing import no_type_check

import triton
import triton.language as tl

BEYOND = tl.constexpr((1 << 63) - 1)
"""More than any word."""


@no_type_check
@triton.jit(do_not_specialize=["nodes", "steps", "blocks"])
def rank_kernel(
    word_ptr, batch_ptr, starts_ptr, order_ptr, sorted_ptr, nodes, steps, blocks,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Count for some nodes of a line how many come before them, and put them there.

    Only graphs of these nodes have to be looked at: words begin with the graph, graphs ascend.

    Args:
        word_ptr: What is sorted by, line by line.
        batch_ptr: Graph of each node.
        starts_ptr: First node of each graph, and the number of nodes.
        order_ptr: Slot of each step in its layer.
        sorted_ptr: Word of each step.
        nodes: Nodes of a line.
        steps: Steps of a layer.
        blocks: Programs of a line.
        ROWS: Nodes of a program.
        TILE: Nodes that they are compared with at a time.
    """
    program = tl.program_id(0)
    line, first = (program // blocks).to(tl.int64), (program % blocks) * ROWS
    node = first + tl.arange(0, ROWS)
    inside = node < nodes
    words = word_ptr + line * nodes
    own = tl.load(words + node, mask=inside, other=0)
    begin = tl.load(starts_ptr + tl.load(batch_ptr + first)).to(tl.int32)
    last = tl.minimum(first + ROWS, nodes) - 1
    end = tl.load(starts_ptr + tl.load(batch_ptr + last) + 1).to(tl.int32)
    is_before = tl.zeros([ROWS, TILE], tl.int32)
    for start in range(begin, end, TILE):
        other = start + tl.arange(0, TILE)
        theirs = tl.load(words + other, mask=other < end, other=BEYOND)
        # Of equal words the earlier node comes first: for it, one more is enough to be beyond.
        limit = own[:, None] + (other[None, :] < node[:, None]).to(tl.int64)
        is_before += (theirs[None, :] < limit).to(tl.int32)
    step = line * nodes + begin + tl.sum(is_before, axis=1)
    tl.store(order_ptr + step, (line * nodes + node) % steps, mask=inside)
    tl.store(sorted_ptr + step, own, mask=inside)


@no_type_check
@triton.jit(
    do_not_specialize=["size", "width", "groups", "own", "rest", "steps", "total", "rounds"]
)
def boundary_kernel(
    sorted_ptr, out_ptr, size, width, groups, own, rest, steps, total, rounds, BLOCK: tl.constexpr
):  # fmt: skip
    """Find the first step of each group, counted in its layer, by halving.

    Args:
        sorted_ptr: Word of each step, ascending.
        out_ptr: Boundaries, one layer in a row.
        size: How many there are.
        width: Boundaries of a row.
        groups: Groups of all layers.
        own: Groups of a layer.
        rest: Words of a group.
        steps: Steps of a layer.
        total: Steps of all layers.
        rounds: How often `total + 1` can be halved.
        BLOCK: Boundaries of a program.
    """
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    layer = at // width
    word = tl.minimum(layer * own + at % width, groups).to(tl.int64) * rest
    low = tl.zeros([BLOCK], tl.int64)
    high = low + total
    for _ in range(rounds):
        middle = (low + high) // 2
        is_open = low < high
        is_before = tl.load(sorted_ptr + middle, mask=is_open, other=BEYOND) < word
        low = tl.where(is_open & is_before, middle + 1, low)
        high = tl.where(is_open & (is_before == 0), middle, high)
    found = low - layer.to(tl.int64) * steps
    tl.store(out_ptr + at, found.to(tl.int32), mask=at < size)
