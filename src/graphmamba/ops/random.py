"""Counter-based random numbers, the same bits on every device."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.backends import uses_triton

_KERNEL_AXES, _KERNEL_BLOCK = 2, 256
_MASK = (1 << 64) - 1  # of unsigned 64-bit integers


def _signed(bits: int) -> int:
    """Reinterpret unsigned 64 bits as a signed integer."""
    return bits - (1 << 64) if bits >> 63 else bits


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def draw_bits(stream: Int[Tensor, "..."], counter: Int[Tensor, "..."] | int) -> Int[Tensor, "..."]:
    """64 random bits: output `counter` of the SplitMix64 generator with state `stream`.

    Shapes broadcast. The bits depend on the arguments alone, not on the device. Draws can serve as
    streams of further draws.
    """
    axes = max(stream.dim(), 0 if isinstance(counter, int) else counter.dim())
    if axes <= _KERNEL_AXES and uses_triton("auto", stream.device):
        return draw_bits_by_kernel(stream, counter)
    # counter + 1, since 0 is a fixed point of the mixing.
    if isinstance(counter, int):
        bits = stream.long() + _signed(((counter + 1) * _GOLDEN) & _MASK)
    else:
        bits = stream.long() + (counter.long() + 1) * _GOLDEN
    bits = (bits ^ _shift(bits, 30)) * _FIRST
    bits = (bits ^ _shift(bits, 27)) * _SECOND
    return bits ^ _shift(bits, 31)


def draw_signs(stream: Int[Tensor, ""], counters: Int[Tensor, " count"]) -> Float[Tensor, " count"]:
    """Random signs, from the lowest bits of a separate stream.

    `counters` must be an existing tensor: torch.compile would turn an `arange` into 32-bit indices,
    which overflow in `draw_bits`.
    """
    return 1.0 - 2.0 * take_bits(draw_bits(draw_bits(stream, 0), counters), low=0, count=1)


def draw_bits_by_kernel(
    stream: Int[Tensor, "..."], counter: Int[Tensor, "..."] | int
) -> Int[Tensor, "..."]:
    """`draw_bits` in one kernel launch, for at most two axes."""
    from graphmamba.ops.random_kernels import draw_kernel

    counters = stream if isinstance(counter, int) else counter
    shape = torch.broadcast_shapes(stream.shape, counters.shape)
    out = torch.empty(shape, dtype=torch.int64, device=stream.device)
    rows, columns = (1,) * (_KERNEL_AXES - len(shape)) + tuple(shape)
    strides = [step for each in (stream, counters) for step in each.expand(rows, columns).stride()]
    if out.numel():
        with torch.cuda.device_of(stream):
            draw_kernel[(-(-rows * columns // _KERNEL_BLOCK),)](
                *(stream, counters, out, counter if isinstance(counter, int) else 0),
                *(rows * columns, columns, *strides),
                HAS_COUNTERS=not isinstance(counter, int),
                BLOCK=_KERNEL_BLOCK,
            )
    return out


def take_bits(bits: Int[Tensor, "*shape"], low: int, count: int) -> Int[Tensor, "*shape"]:
    """Bits `low` to `low + count` as an integer below 2**count."""
    return (bits >> low) & ((1 << count) - 1)


def _shift(bits: Int[Tensor, "*shape"], count: int) -> Int[Tensor, "*shape"]:
    """Logical right shift; `>>` copies the sign bit."""
    return (bits >> count) & (_MASK >> count)
