"""Triton kernel of the gated sum; a tile is [R, C]: R edges by C channels.

Kernels are not compiled anew for other numbers of nodes and edges, which change with each batch.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.gated_sum.walk_kernels import (
    add_to,
    edge_at,
    load_rows,
    place_program,
    rows_apart,
    rows_together,
    store_rows,
    sum_of_each,
)
from graphmamba.ops.triton_math import sigmoid


@no_type_check
@triton.jit
def walk_forward(
    nodes_ptr, edges_ptr, scale_ptr, source_ptr, order_ptr, e_hat_ptr, node, place, end, rounds,
    nodes, c, STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr,
    NODES_STRIDE: tl.constexpr, EDGES_STRIDE: tl.constexpr, HAS_SCALE: tl.constexpr,
    HAS_ORDER: tl.constexpr,
):  # fmt: skip
    """Write the edges of some rows; return what they send and how far they open, added by row."""
    received, opened = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    to_target = load_rows(nodes_ptr + 2 * CHANNELS, node, node < nodes, c, NODES_STRIDE, CHANNELS)
    inside = place < end
    edge = edge_at(order_ptr, place, inside, HAS_ORDER)
    source = tl.load(source_ptr + edge, mask=inside, other=0)
    for _ in range(rounds):
        to_source = load_rows(nodes_ptr + 3 * CHANNELS, source, inside, c, NODES_STRIDE, CHANNELS)
        sent = load_rows(nodes_ptr + CHANNELS, source, inside, c, NODES_STRIDE, CHANNELS)
        e_hat = (
            to_target + to_source + load_rows(edges_ptr, edge, inside, c, EDGES_STRIDE, CHANNELS)
        )
        store_rows(e_hat_ptr, edge, inside, c, e_hat, CHANNELS, CHANNELS)
        gate = tl.where(inside[:, None], sigmoid(e_hat), 0.0)
        if HAS_SCALE:
            gate *= tl.load(scale_ptr + edge, mask=inside, other=0.0)[:, None]
        received += gate * sent
        opened += gate
        # Which rows come next is looked up while those of this round are on their way.
        place += STEP
        inside = place < end
        edge = edge_at(order_ptr, place, inside, HAS_ORDER)
        source = tl.load(source_ptr + edge, mask=inside, other=0)
    return received, opened


@no_type_check
@triton.jit(do_not_specialize=["nodes"])
def gated_sum_fwd_kernel(
    nodes_ptr, edges_ptr, scale_ptr, source_ptr, bounds_ptr, order_ptr, x_hat_ptr, e_hat_ptr,
    weight_ptr, mean_ptr, nodes, EPSILON: tl.constexpr, CHANNELS: tl.constexpr,
    NODES_STRIDE: tl.constexpr, EDGES_STRIDE: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr,
    K: tl.constexpr, C: tl.constexpr, ROUNDS: tl.constexpr, HAS_SCALE: tl.constexpr,
    HAS_ORDER: tl.constexpr,
):  # fmt: skip
    """Write x_hat and e_hat, and for each node 1 / sum of its gates and the quotient."""
    R: tl.constexpr = T * K
    first, c, rounds, has_hub = place_program(bounds_ptr, nodes, T, K, C, BLOCKS, ROUNDS)
    t = first + tl.arange(0, T)
    own = load_rows(nodes_ptr, t, t < nodes, c, NODES_STRIDE, CHANNELS)
    node, place, end = rows_together(bounds_ptr, first, nodes, T, K)
    sent, gates = walk_forward(
        nodes_ptr, edges_ptr, scale_ptr, source_ptr, order_ptr, e_hat_ptr, node, place, end,
        rounds, nodes, c, K, R, C, CHANNELS, NODES_STRIDE, EDGES_STRIDE, HAS_SCALE, HAS_ORDER,
    )  # fmt: skip
    received, opened = sum_of_each(sent, T, K, C), sum_of_each(gates, T, K, C)
    if has_hub:
        for i in range(T):
            node, place, end, rounds = rows_apart(bounds_ptr, first + i, nodes, ROUNDS * K, R)
            if rounds > 0:
                sent, gates = walk_forward(
                    nodes_ptr, edges_ptr, scale_ptr, source_ptr, order_ptr, e_hat_ptr, node, place,
                    end, rounds, nodes, c, R, R, C, CHANNELS, NODES_STRIDE, EDGES_STRIDE,
                    HAS_SCALE, HAS_ORDER,
                )  # fmt: skip
                received, opened = add_to(received, sent, i, T), add_to(opened, gates, i, T)

    weight = 1.0 / (opened + EPSILON)
    mean = received * weight
    store_rows(x_hat_ptr, t, t < nodes, c, own + mean, CHANNELS, CHANNELS)
    store_rows(weight_ptr, t, t < nodes, c, weight, CHANNELS, CHANNELS)
    store_rows(mean_ptr, t, t < nodes, c, mean, CHANNELS, CHANNELS)
