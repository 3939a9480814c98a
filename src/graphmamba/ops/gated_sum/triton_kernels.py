"""Triton kernels of the gated sum over the edges of each node, and of its gradients.

Rows of nodes are a, b, d and e, concatenated. Numbers of nodes and edges are not specialised, since
they change with each batch.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.batch_norm.triton_kernels import (
    activation_slope,
    drop,
    load_keys,
    load_norm,
    real_rows,
)
from graphmamba.ops.segments.triton_kernels import (
    add_to,
    edge_at,
    load_rows,
    place_program,
    rows_apart,
    rows_together,
    store_rows,
    sum_of_each,
)
from graphmamba.ops.triton_kernels import sigmoid


@no_type_check
@triton.jit
def walk_forward(
    nodes_ptr, edges_ptr, scale_ptr, source_ptr, order_ptr, e_hat_ptr, node, place, end, rounds,
    nodes, c, STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr,
    NODES_STRIDE: tl.constexpr, EDGES_STRIDE: tl.constexpr, HAS_SCALE: tl.constexpr,
    HAS_ORDER: tl.constexpr,
):  # fmt: skip
    """Write e_hat; return the sums of gated b and of gates, by row of the tile."""
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
        # The indices of the next iteration are loaded together with the rows of this one.
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
    """Write x_hat, e_hat, and for each node 1 / sum of its gates and the weighted mean."""
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


@no_type_check
@triton.jit
def load_slopes(
    kept_ptr, gain_ptr, shift_ptr, d_gain_ptr, d_shift_ptr, real, c, CHANNELS: tl.constexpr
):
    """Return the statistics, parameters and scaled parameter gradients of the norm."""
    mean, scale, gain, shift = load_norm(kept_ptr, gain_ptr, shift_ptr, c, CHANNELS)
    d_gain = tl.load(d_gain_ptr + c, mask=c < CHANNELS, other=0.0)
    d_shift = tl.load(d_shift_ptr + c, mask=c < CHANNELS, other=0.0)
    # A single row was normalised with running statistics, which do not depend on it.
    share = tl.where(real > 1, 1.0 / tl.maximum(real, 1).to(tl.float32), 0.0)
    return mean, scale, gain, shift, (d_gain * share)[None, :], (d_shift * share)[None, :]


@no_type_check
@triton.jit
def before_norm(
    grad, e_hat, slopes, keys, edge, c, real, CHANNELS: tl.constexpr, ACTIVATION: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Backward pass through dropout, activation and norm: return the gradient of e_hat."""
    mean, scale, gain, shift, d_gain, d_shift = slopes
    hat = (e_hat - mean) * scale
    dz = drop(grad, keys, edge, c, THRESHOLD, SCALE, CHANNELS)
    dz *= activation_slope(hat * gain + shift, ACTIVATION)
    d = (dz - (d_shift + hat * d_gain)) * scale * gain
    return tl.where((edge < real)[:, None], d, 0.0)


