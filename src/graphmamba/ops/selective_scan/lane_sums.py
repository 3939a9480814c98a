"""Sums over the 32 channels of a tile, for all its states at once, by the fewest exchanges.

A butterfly for each state takes 5 exchanges between threads, 160 for two tiles of 16 states. By
halving instead, a thread keeps one half of its values at each of 5 levels and hands over the other,
31 exchanges in all. Triton has no word for it, so it is written in PTX here.

The PTX sees registers, not tensors: it is right only where every thread of a single warp holds one
channel with its 16 states in order. `fused` checks the compiled kernel for that layout.
"""

import re
from functools import lru_cache
from typing import no_type_check

import triton
import triton.language as tl

STATES, CHANNELS = 16, 32


def _halving() -> str:
    """Return PTX that leaves in thread t the sum of value t over all threads.

    The first level gets what a thread hands over, and what it keeps as two factors.
    """
    send, kept, scale = ([f"${STATES * k + i}" for i in range(STATES)] for k in (1, 2, 3))
    lines = ["{", ".reg .pred p;", ".reg .b32 lane, bit;", ".reg .f32 keep, send;"]
    lines += [f".reg .f32 v{i};" for i in range(STATES)]
    lines += ["mov.u32 lane, %laneid;"]
    for i in range(STATES):
        lines += [exchange(send[i], STATES), f"fma.rn.f32 v{i}, {kept[i]}, {scale[i]}, send;"]
    lines += halve(STATES)
    lines += [f"mov.f32 ${i}, v0;" for i in range(STATES)]
    return "\n".join([*lines, "}"])


def halve(half: int) -> list[str]:
    """Return PTX that leaves in v0 one of the sums of so many values over as many threads."""
    lines = []
    while half := half // 2:
        lines += [f"and.b32 bit, lane, {half};", "setp.ne.u32 p, bit, 0;"]
        for i in range(half):
            lines += [
                f"selp.f32 send, v{i}, v{i + half}, p;",
                f"selp.f32 keep, v{i + half}, v{i}, p;",
                exchange("send", half),
                f"add.f32 v{i}, keep, send;",
            ]
    return lines


def exchange(value: str, distance: int) -> str:
    """Return PTX for what a thread so far away hands over."""
    return f"shfl.sync.bfly.b32 send, {value}, {distance}, 0x1f, 0xffffffff;"


HALVING = tl.constexpr(_halving())
CONSTRAINTS = tl.constexpr(",".join(["=f"] * STATES + ["f"] * (3 * STATES)))


@no_type_check
@triton.jit
def sum_lanes(g, v, h, dy, n):
    """Sum g v and h dy, tiles [16, 32], over their channels: 16 sums of the first, then 16 more.

    A thread of the upper half hands over g v and keeps h dy, the others do it the other way about:
    the factors are chosen, not the products, so that half of these are joined to the sums.
    """
    is_upper = (tl.arange(0, h.shape[1]) >= h.shape[1] // 2)[None, :]
    send = tl.where(is_upper, g, h) * tl.where(is_upper, v, dy)
    kept, scale = tl.where(is_upper, h, g), tl.where(is_upper, dy, v)
    sums = tl.inline_asm_elementwise(
        HALVING, CONSTRAINTS, [send, kept, tl.broadcast_to(scale, kept.shape)], dtype=tl.float32,
        is_pure=True, pack=16,
    )  # fmt: skip
    # All 16 registers of a thread hold the same sum: take the first.
    return tl.sum(tl.where(n[:, None] == 0, sums, 0.0), axis=0)


@lru_cache(maxsize=1024)
def has_a_channel_a_thread(ttgir: str) -> bool:
    """Tell from a compiled kernel's code whether `sum_lanes` sees the layout that it needs."""
    used = re.findall(r"tt\.elementwise_inline_asm.*-> tensor<16x32xf32, #(\w+)>", ttgir)
    layouts = dict(re.findall(r"#(\w+) = #ttg\.blocked<\{(.*?)\}>", ttgir))
    wanted = (
        "sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [1, 1], order = [1, 0]"
    )
    return bool(used) and all(layouts.get(name) == wanted for name in used)
