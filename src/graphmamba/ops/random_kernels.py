"""Triton kernels that draw random bits, as `random.draw_bits` defines them."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def draw(stream, counter):
    """Return output `counter` of SplitMix64 in state `stream`; both int64, as is what comes out."""
    steps = (counter.to(tl.uint64) + 1) * tl.full((), 0x9E3779B97F4A7C15, tl.uint64)
    bits = stream.to(tl.uint64) + steps
    bits = (bits ^ (bits >> 30)) * tl.full((), 0xBF58476D1CE4E5B9, tl.uint64)
    bits = (bits ^ (bits >> 27)) * tl.full((), 0x94D049BB133111EB, tl.uint64)
    return (bits ^ (bits >> 31)).to(tl.int64)


@no_type_check
@triton.jit(
    do_not_specialize=[
        "counter", "size", "columns", "stream_down", "stream_across", "counter_down",
        "counter_across",
    ]
)  # fmt: skip
def draw_kernel(
    stream_ptr, counter_ptr, out_ptr, counter, size, columns,
    stream_down, stream_across, counter_down, counter_across,
    HAS_COUNTERS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Draw bits for all pairs of streams and counters.

    Args:
        stream_ptr: Streams, found by their strides `stream_down` and `stream_across`.
        counter_ptr: Counters, likewise, if there are any.
        out_ptr: Where the bits go, row by row.
        counter: The only counter, if not.
        size: How many bits are drawn.
        columns: Length of a row.
        stream_down: From one row of streams to the next.
        stream_across: From one stream to the next in its row.
        counter_down: As for streams.
        counter_across: As for streams.
        HAS_COUNTERS: Whether each place has its own counter.
        BLOCK: Places of a program.
    """
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < size
    down, across = at // columns, at % columns
    stream = tl.load(stream_ptr + down * stream_down + across * stream_across, mask=inside, other=0)
    if HAS_COUNTERS:
        place = down * counter_down + across * counter_across
        own = tl.load(counter_ptr + place, mask=inside, other=0).to(tl.int64)
    else:
        own = tl.zeros_like(at) + counter
    tl.store(out_ptr + at, draw(stream.to(tl.int64), own), mask=inside)
