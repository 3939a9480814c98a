"""What two threads that share a channel exchange, in tensors [2, 16]: a value for each thread.

A tile of 16 states by 16 channels is walked by one warp. Thread (half, c) has the states 8 half to
8 half + 7 of channel c as a tuple of 8 tensors [2, 16]. There are as many values as threads, so
that Triton can lay such a tensor out in one way alone, which `has_a_value_a_thread` makes sure of:
then one shuffle in PTX is an exchange. Where not NATIVE, as in the interpreter, a gather is one.
"""

import re
from functools import lru_cache
from typing import no_type_check

import triton
import triton.language as tl

OWN = tl.constexpr(8)
"""States of a thread."""
SWAP = tl.constexpr("shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;")
GIVE = tl.constexpr("shfl.sync.idx.b32 $0, $1, $2, 0x1f, 0xffffffff;")


def _load(width: int) -> tl.constexpr:
    """Return PTX that loads 8 values from a pointer, `width` at a time."""
    lines = []
    for first in range(0, 8, width):
        values = ", ".join(f"${first + i}" for i in range(width))
        kind, group = (f"v{width}.f32", f"{{{values}}}") if width > 1 else ("f32", values)
        lines += [f"ld.global.{kind} {group}, [$8 + {4 * first}];"]
    return tl.constexpr(" ".join(lines))


LOAD_1, LOAD_2, LOAD_4 = (_load(width) for width in (1, 2, 4))
LOAD_CONSTRAINTS = tl.constexpr(",".join(["=f"] * 8 + ["l"]))
STORE_CONSTRAINTS = tl.constexpr(",".join(["=r", "l"] + ["f"] * 8))


@no_type_check
@triton.constexpr_function
def tile_load(width):
    """Return PTX that loads 8 values from a pointer, `width` values apart."""
    return " ".join(f"ld.global.f32 ${k}, [$8 + {4 * k * width}];" for k in range(8))


@no_type_check
@triton.constexpr_function
def tile_store(width):
    """Return PTX that stores 8 values likewise, and makes a 0 of it, for Triton wants a result."""
    stores = (f"st.global.f32 [$1 + {4 * k * width}], ${k + 2};" for k in range(8))
    return " ".join(["mov.u32 $0, 0;", *stores])


@no_type_check
@triton.jit
def swap(value, thread, DISTANCE: tl.constexpr, NATIVE: tl.constexpr):
    """Return the value of the thread whose number differs in the bit DISTANCE."""
    if NATIVE:
        return tl.inline_asm_elementwise(
            SWAP, "=f,f,r", [value, DISTANCE], dtype=tl.float32, is_pure=True, pack=1
        )
    if DISTANCE < 2 * OWN:
        return tl.gather(value, (thread % 16) ^ DISTANCE, 1)
    return tl.gather(value, 1 - thread // 16, 0)


@no_type_check
@triton.jit
def give(value, thread, HALF: tl.constexpr, NATIVE: tl.constexpr):
    """Return the value that the thread of half HALF has to both threads of a channel."""
    if NATIVE:
        giver = thread % 16 + 16 * HALF
        return tl.inline_asm_elementwise(
            GIVE, "=f,f,r", [value, giver], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.gather(value, thread * 0 + HALF, 0)


@no_type_check
@triton.jit
def halve(first, second, thread, DISTANCE: tl.constexpr, NATIVE: tl.constexpr):
    """Sum two values over the threads that differ in the bit DISTANCE of their number.

    The thread with a 0 there gets the sum of the first, the one with a 1 that of the second: one
    exchange for two sums.
    """
    bit = thread & DISTANCE != 0
    sent = tl.where(bit, first, second)
    return tl.where(bit, second, first) + swap(sent, thread, DISTANCE, NATIVE)


@no_type_check
@triton.jit
def halve_products(
    first, factor, second, other_factor, thread, DISTANCE: tl.constexpr, NATIVE: tl.constexpr
):
    """Do the same with the products of two values and two factors."""
    bit = thread & DISTANCE != 0
    sent = tl.where(bit, first, second) * tl.where(bit, factor, other_factor)
    kept = tl.where(bit, second, first) * tl.where(bit, other_factor, factor)
    return kept + swap(sent, thread, DISTANCE, NATIVE)


@no_type_check
@triton.jit
def load_own(ptr, WIDE: tl.constexpr, NATIVE: tl.constexpr):
    """Load the 8 states of a thread from its pointer, WIDE at a time."""
    if NATIVE:
        # Triton would rather load them in another layout, and hand them round the threads.
        return tl.inline_asm_elementwise(
            LOAD_1 if WIDE % 2 else (LOAD_2 if WIDE % 4 else LOAD_4), LOAD_CONSTRAINTS, [ptr],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32,
                   tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False, pack=1,
        )  # fmt: skip
    values = ()
    for k in tl.static_range(OWN):
        values += (tl.load(ptr + k),)
    return values


@no_type_check
@triton.jit
def load_tile(ptr, WIDTH: tl.constexpr, NATIVE: tl.constexpr):
    """Load 8 states of each thread from a tile with WIDTH channels a row.

    As one instruction: Triton looks for the best layout of each load among all that have to do with
    it, which takes seconds where there are a hundred.
    """
    if NATIVE:
        return tl.inline_asm_elementwise(
            tile_load(WIDTH), LOAD_CONSTRAINTS, [ptr],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32,
                   tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=False, pack=1,
        )  # fmt: skip
    values = ()
    for k in tl.static_range(OWN):
        values += (tl.load(ptr + k * WIDTH),)
    return values


@no_type_check
@triton.jit
def store_tile(ptr, values, WIDTH: tl.constexpr, NATIVE: tl.constexpr):
    """Store them likewise."""
    if NATIVE:
        tl.inline_asm_elementwise(
            tile_store(WIDTH), STORE_CONSTRAINTS,
            [ptr.to(tl.int64), values[0], values[1], values[2], values[3],
             values[4], values[5], values[6], values[7]],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip
    else:
        for k in tl.static_range(OWN):
            tl.store(ptr + k * WIDTH, values[k])


@lru_cache(maxsize=1024)
def has_a_value_a_thread(ttgir: str) -> bool:
    """Tell from a compiled kernel's code whether its exchanges see the layout that they need."""
    used = re.findall(r"tt\.elementwise_inline_asm.*-> tensor<2x16xf32, #(\w+)>", ttgir)
    layouts = dict(re.findall(r"#(\w+) = #ttg\.blocked<\{(.*?)\}>", ttgir))
    wanted = (
        "sizePerThread = [1, 1], threadsPerWarp = [2, 16], warpsPerCTA = [1, 1], order = [1, 0]"
    )
    return bool(used) and all(layouts.get(name) == wanted for name in used)
