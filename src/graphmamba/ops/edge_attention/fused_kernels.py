"""Triton kernel of attention along edges; a tile is [R, C]: R wires by the C channels of a head.

Kernels are not compiled anew for other numbers of nodes and wires, which change with each batch.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.gated_sum.walk_kernels import (
    add_to,
    load_rows,
    rounds_of,
    rows_apart,
    rows_together,
    store_rows,
    sum_of_each,
)
from graphmamba.ops.triton_math import LOG2_E


@no_type_check
@triton.jit
def place_program(
    bounds_ptr, nodes, T: tl.constexpr, K: tl.constexpr, BLOCKS: tl.constexpr, ROUNDS: tl.constexpr
):
    """Return the first node, the head, the rounds side by side, and if they leave a hub.

    The last nodes come first: virtual ones are hubs, which would else be waited for at the end.
    """
    first = (tl.num_programs(0) // BLOCKS - 1 - tl.program_id(0) // BLOCKS) * T
    rounds, has_hub = rounds_of(bounds_ptr, first, nodes, T, K, ROUNDS)
    return first, tl.program_id(0) % BLOCKS, rounds, has_hub


@no_type_check
@triton.jit
def weight_of(score, LIMIT: tl.constexpr):
    """Return the weight of a score."""
    return tl.exp2(tl.minimum(tl.maximum(score, -LIMIT), LIMIT) * LOG2_E)


@no_type_check
@triton.jit
def walk_forward(
    nodes_ptr, features_ptr, source_ptr, feature_ptr, scores_ptr, node, place, end, rounds, nodes,
    c, STEP: tl.constexpr, R: tl.constexpr, C: tl.constexpr, CHANNELS: tl.constexpr,
    WIDTH: tl.constexpr, NODES_STRIDE: tl.constexpr, FEATURES_STRIDE: tl.constexpr,
    SCALE: tl.constexpr, LIMIT: tl.constexpr,
):  # fmt: skip
    """Write the scores of some wires; return what they bring and what they weigh, by row."""
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
        # Which rows come next is looked up while those of this round are on their way.
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
    """Write what T nodes take by one head, the scores, and 1 / sum of the weights."""
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
