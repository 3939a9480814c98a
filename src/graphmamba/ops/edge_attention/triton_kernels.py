"""Triton kernels of attention along edges (called wires), and of its gradients.

Numbers of nodes and edges are not specialised, since they change with each batch.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.segments.triton_kernels import (
    add_to,
    edge_at,
    load_rows,
    rounds_of,
    rows_apart,
    rows_together,
    store_rows,
    sum_of_each,
)
from graphmamba.ops.triton_kernels import LOG2_E


@no_type_check
@triton.jit
def place_program(
    bounds_ptr, nodes, T: tl.constexpr, K: tl.constexpr, BLOCKS: tl.constexpr, ROUNDS: tl.constexpr
):
    """Return the first node, the head, and the result of `rounds_of`.

    The first programs take the last nodes: virtual nodes, which are hubs, should start first.
    """
    first = (tl.num_programs(0) // BLOCKS - 1 - tl.program_id(0) // BLOCKS) * T
    rounds, has_hub = rounds_of(bounds_ptr, first, nodes, T, K, ROUNDS)
    return first, tl.program_id(0) % BLOCKS, rounds, has_hub


@no_type_check
@triton.jit
def weight_of(score, LIMIT: tl.constexpr):
    """Weight of a score."""
    return tl.exp2(tl.minimum(tl.maximum(score, -LIMIT), LIMIT) * LOG2_E)


@no_type_check
@triton.jit
def walk_forward(
    nodes_ptr, features_ptr, source_ptr, feature_ptr, scores_ptr, node, place, end, rounds, nodes,
    c, STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr, NODES_STRIDE: tl.constexpr, FEATURES_STRIDE: tl.constexpr,
    SCALE: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Write scores; return the sums of weighted values and of weights, by row of the tile."""
    taken, weights = tl.zeros([R, C], tl.float32), tl.zeros([R], tl.float32)
    query = load_rows(nodes_ptr, node, node < nodes, c, NODES_STRIDE, WIDTH) * SCALE
    inside = place < end
    source = tl.load(source_ptr + place, mask=inside, other=0)
    feature = tl.load(feature_ptr + place, mask=inside, other=0)
    for _ in range(rounds):
        key = load_rows(nodes_ptr + CHANNELS, source, inside, c, NODES_STRIDE, WIDTH)
        value = load_rows(nodes_ptr + 2 * CHANNELS, source, inside, c, NODES_STRIDE, WIDTH)
        edge = load_rows(features_ptr, feature, inside, c, FEATURES_STRIDE, WIDTH)
        score = tl.sum(query * key * edge, axis=1)
        tl.store(scores_ptr + place, score, mask=inside)
        weight = tl.where(inside, weight_of(score, LIMIT), 0.0)
        taken += weight[:, None] * value
        weights += weight
        # The indices of the next iteration are loaded together with the rows of this one.
        place += STEP
        inside = place < end
        source = tl.load(source_ptr + place, mask=inside, other=0)
        feature = tl.load(feature_ptr + place, mask=inside, other=0)
    return taken, weights


