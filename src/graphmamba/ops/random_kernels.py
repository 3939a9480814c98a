"""Triton kernel of `random.draw_bits`."""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def draw(stream, counter):
    """Return output `counter` of SplitMix64 with state `stream`; all int64."""
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
    """Draw 64 bits for each entry of a matrix of `size` entries and `columns` columns.

    Streams and counters have strides `_down` over rows and `_across` over columns; without
    HAS_COUNTERS, all entries use `counter`.
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