@no_type_check
@triton.jit
def walk_targets(
    dx_ptr, de_ptr, weight_ptr, mean_ptr, sent_ptr, e_hat_ptr, scale_ptr, source_ptr, order_ptr,
    d_edges_ptr, parts_ptr, node, place, end, rounds, nodes, real, slopes, keys, c,
    STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr,
    SENT_STRIDE: tl.constexpr, DX_STRIDE: tl.constexpr, DE_STRIDE: tl.constexpr,
    HAS_SCALE: tl.constexpr, HAS_ORDER: tl.constexpr, HAS_DE: tl.constexpr, HAS_NORM: tl.constexpr,
    ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of edges; return their sums by row of the tile."""
    total = tl.zeros([R, C], tl.float32)
    exists = node < nodes
    dx = load_rows(dx_ptr, node, exists, c, DX_STRIDE, CHANNELS)
    dx *= load_rows(weight_ptr, node, exists, c, CHANNELS, CHANNELS)
    mean = load_rows(mean_ptr, node, exists, c, CHANNELS, CHANNELS)
    inside = place < end
    edge = edge_at(order_ptr, place, inside, HAS_ORDER)
    source = tl.load(source_ptr + edge, mask=inside, other=0)
    for _ in range(rounds):
        sent = load_rows(sent_ptr, source, inside, c, SENT_STRIDE, CHANNELS)
        e_hat = load_rows(e_hat_ptr, edge, inside, c, CHANNELS, CHANNELS)
        gate = sigmoid(e_hat)
        d_gate = dx * (sent - mean)
        if HAS_SCALE:
            part = tl.where(inside[:, None] & (c < CHANNELS)[None, :], d_gate * gate, 0.0)
            tl.store(parts_ptr + edge, tl.sum(part, axis=1), mask=inside)
            d_gate *= tl.load(scale_ptr + edge, mask=inside, other=0.0)[:, None]
        d_edge = d_gate * gate * (1.0 - gate)
        if HAS_DE:
            de = load_rows(de_ptr, edge, inside, c, DE_STRIDE, CHANNELS)
            if HAS_NORM:
                de = before_norm(
                    de, e_hat, slopes, keys, edge, c, real, CHANNELS, ACTIVATION, THRESHOLD, SCALE
                )
            d_edge += de
        store_rows(d_edges_ptr, edge, inside, c, d_edge, CHANNELS, CHANNELS)
        total += tl.where(inside[:, None], d_edge, 0.0)
        place += STEP
        inside = place < end
        edge = edge_at(order_ptr, place, inside, HAS_ORDER)
        source = tl.load(source_ptr + edge, mask=inside, other=0)
    return total


@no_type_check
@triton.jit(do_not_specialize=["nodes", "edges", "site"])
def gated_sum_by_target_kernel(
    dx_ptr, de_ptr, weight_ptr, mean_ptr, sent_ptr, e_hat_ptr, scale_ptr, source_ptr, bounds_ptr,
    order_ptr, kept_ptr, gain_ptr, shift_ptr, d_gain_ptr, d_shift_ptr, seed_ptr, real_ptr,
    d_nodes_ptr, d_edges_ptr, share_ptr, parts_ptr, nodes, edges, site, CHANNELS: tl.constexpr,
    SENT_STRIDE: tl.constexpr, DX_STRIDE: tl.constexpr, DE_STRIDE: tl.constexpr,
    BLOCKS: tl.constexpr, T: tl.constexpr, K: tl.constexpr, C: tl.constexpr, ROUNDS: tl.constexpr,
    HAS_SCALE: tl.constexpr, HAS_ORDER: tl.constexpr, HAS_DE: tl.constexpr, HAS_NORM: tl.constexpr,
    HAS_GHOSTS: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of edges, and of a and d of the nodes.

    `share`, the gradient of x_hat divided by the sum of gates, is for `gated_sum_by_source_kernel`.
    With HAS_NORM, `de` is the gradient of e_hat after norm, activation and dropout.
    """
    R: tl.constexpr = T * K
    first, c, rounds, has_hub = place_program(bounds_ptr, nodes, T, K, C, BLOCKS, ROUNDS)
    parts_ptr += (tl.program_id(0) % BLOCKS).to(tl.int64) * edges
    real, slopes, keys = edges, (), ()
    if HAS_NORM:
        real = real_rows(real_ptr, edges, HAS_GHOSTS)
        keys = load_keys(seed_ptr, site, THRESHOLD)
        slopes = load_slopes(
            kept_ptr, gain_ptr, shift_ptr, d_gain_ptr, d_shift_ptr, real, c, CHANNELS
        )
    t = first + tl.arange(0, T)
    dx = load_rows(dx_ptr, t, t < nodes, c, DX_STRIDE, CHANNELS)
    share = dx * load_rows(weight_ptr, t, t < nodes, c, CHANNELS, CHANNELS)
    node, place, end = rows_together(bounds_ptr, first, nodes, T, K)
    found = walk_targets(
        dx_ptr, de_ptr, weight_ptr, mean_ptr, sent_ptr, e_hat_ptr, scale_ptr, source_ptr,
        order_ptr, d_edges_ptr, parts_ptr, node, place, end, rounds, nodes, real, slopes, keys, c,
        K, R, C, CHANNELS, SENT_STRIDE, DX_STRIDE, DE_STRIDE, HAS_SCALE, HAS_ORDER, HAS_DE,
        HAS_NORM, ACTIVATION, THRESHOLD, SCALE,
    )  # fmt: skip
    total = sum_of_each(found, T, K, C)
    if has_hub:
        for i in range(T):
            node, place, end, rounds = rows_apart(bounds_ptr, first + i, nodes, ROUNDS * K, R)
            if rounds > 0:
                found = walk_targets(
                    dx_ptr, de_ptr, weight_ptr, mean_ptr, sent_ptr, e_hat_ptr, scale_ptr,
                    source_ptr, order_ptr, d_edges_ptr, parts_ptr, node, place, end, rounds, nodes,
                    real, slopes, keys, c, R, R, C, CHANNELS, SENT_STRIDE, DX_STRIDE, DE_STRIDE,
                    HAS_SCALE, HAS_ORDER, HAS_DE, HAS_NORM, ACTIVATION, THRESHOLD, SCALE,
                )  # fmt: skip
                total = add_to(total, found, i, T)

    store_rows(share_ptr, t, t < nodes, c, share, CHANNELS, CHANNELS)
    store_rows(d_nodes_ptr, t, t < nodes, c, dx, 4 * CHANNELS, CHANNELS)
    store_rows(d_nodes_ptr + 2 * CHANNELS, t, t < nodes, c, total, 4 * CHANNELS, CHANNELS)


@no_type_check
@triton.jit
def walk_sources(
    e_hat_ptr, d_edges_ptr, share_ptr, scale_ptr, target_ptr, order_ptr, place, end, rounds, c,
    STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr,
    HAS_SCALE: tl.constexpr,
):  # fmt: skip
    """Return the gradients of b and e, by row of the tile."""
    d_sent, total = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    inside = place < end
    edge = edge_at(order_ptr, place, inside, True)
    target = tl.load(target_ptr + edge, mask=inside, other=0)
    for _ in range(rounds):
        share = load_rows(share_ptr, target, inside, c, CHANNELS, CHANNELS)
        gate = sigmoid(load_rows(e_hat_ptr, edge, inside, c, CHANNELS, CHANNELS))
        if HAS_SCALE:
            gate *= tl.load(scale_ptr + edge, mask=inside, other=0.0)[:, None]
        d_sent += gate * share
        total += load_rows(d_edges_ptr, edge, inside, c, CHANNELS, CHANNELS)
        place += STEP
        inside = place < end
        edge = edge_at(order_ptr, place, inside, True)
        target = tl.load(target_ptr + edge, mask=inside, other=0)
    return d_sent, total


@no_type_check
@triton.jit(do_not_specialize=["nodes"])
def gated_sum_by_source_kernel(
    e_hat_ptr, d_edges_ptr, share_ptr, scale_ptr, target_ptr, bounds_ptr, order_ptr, d_nodes_ptr,
    nodes, CHANNELS: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
    C: tl.constexpr, ROUNDS: tl.constexpr, HAS_SCALE: tl.constexpr,
):  # fmt: skip
    """Write the gradients of b and e of the nodes."""
    R: tl.constexpr = T * K
    first, c, rounds, has_hub = place_program(bounds_ptr, nodes, T, K, C, BLOCKS, ROUNDS)
    _, place, end = rows_together(bounds_ptr, first, nodes, T, K)
    sent, found = walk_sources(
        e_hat_ptr, d_edges_ptr, share_ptr, scale_ptr, target_ptr, order_ptr, place, end, rounds, c,
        K, R, C, CHANNELS, HAS_SCALE,
    )  # fmt: skip
    d_sent, total = sum_of_each(sent, T, K, C), sum_of_each(found, T, K, C)
    if has_hub:
        for i in range(T):
            _, place, end, rounds = rows_apart(bounds_ptr, first + i, nodes, ROUNDS * K, R)
            if rounds > 0:
                sent, found = walk_sources(
                    e_hat_ptr, d_edges_ptr, share_ptr, scale_ptr, target_ptr, order_ptr, place, end,
                    rounds, c, R, R, C, CHANNELS, HAS_SCALE,
                )  # fmt: skip
                d_sent, total = add_to(d_sent, sent, i, T), add_to(total, found, i, T)

    t = first + tl.arange(0, T)
    store_rows(d_nodes_ptr + CHANNELS, t, t < nodes, c, d_sent, 4 * CHANNELS, CHANNELS)
    store_rows(d_nodes_ptr + 3 * CHANNELS, t, t < nodes, c, total, 4 * CHANNELS, CHANNELS)