@no_type_check
@triton.jit(do_not_specialize=["nodes", "wires"])
def attend_fwd_kernel(
    nodes_ptr, features_ptr, source_ptr, feature_ptr, bounds_ptr, out_ptr, scores_ptr, share_ptr,
    nodes, wires, EPSILON: tl.constexpr, SCALE: tl.constexpr, LIMIT: tl.constexpr,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, NODES_STRIDE: tl.constexpr,
    FEATURES_STRIDE: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
    C: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Write output and 1 / sum of weights for one head of T nodes, and the scores."""
    R: tl.constexpr = T * K
    first, head, rounds, has_hub = place_program(bounds_ptr, nodes, T, K, BLOCKS, ROUNDS)
    c = tl.arange(0, C)
    nodes_ptr += head * WIDTH
    features_ptr += head * WIDTH
    scores_ptr += head.to(tl.int64) * wires
    node, place, end = rows_together(bounds_ptr, first, nodes, T, K)
    found, weights = walk_forward(
        nodes_ptr, features_ptr, source_ptr, feature_ptr, scores_ptr, node, place, end, rounds,
        nodes, c, K, R, C, CHANNELS, WIDTH, NODES_STRIDE, FEATURES_STRIDE, SCALE, LIMIT,
    )  # fmt: skip
    taken, total = sum_of_each(found, T, K, C), tl.sum(tl.reshape(weights, [T, K]), axis=1)
    if has_hub:
        for i in range(T):
            node, place, end, rounds = rows_apart(bounds_ptr, first + i, nodes, ROUNDS * K, R)
            if rounds > 0:
                found, weights = walk_forward(
                    nodes_ptr, features_ptr, source_ptr, feature_ptr, scores_ptr, node, place, end,
                    rounds, nodes, c, R, R, C, CHANNELS, WIDTH, NODES_STRIDE, FEATURES_STRIDE,
                    SCALE, LIMIT,
                )  # fmt: skip
                taken = add_to(taken, found, i, T)
                total = tl.where(tl.arange(0, T) == i, total + tl.sum(weights, axis=0), total)

    t = first + tl.arange(0, T)
    share = 1.0 / (total + EPSILON)
    store_rows(out_ptr + head * WIDTH, t, t < nodes, c, taken * share[:, None], CHANNELS, WIDTH)
    tl.store(share_ptr + head.to(tl.int64) * nodes + t, share, mask=t < nodes)


@no_type_check
@triton.jit
def walk_targets(
    grad_ptr, out_ptr, share_ptr, nodes_ptr, features_ptr, source_ptr, feature_ptr, scores_ptr,
    slopes_ptr, d_features_ptr, node, place, end, rounds, nodes, own, kinds, c,
    STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr, GRAD_STRIDE: tl.constexpr, NODES_STRIDE: tl.constexpr,
    FEATURES_STRIDE: tl.constexpr, SCALE: tl.constexpr, LIMIT: tl.constexpr, SHARED: tl.constexpr,
):  # fmt: skip
    """Write the gradients of scores and of features that are not shared.

    Return those of queries, by row of the tile, and `kinds` plus those of shared features.
    """
    d_query = tl.zeros([R, C], tl.float32)
    exists = node < nodes
    query = load_rows(nodes_ptr, node, exists, c, NODES_STRIDE, WIDTH) * SCALE
    grad = load_rows(grad_ptr, node, exists, c, GRAD_STRIDE, WIDTH)
    grad *= tl.load(share_ptr + node, mask=exists, other=0.0)[:, None]
    out = load_rows(out_ptr, node, exists, c, CHANNELS, WIDTH)
    inside = place < end
    source = tl.load(source_ptr + place, mask=inside, other=0)
    feature = tl.load(feature_ptr + place, mask=inside, other=0)
    for _ in range(rounds):
        key = load_rows(nodes_ptr + CHANNELS, source, inside, c, NODES_STRIDE, WIDTH)
        value = load_rows(nodes_ptr + 2 * CHANNELS, source, inside, c, NODES_STRIDE, WIDTH)
        edge = load_rows(features_ptr, feature, inside, c, FEATURES_STRIDE, WIDTH)
        score = tl.load(scores_ptr + place, mask=inside, other=0.0)
        slope = tl.sum(grad * (value - out), axis=1) * weight_of(score, LIMIT)
        slope = tl.where(inside & (tl.abs(score) <= LIMIT), slope, 0.0)
        tl.store(slopes_ptr + place, slope, mask=inside)
        through = slope[:, None] * key
        d_query += through * edge
        d_feature = through * query
        is_custom = inside & (feature < own)
        store_rows(d_features_ptr, feature, is_custom, c, d_feature, CHANNELS, WIDTH)
        more = ()
        for k in tl.static_range(SHARED):
            more += (kinds[k] + tl.where((feature == own + k)[:, None], d_feature, 0.0),)
        kinds = more
        place += STEP
        inside = place < end
        source = tl.load(source_ptr + place, mask=inside, other=0)
        feature = tl.load(feature_ptr + place, mask=inside, other=0)
    return d_query * SCALE, kinds


@no_type_check
@triton.jit(do_not_specialize=["nodes", "wires", "own"])
def attend_by_target_kernel(
    grad_ptr, out_ptr, share_ptr, nodes_ptr, features_ptr, source_ptr, feature_ptr, bounds_ptr,
    scores_ptr, slopes_ptr, d_nodes_ptr, d_features_ptr, lines_ptr, nodes, wires, own,
    SCALE: tl.constexpr, LIMIT: tl.constexpr, SHARED: tl.constexpr, CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr, GRAD_STRIDE: tl.constexpr, NODES_STRIDE: tl.constexpr,
    FEATURES_STRIDE: tl.constexpr, BLOCKS: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
    C: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the queries of T nodes, of scores and of features.

    Those of the last SHARED features, after the `own` features of one edge each, are partial sums:
    one row (line) per program.
    """
    R: tl.constexpr = T * K
    first, head, rounds, has_hub = place_program(bounds_ptr, nodes, T, K, BLOCKS, ROUNDS)
    c = tl.arange(0, C)
    grad_ptr += head * WIDTH
    out_ptr += head * WIDTH
    nodes_ptr += head * WIDTH
    features_ptr += head * WIDTH
    d_features_ptr += head * WIDTH
    share_ptr += head.to(tl.int64) * nodes
    scores_ptr += head.to(tl.int64) * wires
    slopes_ptr += head.to(tl.int64) * wires
    kinds = ()
    for _ in tl.static_range(SHARED):
        kinds += (tl.zeros([R, C], tl.float32),)
    node, place, end = rows_together(bounds_ptr, first, nodes, T, K)
    found, kinds = walk_targets(
        grad_ptr, out_ptr, share_ptr, nodes_ptr, features_ptr, source_ptr, feature_ptr, scores_ptr,
        slopes_ptr, d_features_ptr, node, place, end, rounds, nodes, own, kinds, c, K, R, C,
        CHANNELS, WIDTH, GRAD_STRIDE, NODES_STRIDE, FEATURES_STRIDE, SCALE, LIMIT, SHARED,
    )  # fmt: skip
    total = sum_of_each(found, T, K, C)
    if has_hub:
        for i in range(T):
            node, place, end, rounds = rows_apart(bounds_ptr, first + i, nodes, ROUNDS * K, R)
            if rounds > 0:
                found, kinds = walk_targets(
                    grad_ptr, out_ptr, share_ptr, nodes_ptr, features_ptr, source_ptr, feature_ptr,
                    scores_ptr, slopes_ptr, d_features_ptr, node, place, end, rounds, nodes, own,
                    kinds, c, R, R, C, CHANNELS, WIDTH, GRAD_STRIDE, NODES_STRIDE, FEATURES_STRIDE,
                    SCALE, LIMIT, SHARED,
                )  # fmt: skip
                total = add_to(total, found, i, T)

    t = first + tl.arange(0, T)
    store_rows(d_nodes_ptr + head * WIDTH, t, t < nodes, c, total, 3 * CHANNELS, WIDTH)
    line = (tl.program_id(0) // BLOCKS).to(tl.int64) * (SHARED * CHANNELS) + head * WIDTH
    for k in tl.static_range(SHARED):
        at = lines_ptr + line + k * CHANNELS + c
        tl.store(at, tl.sum(kinds[k], axis=0), mask=c < WIDTH)


@no_type_check
@triton.jit
def walk_sources(
    grad_ptr, share_ptr, nodes_ptr, features_ptr, target_ptr, feature_ptr, order_ptr, scores_ptr,
    slopes_ptr, place, end, rounds, c, STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
    WIDTH: tl.constexpr, GRAD_STRIDE: tl.constexpr, NODES_STRIDE: tl.constexpr,
    FEATURES_STRIDE: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Return the gradients of keys and values, by row of the tile."""
    d_key, d_value = tl.zeros([R, C], tl.float32), tl.zeros([R, C], tl.float32)
    inside = place < end
    wire = edge_at(order_ptr, place, inside, True)
    target = tl.load(target_ptr + wire, mask=inside, other=0)
    feature = tl.load(feature_ptr + wire, mask=inside, other=0)
    for _ in range(rounds):
        query = load_rows(nodes_ptr, target, inside, c, NODES_STRIDE, WIDTH)
        edge = load_rows(features_ptr, feature, inside, c, FEATURES_STRIDE, WIDTH)
        grad = load_rows(grad_ptr, target, inside, c, GRAD_STRIDE, WIDTH)
        share = tl.load(share_ptr + target, mask=inside, other=0.0)
        score = tl.load(scores_ptr + wire, mask=inside, other=0.0)
        slope = tl.load(slopes_ptr + wire, mask=inside, other=0.0)
        d_key += slope[:, None] * query * edge
        d_value += (weight_of(score, LIMIT) * share)[:, None] * grad
        place += STEP
        inside = place < end
        wire = edge_at(order_ptr, place, inside, True)
        target = tl.load(target_ptr + wire, mask=inside, other=0)
        feature = tl.load(feature_ptr + wire, mask=inside, other=0)
    return d_key, d_value


@no_type_check
@triton.jit(do_not_specialize=["nodes", "wires"])
def attend_by_source_kernel(
    grad_ptr, share_ptr, nodes_ptr, features_ptr, target_ptr, feature_ptr, bounds_ptr, order_ptr,
    scores_ptr, slopes_ptr, d_nodes_ptr, nodes, wires, SCALE: tl.constexpr, LIMIT: tl.constexpr,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, GRAD_STRIDE: tl.constexpr,
    NODES_STRIDE: tl.constexpr, FEATURES_STRIDE: tl.constexpr, BLOCKS: tl.constexpr,
    T: tl.constexpr, K: tl.constexpr, C: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Write the gradients of the keys and values of T nodes."""
    R: tl.constexpr = T * K
    first, head, rounds, has_hub = place_program(bounds_ptr, nodes, T, K, BLOCKS, ROUNDS)
    c = tl.arange(0, C)
    grad_ptr += head * WIDTH
    nodes_ptr += head * WIDTH
    features_ptr += head * WIDTH
    share_ptr += head.to(tl.int64) * nodes
    scores_ptr += head.to(tl.int64) * wires
    slopes_ptr += head.to(tl.int64) * wires
    _, place, end = rows_together(bounds_ptr, first, nodes, T, K)
    keys, values = walk_sources(
        grad_ptr, share_ptr, nodes_ptr, features_ptr, target_ptr, feature_ptr, order_ptr,
        scores_ptr, slopes_ptr, place, end, rounds, c, K, R, C, WIDTH, GRAD_STRIDE, NODES_STRIDE,
        FEATURES_STRIDE, LIMIT,
    )  # fmt: skip
    d_key, d_value = sum_of_each(keys, T, K, C), sum_of_each(values, T, K, C)
    if has_hub:
        for i in range(T):
            _, place, end, rounds = rows_apart(bounds_ptr, first + i, nodes, ROUNDS * K, R)
            if rounds > 0:
                keys, values = walk_sources(
                    grad_ptr, share_ptr, nodes_ptr, features_ptr, target_ptr, feature_ptr,
                    order_ptr, scores_ptr, slopes_ptr, place, end, rounds, c, R, R, C, WIDTH,
                    GRAD_STRIDE, NODES_STRIDE, FEATURES_STRIDE, LIMIT,
                )  # fmt: skip
                d_key, d_value = add_to(d_key, keys, i, T), add_to(d_value, values, i, T)

    t = first + tl.arange(0, T)
    d_nodes_ptr += head * WIDTH
    store_rows(d_nodes_ptr + CHANNELS, t, t < nodes, c, d_key * SCALE, 3 * CHANNELS, WIDTH)
    store_rows(d_nodes_ptr + 2 * CHANNELS, t, t < nodes, c, d_value, 3 * CHANNELS, WIDTH)
