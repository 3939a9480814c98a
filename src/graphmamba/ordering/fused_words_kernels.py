"""A Triton kernel that writes what steps are sorted by."""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.random_kernels import draw

BIN_BITS, NOISE_BITS = tl.constexpr(32), tl.constexpr(28)
"""As in `line_up` and `scores`; a test compares them."""


@no_type_check
@triton.jit(do_not_specialize=["nodes", "graphs", "samples", "first_layer", "lines", "number"])
def word_kernel(
    word_ptr, batch_ptr, starts_ptr, seed_ptr, key_ptr, score_ptr,
    nodes, graphs, samples, first_layer, lines, number,
    BINS: tl.constexpr, HAS_KEY: tl.constexpr, HAS_SCORE: tl.constexpr, HAS_NOISE: tl.constexpr,
    IS_DEALT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Write the digits group, score and noise of each step as one number.

    Args:
        word_ptr: The numbers, line by line.
        batch_ptr: Graph of each node.
        starts_ptr: First node of each graph.
        seed_ptr: Seed of the draws.
        key_ptr: What names each graph, if it has a name.
        score_ptr: Score of each node, if there is one.
        nodes: Nodes of a line.
        graphs: Graphs of a line.
        samples: Lines of a layer.
        first_layer: Number of the layer that comes first.
        lines: Lines of all layers.
        number: Scores are below it.
        BINS: Groups of a graph.
        HAS_KEY: Whether graphs have names.
        HAS_SCORE: Whether nodes have scores.
        HAS_NOISE: Whether ties are broken at random.
        IS_DEALT: Whether nodes are dealt to bins at random.
        BLOCK: Steps of a program.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < lines * nodes.to(tl.int64)
    line, node = at // nodes, at % nodes
    graph = tl.load(batch_ptr + node, mask=inside, other=0).to(tl.int64)
    place = node - tl.load(starts_ptr + graph, mask=inside, other=0)
    if HAS_NOISE or IS_DEALT:
        stream = draw(tl.zeros_like(at) + tl.load(seed_ptr), first_layer + line // samples)
        key = tl.zeros_like(at)
        if HAS_KEY:
            key = tl.load(key_ptr + graph, mask=inside, other=0).to(tl.int64)
        bits = draw(draw(draw(stream, line % samples), key), place)

    word = line * graphs + graph
    if BINS > 1:
        if IS_DEALT:
            word = word * BINS + (((bits & 0xFFFFFFFF) * BINS) >> BIN_BITS)
        else:
            word = word * BINS + place % BINS
    if HAS_SCORE:
        word = word * number + tl.load(score_ptr + node, mask=inside, other=0).to(tl.int64)
    if HAS_NOISE:
        noise = bits.to(tl.uint64) >> (64 - NOISE_BITS)
        word = (word << NOISE_BITS) + noise.to(tl.int64)
    tl.store(word_ptr + at, word, mask=inside)
