"""Triton kernels of node orders: sort keys, ranks, and boundaries of sequences."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.random_kernels import draw

BIN_BITS, NOISE_BITS = tl.constexpr(32), tl.constexpr(28)  # as in `permutation`
BEYOND = tl.constexpr((1 << 63) - 1)  # larger than any word


@no_type_check
@triton.jit(do_not_specialize=["nodes", "graphs", "samples", "first_layer", "lines", "number"])
def word_kernel(
    word_ptr, batch_ptr, starts_ptr, seed_ptr, key_ptr, score_ptr,
    nodes, graphs, samples, first_layer, lines, number,
    BINS: tl.constexpr, HAS_KEY: tl.constexpr, HAS_SCORE: tl.constexpr, HAS_NOISE: tl.constexpr,
    HAS_RANDOM_BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write a sort key for each token: (line, graph, bin), score and noise as digits of a word.

    A line is one sample of one layer. Scores are integers below `number`; `key_ptr` is the
    `graph_key`, which selects the random stream of a graph.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < lines * nodes.to(tl.int64)
    line, node = at // nodes, at % nodes
    graph = tl.load(batch_ptr + node, mask=inside, other=0).to(tl.int64)
    place = node - tl.load(starts_ptr + graph, mask=inside, other=0)
    if HAS_NOISE or HAS_RANDOM_BINS:
        stream = draw(tl.zeros_like(at) + tl.load(seed_ptr), first_layer + line // samples)
        key = tl.zeros_like(at)
        if HAS_KEY:
            key = tl.load(key_ptr + graph, mask=inside, other=0).to(tl.int64)
        bits = draw(draw(draw(stream, line % samples), key), place)

    word = line * graphs + graph
    if BINS > 1:
        if HAS_RANDOM_BINS:
            word = word * BINS + (((bits & 0xFFFFFFFF) * BINS) >> BIN_BITS)
        else:
            word = word * BINS + place % BINS
    if HAS_SCORE:
        word = word * number + tl.load(score_ptr + node, mask=inside, other=0).to(tl.int64)
    if HAS_NOISE:
        noise = bits.to(tl.uint64) >> (64 - NOISE_BITS)
        word = (word << NOISE_BITS) + noise.to(tl.int64)
    tl.store(word_ptr + at, word, mask=inside)


@no_type_check
@triton.jit(do_not_specialize=["nodes", "tokens", "blocks"])
def rank_kernel(
    word_ptr, batch_ptr, starts_ptr, order_ptr, sorted_ptr, nodes, tokens, blocks,
    ROWS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Rank ROWS nodes of a line by counting smaller words, and write them to their positions.

    Only nodes of the same graphs are compared, TILE at a time: batch is sorted, and the graph is
    the most significant key. `blocks` is the number of programs per line, `tokens` the number of
    tokens per layer, within which the order counts.
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
        # Of equal words the earlier node comes first: it is smaller than word + 1.
        limit = own[:, None] + (other[None, :] < node[:, None]).to(tl.int64)
        is_before += (theirs[None, :] < limit).to(tl.int32)
    token = line * nodes + begin + tl.sum(is_before, axis=1)
    tl.store(order_ptr + token, (line * nodes + node) % tokens, mask=inside)
    tl.store(sorted_ptr + token, own, mask=inside)


@no_type_check
@triton.jit(
    do_not_specialize=["size", "width", "groups", "own", "rest", "tokens", "total", "rounds"]
)
def boundary_kernel(
    sorted_ptr, out_ptr, size, width, groups, own, rest, tokens, total, rounds, BLOCK: tl.constexpr
):  # fmt: skip
    """Find the first token of each group by binary search, relative to its layer.

    The output has `size` entries, one row of `width` per layer. There are `groups` groups, `own` of
    them per layer, with `rest` possible words each, and `total` tokens, `tokens` of them per layer.
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
    found = low - layer.to(tl.int64) * tokens
    tl.store(out_ptr + at, found.to(tl.int32), mask=at < size)
