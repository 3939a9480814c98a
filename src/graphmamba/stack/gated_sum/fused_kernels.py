"""Triton kernel of the gated sum; a tile is [R, C]: R edges by C channels.

Kernels are not compiled anew for other numbers of nodes and edges, which change with each batch.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.encode.batch_norm.tile_kernels import real_rows
from graphmamba.scan.triton_math import sigmoid
from graphmamba.stack.gated_sum.line_kernels import as_stored, store_line, take_in
from graphmamba.stack.gated_sum.walk_kernels import (
    add_to,
    edge_at,
    load_rows,
    place_program,
    rows_apart,
    rows_together,
    store_rows,
    sum_of_each,
)


@no_type_check
@triton.jit
def walk_forward(
    nodes_ptr, edges_ptr, scale_ptr, source_ptr, order_ptr, e_hat_ptr, node, place, end, rounds,
    nodes, real, line, c, STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    CHANNELS: tl.constexpr, NODES_STRIDE: tl.constexpr, EDGES_STRIDE: tl.constexpr,
    HAS_SCALE: tl.constexpr, HAS_ORDER: tl.constexpr, IS_GIVEN: tl.constexpr,
    HAS_LINES: tl.constexpr,
):  # fmt: skip
    """Write the edges of some rows; return what they send and how far they open, added by row.

    And their statistics, those of `line` included. If e_hat is given, all there is to do is sum.
    """
    received, opened = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    count, mean, spread = line
    if not IS_GIVEN:
        exists = node < nodes
        to_target = load_rows(nodes_ptr + 2 * CHANNELS, node, exists, c, NODES_STRIDE, CHANNELS)
    inside = place < end
    edge = edge_at(order_ptr, place, inside, HAS_ORDER)
    source = tl.load(source_ptr + edge, mask=inside, other=0)
    for _ in range(rounds):
        if IS_GIVEN:
            e_hat = load_rows(e_hat_ptr, edge, inside, c, CHANNELS, CHANNELS)
        else:
            e_hat = to_target + load_rows(
                nodes_ptr + 3 * CHANNELS, source, inside, c, NODES_STRIDE, CHANNELS
            )
        sent = load_rows(nodes_ptr + CHANNELS, source, inside, c, NODES_STRIDE, CHANNELS)
        if not IS_GIVEN:
            e_hat += load_rows(edges_ptr, edge, inside, c, EDGES_STRIDE, CHANNELS)
            store_rows(e_hat_ptr, edge, inside, c, e_hat, CHANNELS, CHANNELS)
        gate = tl.where(inside[:, None], sigmoid(e_hat), 0.0)
        if HAS_SCALE:
            gate *= tl.load(scale_ptr + edge, mask=inside, other=0.0)[:, None]
        received += gate * sent
        opened += gate
        if HAS_LINES and not IS_GIVEN:
            stored = as_stored(e_hat, e_hat_ptr)
            count, mean, spread = take_in(count, mean, spread, stored, inside & (edge < real))
        # Which rows come next is looked up while those of this round are on their way.
        place += STEP
        inside = place < end
        edge = edge_at(order_ptr, place, inside, HAS_ORDER)
        source = tl.load(source_ptr + edge, mask=inside, other=0)
    return received, opened, (count, mean, spread)


@no_type_check
@triton.jit(do_not_specialize=["nodes", "edges", "edge_lines"])
def gated_sum_fwd_kernel(
    nodes_ptr, edges_ptr, scale_ptr, source_ptr, bounds_ptr, order_ptr, real_edges_ptr,
    real_nodes_ptr, x_hat_ptr, e_hat_ptr, weight_ptr, mean_ptr, lines_ptr, sizes_ptr, nodes, edges,
    edge_lines, EPSILON: tl.constexpr, CHANNELS: tl.constexpr, NODES_STRIDE: tl.constexpr,
    EDGES_STRIDE: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
    C: tl.constexpr, ROUNDS: tl.constexpr, HAS_SCALE: tl.constexpr, HAS_ORDER: tl.constexpr,
    IS_GIVEN: tl.constexpr, HAS_LINES: tl.constexpr, HAS_GHOST_EDGES: tl.constexpr,
    HAS_GHOST_NODES: tl.constexpr,
):  # fmt: skip
    """Write x_hat and e_hat, and for each node 1 / sum of its gates and the quotient.

    With lines, each program also leaves the statistics of its real edges, and behind all lines of
    edges those of its real nodes. If e_hat is given, so are its lines.
    """
    R: tl.constexpr = T * K
    real = real_rows(real_edges_ptr, edges, HAS_GHOST_EDGES)
    line = tl.zeros([R], tl.float32), tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    first, c, rounds, has_hub = place_program(bounds_ptr, nodes, T, K, C, BLOCKS, ROUNDS)
    node, place, end = rows_together(bounds_ptr, first, nodes, T, K)
    sent, gates, line = walk_forward(
        nodes_ptr, edges_ptr, scale_ptr, source_ptr, order_ptr, e_hat_ptr, node, place, end, rounds,
        nodes, real, line, c, K, R, C, CHANNELS, NODES_STRIDE, EDGES_STRIDE, HAS_SCALE, HAS_ORDER,
        IS_GIVEN, HAS_LINES,
    )  # fmt: skip
    received, opened = sum_of_each(sent, T, K, C), sum_of_each(gates, T, K, C)
    if has_hub:
        for i in range(T):
            node, place, end, rounds = rows_apart(bounds_ptr, first + i, nodes, ROUNDS * K, R)
            if rounds > 0:
                sent, gates, line = walk_forward(
                    nodes_ptr, edges_ptr, scale_ptr, source_ptr, order_ptr, e_hat_ptr, node, place,
                    end, rounds, nodes, real, line, c, R, R, C, CHANNELS, NODES_STRIDE,
                    EDGES_STRIDE, HAS_SCALE, HAS_ORDER, IS_GIVEN, HAS_LINES,
                )  # fmt: skip
                received, opened = add_to(received, sent, i, T), add_to(opened, gates, i, T)

    t = first + tl.arange(0, T)
    weight = 1.0 / (opened + EPSILON)
    mean = received * weight
    x_hat = load_rows(nodes_ptr, t, t < nodes, c, NODES_STRIDE, CHANNELS) + mean
    store_rows(x_hat_ptr, t, t < nodes, c, x_hat, CHANNELS, CHANNELS)
    store_rows(weight_ptr, t, t < nodes, c, weight, CHANNELS, CHANNELS)
    store_rows(mean_ptr, t, t < nodes, c, mean, CHANNELS, CHANNELS)
    if HAS_LINES:
        number = tl.program_id(0) // BLOCKS
        if not IS_GIVEN:
            store_line(lines_ptr, sizes_ptr, number, line[0], line[1], line[2], c, CHANNELS)
        is_real = t < real_rows(real_nodes_ptr, nodes, HAS_GHOST_NODES)
        own = tl.where(is_real[:, None], as_stored(x_hat, x_hat_ptr), 0.0)
        store_line(
            lines_ptr, sizes_ptr, edge_lines + number, is_real.to(tl.float32), own,
            tl.zeros_like(own), c, CHANNELS,
        )  # fmt: skip
