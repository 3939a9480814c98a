"""What one step of the selective scan does to a tile, and how its inputs come near in time.

The packed axis is cut into chunks of CHUNK steps, blind to where sequences start: at a start the
state is put to zero on the way. Step `tau` counts in walking order; its place in memory is
`steps - 1 - tau` when REVERSE. A tile is [N, C]: N states by C channels, walked by one warp.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.triton_math import LN_2, hold_weight, sigmoid, softplus


@no_type_check
@triton.jit
def follow(PDL: tl.constexpr):
    """Let the next kernel start early, and wait for the end of the one before, if PDL.

    A GPU that knows programmatic dependent launches then has the programs of the next kernel in
    place when the last ones of this kernel end.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@no_type_check
@triton.jit
def within(index, bound, valid):
    """Mask `index < bound` in a valid step, nothing in another.

    The bound is chosen, not the masks joined: Triton's interpreter cannot join a vector of truth
    values with a scalar one.
    """
    return index < tl.where(valid, bound, 0)


@no_type_check
@triton.constexpr_function
def power_of_two_from(count):
    """Return the least power of two that is not below `count`."""
    return 1 << (count - 1).bit_length()


@no_type_check
@triton.jit
def starts_in_chunk(starts_ptr, chunk, steps, CHUNK: tl.constexpr):
    """Return steps of a chunk, and a few behind, and whether a sequence starts with each there."""
    step = tl.arange(0, power_of_two_from(CHUNK))
    tau = chunk * CHUNK + step
    count = tl.minimum(CHUNK, steps - chunk * CHUNK)
    word = tl.load(starts_ptr + tau // 32, mask=step < count, other=0)
    return step, ((word >> (tau % 32)) & 1) != 0


@no_type_check
@triton.jit
def load_starts(starts_ptr, tau, COUNT: tl.constexpr):
    """Load the bits of COUNT steps from `tau` on, which stay inside a word."""
    return (tl.load(starts_ptr + tau // 32) >> (tau % 32)) & ((1 << COUNT) - 1)


@no_type_check
@triton.constexpr_function
def fills_blocks(inner, block):
    """Tell whether the last block of channels is full, too."""
    return inner % block == 0


@no_type_check
@triton.jit
def load_channels(ptr, c, INNER: tl.constexpr, ONCE: tl.constexpr = False, at=0):
    """Load one value for each channel; only a block that reaches past the last one needs a mask.

    What is read ONCE leaves the first cache to others. The row begins `at` places behind `ptr`: so
    written, a pointer is the same for all threads, and stays out of their registers.
    """
    if fills_blocks(INNER, c.shape[0]):
        return tl.load(ptr + (c + at), cache_modifier=".cg" if ONCE else "")
    return tl.load(ptr + (c + at), mask=c < INNER, other=0.0, cache_modifier=".cg" if ONCE else "")


@no_type_check
@triton.jit
def store_channels(ptr, c, values, INNER: tl.constexpr, at=0):
    """Store one value for each channel, likewise."""
    if fills_blocks(INNER, c.shape[0]):
        tl.store(ptr + (c + at), values)
    else:
        tl.store(ptr + (c + at), values, mask=c < INNER)


@no_type_check
@triton.jit
def load_states(ptr, n, STATE: tl.constexpr):
    """Load B or C of a step; the states that fill up a power of two are 0."""
    if n.shape[0] == STATE:
        return tl.load(ptr + n).to(tl.float32)
    return tl.load(ptr + n, mask=n < STATE, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def by_state(values):
    """Return B or C of a step as a column, unless it is a tile already."""
    return values[:, None] if len(values.shape) == 1 else values


@no_type_check
@triton.jit
def load_steps(
    ptr, c, STRIDE: tl.constexpr, INNER: tl.constexpr, COUNT: tl.constexpr,
    ONCE: tl.constexpr = False, at=0,
):  # fmt: skip
    """Load COUNT steps from `ptr` on as a tuple."""
    values = ()
    for i in tl.static_range(COUNT):
        values += (load_channels(ptr + i * STRIDE, c, INNER, ONCE, at),)
    return values


@no_type_check
@triton.jit
def load_slots(ptr, SIGN: tl.constexpr, COUNT: tl.constexpr):
    """Load the slots that COUNT steps visit as a tuple."""
    slots = ()
    for i in tl.static_range(COUNT):
        slots += (tl.load(ptr + i * SIGN).to(tl.int32),)
    return slots


@no_type_check
@triton.jit
def row_of(slot, rows, HAS_SAMPLES: tl.constexpr):
    """Return the row at a slot; samples repeat the rows."""
    return (slot % rows if HAS_SAMPLES else slot).to(tl.int64)


@no_type_check
@triton.jit
def load_rows(
    ptr, slots, rows, c, STRIDE: tl.constexpr, INNER: tl.constexpr, HAS_SAMPLES: tl.constexpr,
    COUNT: tl.constexpr, ONCE: tl.constexpr = False,
):  # fmt: skip
    """Load the rows at COUNT slots as a tuple."""
    values = ()
    for i in tl.static_range(COUNT):
        at = ptr + row_of(slots[i], rows, HAS_SAMPLES) * STRIDE
        values += (load_channels(at, c, INNER, ONCE),)
    return values


@no_type_check
@triton.jit
def in_vector_registers(offset, NATIVE: tl.constexpr):
    """Keep a scalar where loads want their addresses, in ordinary registers.

    The compiler keeps what is the same for all threads in uniform registers, and then copies the
    two words of an address out of them for every single load.
    """
    if NATIVE:
        # No thread comes after the last: a 0 of which the compiler does not know that it is one.
        return tl.inline_asm_elementwise(
            "{ .reg .u32 r; mov.u32 r, %lanemask_lt; shr.u32 r, r, 31; add.u32 $0, r, $1; }",
            "=r,r", [offset], dtype=tl.int32, is_pure=True, pack=1,
        )  # fmt: skip
    return offset


@no_type_check
@triton.jit
def touch(
    B_ptr, C_ptr, left, B_STRIDE: tl.constexpr, C_STRIDE: tl.constexpr, STATE: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Read B and C of COUNT steps at four points each, so that their cache sectors are near.

    Every thread wants all of B and C, too much to be held in registers ahead of time.
    """
    lane = tl.arange(0, 8 * COUNT)
    step, point = lane // 8, (lane % 4) * (STATE - 1) // 3
    ptr = tl.where(lane % 8 < 4, B_ptr + step * B_STRIDE, C_ptr + step * C_STRIDE) + point
    return tl.load(ptr, mask=step < left, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def row_sectors(
    ptr, corner, order_ptr, rows, left, STRIDE: tl.constexpr, SIGN: tl.constexpr,
    INNER: tl.constexpr, C: tl.constexpr, GATHERS: tl.constexpr, HAS_SAMPLES: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Point to every sector of the rows that COUNT steps visit, from channel `corner` on.

    Returns the pointers, and which of them lie in the `left` steps that there are.
    """
    lane = tl.arange(0, COUNT * C // 8)
    step, sector = lane // (C // 8), lane % (C // 8)
    row = (step * SIGN).to(tl.int64)
    if GATHERS:
        row = tl.load(order_ptr + step * SIGN, mask=step < left, other=0).to(tl.int64)
        if HAS_SAMPLES:
            row = row % rows
    channel = corner + sector * 8
    # The last block of channels may reach past the end of a row.
    return ptr + row * STRIDE + channel, (step < left) & (channel < INNER)


@no_type_check
@triton.jit
def touch_rows(
    ptr, corner, order_ptr, rows, left, STRIDE: tl.constexpr, SIGN: tl.constexpr,
    INNER: tl.constexpr, C: tl.constexpr, GATHERS: tl.constexpr, HAS_SAMPLES: tl.constexpr,
    COUNT: tl.constexpr,
):  # fmt: skip
    """Read every sector of the rows that COUNT steps visit, from channel `corner` on, likewise."""
    at, is_there = row_sectors(
        ptr, corner, order_ptr, rows, left, STRIDE, SIGN, INNER, C, GATHERS, HAS_SAMPLES, COUNT
    )
    return tl.load(at, mask=is_there, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def fetch(ptr, is_there, NATIVE: tl.constexpr):
    """Let sectors come as near as the second cache, where nothing is kept of them or waited for."""
    if NATIVE:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
            "=r,l,r", [ptr.to(tl.int64), is_there.to(tl.int32)], dtype=tl.int32, is_pure=False,
            pack=1,
        )  # fmt: skip


@no_type_check
@triton.jit
def tile_sectors(ptr, valid, WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    """Point to every sector of a tile of states, likewise."""
    lane = tl.arange(0, N * C // 8)
    row, sector = lane // (C // 8), lane % (C // 8)
    return ptr + row * WIDTH + sector * 8, within(lane, N * C, valid)


@no_type_check
@triton.jit
def touch_tile(ptr, valid, WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    """Read every sector of a tile of states, likewise."""
    at, is_there = tile_sectors(ptr, valid, WIDTH, N, C)
    return tl.load(at, mask=is_there, other=0.0)


@no_type_check
@triton.jit
def keep_alive(ptr, touched, steps, COUNT: tl.constexpr):
    """Use touched values in a store that never happens; else the compiler drops their loads."""
    lane = tl.arange(0, COUNT)
    tl.store(ptr + lane, touched, mask=within(lane, COUNT, steps < 0))


@no_type_check
@triton.jit
def clear_at_start(h, starts, i):
    """Put the state to zero where a sequence starts; a select, so that no NaN comes through."""
    return tl.where((starts >> i) & 1 != 0, 0.0, h)


@no_type_check
@triton.jit
def step_size(raw, bias, SOFTPLUS: tl.constexpr):
    """Return dt of one step from the raw delta."""
    raw = raw.to(tl.float32) + bias
    return softplus(raw) if SOFTPLUS else raw


@no_type_check
@triton.jit
def step_sizes(raws, bias, SOFTPLUS: tl.constexpr, COUNT: tl.constexpr):
    """Return dt of COUNT steps; together their long chains of arithmetic overlap."""
    dts = ()
    for i in tl.static_range(COUNT):
        dts += (step_size(raws[i], bias, SOFTPLUS),)
    return dts


@no_type_check
@triton.jit
def hold_loads_here():
    """Keep the compiler from moving the loads above down to their first use, to save registers.

    A program is one warp, so that the barrier itself waits for nobody.
    """
    tl.debug_barrier()


@no_type_check
@triton.jit
def advance(h, dt, u, B, A2, ZOH: tl.constexpr):
    """Return (decayed state, new state) after one step from state `h`."""
    x = dt[None, :] * A2  # [N, C]
    a = tl.exp2(x)
    p = a * h
    if ZOH:
        w = hold_weight(a, x * LN_2, dt[None, :], A2 * LN_2)
        return p, p + w * (u[None, :] * by_state(B))
    return p, p + (dt * u)[None, :] * by_state(B)


@no_type_check
@triton.jit
def load_grads(
    grad_ptr, z_ptr, order_ptr, rows, c, SIGN: tl.constexpr, GRAD_STRIDE: tl.constexpr,
    Z_STRIDE: tl.constexpr, INNER: tl.constexpr, HAS_Z: tl.constexpr, HAS_ORDER: tl.constexpr,
    HAS_SAMPLES: tl.constexpr, SCATTER: tl.constexpr, COUNT: tl.constexpr,
    ONCE: tl.constexpr = False, at=0,
):  # fmt: skip
    """Load the output's gradient, the gate and the slot of COUNT steps, as three tuples."""
    slots = ()
    if HAS_ORDER:
        slots = load_slots(order_ptr, SIGN, COUNT)
    if SCATTER:
        grads = load_rows(grad_ptr, slots, rows, c, GRAD_STRIDE, INNER, False, COUNT, ONCE)
    else:
        grads = load_steps(grad_ptr, c, SIGN * GRAD_STRIDE, INNER, COUNT, ONCE, at * GRAD_STRIDE)
    zs = grads
    if HAS_Z and HAS_ORDER:
        zs = load_rows(z_ptr, slots, rows, c, Z_STRIDE, INNER, HAS_SAMPLES, COUNT, ONCE)
    elif HAS_Z:
        zs = load_steps(z_ptr, c, SIGN * Z_STRIDE, INNER, COUNT, ONCE, at * Z_STRIDE)
    return grads, zs, slots


@no_type_check
@triton.jit
def through_gate(dy, z, HAS_Z: tl.constexpr):
    """Return the gradient before the gate."""
    dy = dy.to(tl.float32)
    if HAS_Z:
        z = z.to(tl.float32)
        dy *= z * sigmoid(z)
    return dy
