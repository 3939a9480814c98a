"""Random numbers that depend on their counters alone: the same bits on every device."""

from importlib.util import find_spec

import torch
from jaxtyping import Float, Int
from torch import Tensor

_HAS_TRITON = find_spec("triton") is not None
_FUSED_AXES = 2
_MASK = (1 << 64) - 1


def _signed(bits: int) -> int:
    """Read 64 bits as the two's complement number that an int64 tensor can hold."""
    return bits - (1 << 64) if bits >> 63 else bits


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST = _signed(0xBF58476D1CE4E5B9)
_SECOND = _signed(0x94D049BB133111EB)


def draw_bits(stream: Int[Tensor, "..."], counter: Int[Tensor, "..."] | int) -> Int[Tensor, "..."]:
    """64 random bits: output `counter` of the SplitMix64 generator in state `stream`.

    Integer products wrap around alike on CPU and GPU, so that the same arguments give the same
    bits wherever, and beside whatever else, they are computed. A draw may serve as the stream of
    further draws, which gives each of many independent streams its own key; shapes broadcast.
    """
    if is_fused(stream.device) and _axes(stream, counter) <= _FUSED_AXES:
        from graphmamba.ops import random_triton as fused_bits

        return fused_bits.draw_bits(stream, counter)
    # Counters start at one, or counter 0 of stream 0 would be 0, a fixed point of the mixing.
    if isinstance(counter, int):
        bits = stream.long() + _signed(((counter + 1) * _GOLDEN) & _MASK)
    else:
        bits = stream.long() + (counter.long() + 1) * _GOLDEN
    bits = (bits ^ _shift(bits, 30)) * _FIRST
    bits = (bits ^ _shift(bits, 27)) * _SECOND
    return bits ^ _shift(bits, 31)


def draw_signs(stream: Int[Tensor, ""], counters: Int[Tensor, " count"]) -> Float[Tensor, " count"]:
    """Random signs: the lowest bits of draws of a stream of their own.

    Counters are a tensor that exists: of an `arange`, torch.compile makes an index of 32 bits,
    which the factors of the draws do not fit into.
    """
    return 1.0 - 2.0 * take_bits(draw_bits(draw_bits(stream, 0), counters), low=0, count=1)


def is_fused(device: torch.device) -> bool:
    """Whether bits are drawn by a kernel of ours; what is compiled is fused by the compiler."""
    return device.type == "cuda" and _HAS_TRITON and not torch.compiler.is_compiling()


def _axes(stream: Int[Tensor, "..."], counter: Int[Tensor, "..."] | int) -> int:
    return max(stream.dim(), 0 if isinstance(counter, int) else counter.dim())


def take_bits(bits: Int[Tensor, "*shape"], low: int, count: int) -> Int[Tensor, "*shape"]:
    """Read bits `low` to `low + count` as a number in range(2**count)."""
    return (bits >> low) & ((1 << count) - 1)


def _shift(bits: Int[Tensor, "*shape"], count: int) -> Int[Tensor, "*shape"]:
    """Shift right, filling with zeros: `>>` alone would drag the sign along."""
    return (bits >> count) & (_MASK >> count)
