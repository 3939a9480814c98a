"""One step of the selective scan on a tile, and loads and prefetches of its inputs.

The packed axis is divided into chunks of CHUNK steps, regardless of where sequences start: there
the state is set to zero. Step `tau` counts in the direction of the scan; its position in memory is
`steps - 1 - tau` if REVERSE. A tile is [N, C]: N states by C channels, for one warp.

The second half is PTX: sums over the 32 channels of a tile, and states in shared memory. It works
on registers and is correct only if each thread of a single warp holds one channel with its 16
states in order. The launcher checks the layout of the compiled kernel (`has_a_channel_a_thread`).
"""

import re
from functools import lru_cache
from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.triton_kernels import LN_2, hold_weight, sigmoid, softplus


@no_type_check
@triton.jit
def follow(PDL: tl.constexpr):
    """If PDL (programmatic dependent launch): let the next kernel launch, wait for the last."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@no_type_check
@triton.jit
def within(index, bound, valid):
    """Mask `(index < bound) & valid`, which Triton's interpreter cannot compute from a scalar."""
    return index < tl.where(valid, bound, 0)


@no_type_check
@triton.constexpr_function
def power_of_two_from(count):
    """Return the smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


@no_type_check
@triton.jit
def starts_in_chunk(starts_ptr, chunk, steps, CHUNK: tl.constexpr):
    """Return the steps of a chunk, padded to a power of two, and which start a sequence."""
    step = tl.arange(0, power_of_two_from(CHUNK))
    tau = chunk * CHUNK + step
    count = tl.minimum(CHUNK, steps - chunk * CHUNK)
    word = tl.load(starts_ptr + tau // 32, mask=step < count, other=0)
    return step, ((word >> (tau % 32)) & 1) != 0


@no_type_check
@triton.jit
def load_starts(starts_ptr, tau, COUNT: tl.constexpr):
    """Load the start bits of COUNT steps from `tau` on, all in one word."""
    return (tl.load(starts_ptr + tau // 32) >> (tau % 32)) & ((1 << COUNT) - 1)


@no_type_check
@triton.constexpr_function
def fills_blocks(inner, block):
    """Whether `block` divides the number of channels."""
    return inner % block == 0


@no_type_check
@triton.jit
def load_channels(ptr, c, INNER: tl.constexpr, ONCE: tl.constexpr = False, at=0):
    """Load one value per channel, with a mask only where the last block is not full.

    ONCE bypasses the L1 cache. The row starts at `ptr + at`: as `c + at`, the offset is added per
    thread, and the pointer, equal for all threads, takes none of their registers.
    """
    if fills_blocks(INNER, c.shape[0]):
        return tl.load(ptr + (c + at), cache_modifier=".cg" if ONCE else "")
    return tl.load(ptr + (c + at), mask=c < INNER, other=0.0, cache_modifier=".cg" if ONCE else "")


@no_type_check
@triton.jit
def store_channels(ptr, c, values, INNER: tl.constexpr, at=0):
    """Store one value per channel."""
    if fills_blocks(INNER, c.shape[0]):
        tl.store(ptr + (c + at), values)
    else:
        tl.store(ptr + (c + at), values, mask=c < INNER)


@no_type_check
@triton.jit
def load_states(ptr, n, STATE: tl.constexpr):
    """Load B or C of a step; padding states are 0."""
    if n.shape[0] == STATE:
        return tl.load(ptr + n).to(tl.float32)
    return tl.load(ptr + n, mask=n < STATE, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def by_state(values):
    """Return B or C of a step as a column; a tile is returned as it is."""
    return values[:, None] if len(values.shape) == 1 else values


@no_type_check
@triton.jit
def load_steps(
    ptr, c, STRIDE: tl.constexpr, INNER: tl.constexpr, COUNT: tl.constexpr,
    ONCE: tl.constexpr = False, at=0,
):  # fmt: skip
    """Load the rows of COUNT steps as a tuple."""
    values = ()
    for i in tl.static_range(COUNT):
        values += (load_channels(ptr + i * STRIDE, c, INNER, ONCE, at),)
    return values


@no_type_check
@triton.jit
def load_slots(ptr, SIGN: tl.constexpr, COUNT: tl.constexpr):
    """Load `order` at COUNT steps as a tuple."""
    slots = ()
    for i in tl.static_range(COUNT):
        slots += (tl.load(ptr + i * SIGN).to(tl.int32),)
    return slots


@no_type_check
@triton.jit
def row_of(slot, rows, HAS_SAMPLES: tl.constexpr):
    """Row of a slot; slot `s` of several samples is row `s % rows`."""
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
    """Move a scalar from uniform to ordinary registers.

    The compiler keeps scalars in uniform registers, and would copy both words of an address from
    there for every load.
    """
    if NATIVE:
        # Bit 31 of %lanemask_lt is always 0, which the compiler does not know.
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
    """Prefetch B and C of COUNT steps: one load per cache sector, four each.

    Every thread needs all of B and C, too much to be loaded into registers in advance.
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
    """Return pointers to all sectors of the rows of COUNT steps, from channel `corner` on.

    Also returns a mask of those in the `left` steps that exist.
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
    """Prefetch the rows of COUNT steps by a load from each sector."""
    at, is_there = row_sectors(
        ptr, corner, order_ptr, rows, left, STRIDE, SIGN, INNER, C, GATHERS, HAS_SAMPLES, COUNT
    )
    return tl.load(at, mask=is_there, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def fetch(ptr, is_there, NATIVE: tl.constexpr):
    """Prefetch sectors into the L2 cache, without registers or a wait."""
    if NATIVE:
        tl.inline_asm_elementwise(
            "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p prefetch.global.L2 [$1]; mov.u32 $0, 0; }",
            "=r,l,r", [ptr.to(tl.int64), is_there.to(tl.int32)], dtype=tl.int32, is_pure=False,
            pack=1,
        )  # fmt: skip


@no_type_check
@triton.jit
def tile_sectors(ptr, valid, WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    """Return pointers to all sectors of a tile of states, and a mask."""
    lane = tl.arange(0, N * C // 8)
    row, sector = lane // (C // 8), lane % (C // 8)
    return ptr + row * WIDTH + sector * 8, within(lane, N * C, valid)


@no_type_check
@triton.jit
def touch_tile(ptr, valid, WIDTH: tl.constexpr, N: tl.constexpr, C: tl.constexpr):
    """Prefetch a tile of states by a load from each sector."""
    at, is_there = tile_sectors(ptr, valid, WIDTH, N, C)
    return tl.load(at, mask=is_there, other=0.0)


@no_type_check
@triton.jit
def keep_alive(ptr, touched, steps, COUNT: tl.constexpr):
    """Use prefetched values in a store that never runs; else the compiler removes their loads."""
    lane = tl.arange(0, COUNT)
    tl.store(ptr + lane, touched, mask=within(lane, COUNT, steps < 0))


@no_type_check
@triton.jit
def clear_at_start(h, starts, i):
    """Set the state to zero where a sequence starts; `where` also removes NaN."""
    return tl.where((starts >> i) & 1 != 0, 0.0, h)


@no_type_check
@triton.jit
def step_size(raw, bias, SOFTPLUS: tl.constexpr):
    """Return dt of one step."""
    raw = raw.to(tl.float32) + bias
    return softplus(raw) if SOFTPLUS else raw


@no_type_check
@triton.jit
def step_sizes(raws, bias, SOFTPLUS: tl.constexpr, COUNT: tl.constexpr):
    """Return dt of COUNT steps; computed together, their instructions overlap."""
    dts = ()
    for i in tl.static_range(COUNT):
        dts += (step_size(raws[i], bias, SOFTPLUS),)
    return dts


@no_type_check
@triton.jit
def hold_loads_here():
    """Keep the compiler from moving the loads above down to their first use.

    With one warp per program, the barrier itself costs nothing.
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
    """Load the gradient of the output, the gate and the slot of COUNT steps, as tuples."""
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
    """Gradient before the gate."""
    dy = dy.to(tl.float32)
    if HAS_Z:
        z = z.to(tl.float32)
        dy *= z * sigmoid(z)
    return dy


