"""Tiles whose upper 16 threads hold their states 8 to 15 first, then 0 to 7.

What a thread holds in a register is its own affair, as long as nobody else looks. Where sums over
the channels are halved, its partner does: a thread keeps one half of its states and hands over the
other. With halves that lie swapped in every other thread, both always keep the first and hand over
the second, so that nothing is chosen at the first level, where most values are.

As in `lane_sums`, the PTX is right only where a thread of a single warp holds one channel with its
16 states in order.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.lane_sums import CHANNELS, STATES, exchange, halve

HALF = STATES // 2


def _swapped_sums() -> str:
    """Return PTX for sums over all threads of the products of two factors, of two such pairs."""
    factors = [[f"${STATES * k + i}" for i in range(STATES)] for k in (1, 2, 3, 4)]
    lines = ["{", ".reg .pred p;", ".reg .b32 lane, bit;", ".reg .f32 keep, send;"]
    lines += [f".reg .f32 v{i};" for i in range(STATES)]
    lines += ["mov.u32 lane, %laneid;"]
    for pair, (left, right) in enumerate((factors[:2], factors[2:])):
        for i in range(HALF):
            lines += [
                f"mul.f32 send, {left[i + HALF]}, {right[i + HALF]};",
                exchange("send", CHANNELS // 2),
                f"fma.rn.f32 v{pair * HALF + i}, {left[i]}, {right[i]}, send;",
            ]
    lines += halve(STATES)
    lines += [f"mov.f32 ${i}, v0;" for i in range(STATES)]
    return "\n".join([*lines, "}"])


@no_type_check
@triton.constexpr_function
def swapped_load(width, dtype):
    """Return PTX that loads 16 states, `width` at a time, from two places of 8 each."""
    kind = dtype.name
    size, is_single = (4, True) if kind == "fp32" else (2, False)
    lines = ["{"] + [f".reg .b16 x{i};" for i in range(STATES) if not is_single]
    lines += [".reg .b16 zero;", "mov.b16 zero, 0;"]
    for first in range(0, STATES, width):
        place = f"[${STATES * (1 + first // HALF)}+{first % HALF * size}]"
        names = [f"${i}" if is_single else f"x{i}" for i in range(first, first + width)]
        to = "{" + ",".join(names) + "}" if width > 1 else names[0]
        vector = f".v{width}" if width > 1 else ""
        lines += [f"ld.global{vector}.{'f32' if is_single else 'b16'} {to}, {place};"]
    for i in range(STATES):
        if kind == "bf16":
            lines += [f"mov.b32 ${i}, {{zero, x{i}}};"]
        elif kind == "fp16":
            lines += [f"cvt.f32.f16 ${i}, x{i};"]
    return "\n".join([*lines, "}"])


SWAPPED_SUMS = tl.constexpr(_swapped_sums())
SUMMED = tl.constexpr(",".join(["=f"] * STATES + ["f"] * (4 * STATES)))
LOADED = tl.constexpr(",".join(["=f"] * STATES + ["l"] * (2 * STATES)))
SWAP = tl.constexpr(HALF)


@no_type_check
@triton.jit
def swapped_states(n, C: tl.constexpr):
    """Return which state lies where in a tile [16, 32]."""
    half = n // SWAP
    return (n % SWAP)[:, None] + (half[:, None] ^ (tl.arange(0, C) // (C // 2))[None, :]) * SWAP


@no_type_check
@triton.jit
def load_swapped(ptr, at, n, C: tl.constexpr, WIDTH: tl.constexpr):
    """Load B or C of the step `at` this place for each thread; WIDTH values can be read at once."""
    first = tl.arange(0, C) // (C // 2) * SWAP
    shape: tl.constexpr = [n.shape[0], C]
    near = tl.broadcast_to((ptr + (at + first)).to(tl.int64)[None, :], shape)
    far = tl.broadcast_to((ptr + (at + SWAP - first)).to(tl.int64)[None, :], shape)
    return tl.inline_asm_elementwise(
        swapped_load(WIDTH, ptr.dtype.element_ty), LOADED, [near, far], dtype=tl.float32,
        is_pure=False, pack=16,
    )  # fmt: skip


@no_type_check
@triton.jit
def sum_swapped(g, v, h, dy, n):
    """Sum g v and h dy over the channels; `swapped_sums` says where each thread's sum belongs."""
    shape: tl.constexpr = g.shape
    sums = tl.inline_asm_elementwise(
        SWAPPED_SUMS, SUMMED, [g, tl.broadcast_to(v, shape), h, tl.broadcast_to(dy, shape)],
        dtype=tl.float32, is_pure=True, pack=16,
    )  # fmt: skip
    # All 16 registers of a thread hold the same sum: take the first.
    return tl.sum(tl.where(n[:, None] == 0, sums, 0.0), axis=0)


@no_type_check
@triton.jit
def swapped_sums(dB_ptr, dC_ptr, at, STATE: tl.constexpr):
    """Point to the gradient of B or C that each thread has summed for a step."""
    lane = tl.arange(0, 2 * STATE)
    state = lane % SWAP + lane // STATE * SWAP
    return tl.where(lane // SWAP % 2 == 0, dB_ptr + state, dC_ptr + state) + at * STATE
