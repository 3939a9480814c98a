"""Which rows of a tile belong to which node, for sums over the edges of nodes.

A program has T nodes and walks over their edges side by side, K = R / T of each at a time. After a
few rounds only hubs have edges left: these come one after another then, R edges at a time. Sums
never meet in memory: those of a node are made by one program, in an order that depends on nothing
but the edges.
"""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def load_rows(ptr, row, mask, c, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Load rows of some channels; 0 outside of the mask."""
    at = row.to(tl.int64)[:, None] * STRIDE + c[None, :]
    return tl.load(ptr + at, mask=mask[:, None] & (c < CHANNELS)[None, :], other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def store_rows(ptr, row, mask, c, value, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Store what `load_rows` would load."""
    at = row.to(tl.int64)[:, None] * STRIDE + c[None, :]
    tl.store(ptr + at, value, mask=mask[:, None] & (c < CHANNELS)[None, :])


@no_type_check
@triton.jit
def edge_at(order_ptr, place, mask, HAS_ORDER: tl.constexpr):
    """Return the edge at a place of the order."""
    if HAS_ORDER:
        return tl.load(order_ptr + place, mask=mask, other=0).to(tl.int32)
    return place


@no_type_check
@triton.jit
def rounds_of(bounds_ptr, first, nodes, T: tl.constexpr, K: tl.constexpr, ROUNDS: tl.constexpr):
    """Return the rounds in which nodes are walked side by side, and if they leave a hub."""
    t = first + tl.arange(0, T)
    low = tl.load(bounds_ptr + t, mask=t < nodes, other=0)
    high = tl.load(bounds_ptr + t + 1, mask=t < nodes, other=0)
    rounds = tl.cdiv(tl.max(high - low, axis=0), K)
    if T == 1:
        return rounds, False
    return tl.minimum(rounds, ROUNDS), rounds > ROUNDS


@no_type_check
@triton.jit
def place_program(
    bounds_ptr, nodes, T: tl.constexpr, K: tl.constexpr, C: tl.constexpr, BLOCKS: tl.constexpr,
    ROUNDS: tl.constexpr,
):  # fmt: skip
    """Return the first node, the channels, the rounds side by side, and if they leave a hub."""
    first = (tl.program_id(0) // BLOCKS) * T
    c = (tl.program_id(0) % BLOCKS) * C + tl.arange(0, C)
    rounds, has_hub = rounds_of(bounds_ptr, first, nodes, T, K, ROUNDS)
    return first, c, rounds, has_hub


@no_type_check
@triton.jit
def rows_together(bounds_ptr, first, nodes, T: tl.constexpr, K: tl.constexpr):
    """Return node, place of the first edge and end of each row: K rows for each of T nodes."""
    row = tl.arange(0, T * K)
    node = first + row // K
    place = tl.load(bounds_ptr + node, mask=node < nodes, other=0) + row % K
    end = tl.load(bounds_ptr + node + 1, mask=node < nodes, other=0)
    return node, place, end


@no_type_check
@triton.jit
def rows_apart(bounds_ptr, node, nodes, SKIP: tl.constexpr, R: tl.constexpr):
    """Return the same for the edges of one node after the first ones, and the rounds they take."""
    row = tl.arange(0, R)
    low = tl.load(bounds_ptr + node, mask=node < nodes, other=0) + SKIP
    high = tl.load(bounds_ptr + node + 1, mask=node < nodes, other=0)
    same = tl.zeros_like(row)
    return same + node, low + row, same + high, tl.cdiv(tl.maximum(high - low, 0), R)


@no_type_check
@triton.jit
def sum_of_each(rows, T: tl.constexpr, K: tl.constexpr, C: tl.constexpr):
    """Add the K rows of each node."""
    return tl.sum(tl.reshape(rows, [T, K, C]), axis=1)


@no_type_check
@triton.jit
def add_to(sums, rows, i, T: tl.constexpr):
    """Add all rows to the sum of the program's node `i`."""
    return tl.where(tl.arange(0, T)[:, None] == i, sums + tl.sum(rows, axis=0)[None, :], sums)