@no_type_check
@triton.jit
def at_chunk(
    first, steps, grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr, du_ptr, ddelta_ptr,
    dB_ptr, dC_ptr, dz_ptr, GRAD_STRIDE: tl.constexpr, U_STRIDE: tl.constexpr,
    DELTA_STRIDE: tl.constexpr, B_STRIDE: tl.constexpr, B_SHIFT: tl.constexpr,
    C_STRIDE: tl.constexpr, C_SHIFT: tl.constexpr, Z_STRIDE: tl.constexpr,
    DZ_STRIDE: tl.constexpr, INNER: tl.constexpr, STATE: tl.constexpr, HAS_ORDER: tl.constexpr,
    SCATTER: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Advance all pointers to the first step of a chunk, except those indexed by `order`."""
    base = steps - 1 - first if REVERSE else first
    far = base.to(tl.int64)
    u_ptr += far * U_STRIDE
    delta_ptr += far * DELTA_STRIDE
    B_ptr += far * B_STRIDE + B_SHIFT
    C_ptr += far * C_STRIDE + C_SHIFT
    order_ptr += base
    du_ptr += far * INNER
    ddelta_ptr += far * INNER
    part = tl.program_id(1).to(tl.int64) * steps
    dB_ptr += (part + far) * STATE
    dC_ptr += (part + far) * STATE
    if not SCATTER:
        grad_ptr += far * GRAD_STRIDE
        dz_ptr += far * DZ_STRIDE
    if not HAS_ORDER:
        z_ptr += far * Z_STRIDE
    return (
        grad_ptr, u_ptr, delta_ptr, B_ptr, C_ptr, z_ptr, order_ptr, du_ptr, ddelta_ptr, dB_ptr,
        dC_ptr, dz_ptr,
    )  # fmt: skip


@no_type_check
@triton.jit
def load_adjoint(
    adjoints_ptr, starts_ptr, chunk, chunks, tile, CHUNK: tl.constexpr, WIDTH: tl.constexpr,
    N: tl.constexpr, C: tl.constexpr,
):  # fmt: skip
    """Load the adjoint that the next chunk passes back to this one."""
    adjoint = tl.zeros([N, C], tl.float32)
    if chunk < chunks - 1:
        # Not written where the next chunk begins with the start of a sequence.
        is_end = load_starts(starts_ptr, chunk * CHUNK + CHUNK, 1) != 0
        adjoint = tl.load(
            adjoints_ptr + chunk.to(tl.int64) * N * WIDTH + tile,
            mask=within(tile, N * WIDTH, is_end == 0), other=0.0,
        )  # fmt: skip
    return adjoint


@no_type_check
@triton.jit
def store_parts(parts_ptr, chunk, tile, c, dA, dD, dbias, WIDTH: tl.constexpr, N: tl.constexpr):
    """Write a chunk's partial gradients of A, D and the bias, and return their address."""
    parts_ptr += chunk.to(tl.int64) * (N + 2) * WIDTH
    tl.store(parts_ptr + tile, dA)
    tl.store(parts_ptr + N * WIDTH + c, dD)
    tl.store(parts_ptr + (N + 1) * WIDTH + c, dbias)
    return parts_ptr


STATES, CHANNELS = 16, 32


def _halving() -> str:
    """Return PTX after which thread t holds the sum of value t over all threads.

    Inputs are the values a thread sends in the first exchange, and two factors of those it keeps.
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
    """Return PTX that sums `half` values over `half` threads: each thread gets one sum in v0."""
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
    """Return PTX that exchanges a value with the thread at XOR distance `distance`."""
    return f"shfl.sync.bfly.b32 send, {value}, {distance}, 0x1f, 0xffffffff;"


HALVING = tl.constexpr(_halving())
CONSTRAINTS = tl.constexpr(",".join(["=f"] * STATES + ["f"] * (3 * STATES)))


@no_type_check
@triton.jit
def sum_lanes(g, v, h, dy, n):
    """Sum g v and h dy, tiles [16, 32], over channels: 16 sums of the first, then 16 of the second.

    Threads of the upper half send g v and keep h dy, the others vice versa. Factors are selected
    instead of products, so that products that are kept are fused with the additions.
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
    """Whether a compiled kernel has the layout that the PTX needs: one channel per thread."""
    used = re.findall(r"tt\.elementwise_inline_asm.*-> tensor<16x32xf32, #(\w+)>", ttgir)
    layouts = dict(re.findall(r"#(\w+) = #ttg\.blocked<\{(.*?)\}>", ttgir))
    wanted = (
        "sizePerThread = [1, 1], threadsPerWarp = [1, 32], warpsPerCTA = [1, 1], order = [1, 0]"
    )
    return bool(used) and all(layouts.get(name) == wanted for name in used)


HALF = STATES // 2


def _swapped_sums() -> str:
    """Return PTX that sums the products of two pairs of factors over all threads."""
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
    """Return PTX that loads 8 states from each of two addresses, `width` at a time."""
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
    """States of a tile [16, 32] in which the upper half of threads has the halves swapped."""
    half = n // SWAP
    return (n % SWAP)[:, None] + (half[:, None] ^ (tl.arange(0, C) // (C // 2))[None, :]) * SWAP


@no_type_check
@triton.jit
def load_swapped(ptr, at, n, C: tl.constexpr, WIDTH: tl.constexpr):
    """Load B or C at offset `at`, with swapped halves; WIDTH is the vector width of loads."""
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
    """Sum g v and h dy over channels; `swapped_sums` points to the output of each thread."""
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
    """Pointers to the gradient of B or C that each thread has summed in `sum_swapped`."""
    lane = tl.arange(0, 2 * STATE)
    state = lane % SWAP + lane // STATE * SWAP
    return tl.where(lane // SWAP % 2 == 0, dB_ptr + state, dC_ptr + state) + at * STATE


HELD = 8  # steps whose states are kept in shared memory
_WORD, _VECTOR = 4, 16


def _room() -> str:
    """Return PTX that allocates shared memory for HELD tiles and rows, and gives its address."""
    size = HELD * (STATES + 1) * CHANNELS * _WORD
    return f"{{ .shared .align 16 .b8 held[{size}]; mov.u32 $0, held; }}"


def _vectors(first: int, address: str) -> list[tuple[str, str]]:
    """Return address and registers of the four vectors of a thread's states."""
    return [
        (
            f"[{address}+{k * CHANNELS * _VECTOR}]",
            "{" + ",".join(f"${first + 4 * k + i}" for i in range(4)) + "}",
        )
        for k in range(STATES // 4)
    ]


def _put() -> str:
    stores = [
        f"@p st.shared.v4.f32 {place}, {states};"
        for place, states in _vectors(STATES, f"${2 * STATES}")
    ]
    test = f"setp.ge.s32 p, ${3 * STATES}, 0;"
    return "\n".join(["{", ".reg .pred p;", test, *stores, "}"])


def _take() -> str:
    return "\n".join(
        f"ld.shared.v4.f32 {states}, {place};" for place, states in _vectors(0, f"${STATES}")
    )


ROOM, PUT, TAKE = tl.constexpr(_room()), tl.constexpr(_put()), tl.constexpr(_take())
TAKEN = tl.constexpr(",".join(["=f"] * STATES + ["r"] * STATES))
GIVEN = tl.constexpr(",".join(["=f"] * STATES + ["f"] * STATES + ["r"] * (2 * STATES)))
ROWS, ROW_BYTES = tl.constexpr(HELD * STATES * CHANNELS * _WORD), tl.constexpr(CHANNELS * _WORD)
TILE_BYTES, VECTOR = tl.constexpr(STATES * CHANNELS * _WORD), tl.constexpr(_VECTOR)


@no_type_check
@triton.jit
def room_for_states(zero, C: tl.constexpr):
    """Allocate shared memory for states; return the address of each thread, [1, C]."""
    # Not pure, so that the compiler does not duplicate the allocation.
    room = tl.inline_asm_elementwise(ROOM, "=r,r", [zero], dtype=tl.int32, is_pure=False, pack=1)
    return room + tl.arange(0, C)[None, :] * VECTOR


@no_type_check
@triton.jit
def put_states(room, slot, states):
    """Store a tile [16, 32] unless the slot is negative; a predicate is cheaper than a branch."""
    place = tl.broadcast_to(room + slot * TILE_BYTES, states.shape)
    given = [states, place, tl.broadcast_to(slot, states.shape)]
    tl.inline_asm_elementwise(PUT, GIVEN, given, dtype=tl.float32, is_pure=False, pack=16)


@no_type_check
@triton.jit
def take_states(room, slot, N: tl.constexpr):
    """Load a tile stored by `put_states`."""
    place = tl.broadcast_to(room + slot * TILE_BYTES, [N, room.shape[1]])
    return tl.inline_asm_elementwise(TAKE, TAKEN, [place], dtype=tl.float32, is_pure=False, pack=16)


@no_type_check
@triton.jit
def row_place(room, slot, C: tl.constexpr):
    """Address of the row of a slot, after all tiles."""
    lane = tl.arange(0, C)[None, :]
    return tl.reshape(room - lane * VECTOR + lane * 4, [C]) + ROWS + slot * ROW_BYTES


@no_type_check
@triton.jit
def put_row(room, slot, row):
    """Store one value per channel unless the slot is negative."""
    place = row_place(room, slot, row.shape[0])
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ge.s32 p, $3, 0; @p st.shared.f32 [$2], $1; }", "=f,f,r,r",
        [row, place, tl.broadcast_to(slot, place.shape)], dtype=tl.float32, is_pure=False, pack=1,
    )  # fmt: skip


@no_type_check
@triton.jit
def take_row(room, slot, C: tl.constexpr):
    """Load a row stored by `put_row`."""
    return tl.inline_asm_elementwise(
        "ld.shared.f32 $0, [$1];", "=f,r", [row_place(room, slot, C)], dtype=tl.float32,
        is_pure=False, pack=1,
    )  # fmt: skip
