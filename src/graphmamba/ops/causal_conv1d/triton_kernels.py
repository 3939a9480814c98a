"""Triton kernels of the causal convolution; a tile is [T, C]: T steps by C channels.

Neighbouring steps are loaded again, from the L1 cache, instead of being exchanged between threads.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.triton_kernels import sigmoid


@no_type_check
@triton.jit
def sequence_of(cu_seqlens_ptr, t, boundaries, rounds):
    """Return the first and the last step of the sequence of each step `t`, by binary search."""
    low = tl.zeros_like(t)
    high = low + boundaries
    for _ in range(rounds):
        middle = (low + high) // 2
        is_open = low < high
        value = tl.load(cu_seqlens_ptr + middle, mask=is_open, other=0).to(tl.int32)
        goes_up = is_open & (value <= t)
        low = tl.where(goes_up, middle + 1, low)
        high = tl.where(is_open & (value > t), middle, high)
    # Now `low` is the number of boundaries up to `t`. Steps past the last one have no sequence.
    exists = (low > 0) & (low < boundaries)
    first = tl.load(cu_seqlens_ptr + low - 1, mask=exists, other=0).to(tl.int32)
    end = tl.load(cu_seqlens_ptr + low, mask=exists, other=0).to(tl.int32)
    return first, end - 1


@no_type_check
@triton.jit
def load_visited(
    x_ptr, order_ptr, source, inside, c, rows, INNER: tl.constexpr, STRIDE: tl.constexpr,
    HAS_ORDER: tl.constexpr, HAS_SAMPLES: tl.constexpr,
):  # fmt: skip
    """Load the rows that the steps `source` read; 0 outside."""
    row = source
    if HAS_ORDER:
        row = tl.load(order_ptr + source, mask=inside, other=0).to(tl.int32)
        if HAS_SAMPLES:
            row = row % rows
    mask = inside[:, None] & (c < INNER)[None, :]
    at = row.to(tl.int64)[:, None] * STRIDE + c[None, :]
    return tl.load(x_ptr + at, mask=mask, other=0.0).to(tl.float32)


@no_type_check
@triton.jit
def load_taps(weight_ptr, c, INNER: tl.constexpr, WIDTH: tl.constexpr):
    """Load the taps as a tuple, beginning with that of the step itself."""
    taps = ()
    for back in tl.static_range(WIDTH):
        at = weight_ptr + c * WIDTH + (WIDTH - 1 - back)
        taps += (tl.load(at, mask=c < INNER, other=0.0).to(tl.float32),)
    return taps


@no_type_check
@triton.jit
def causal_conv1d_fwd_kernel(
    x_ptr, weight_ptr, bias_ptr, cu_seqlens_ptr, order_ptr, y_ptr, steps, rows, boundaries, rounds,
    INNER: tl.constexpr, WIDTH: tl.constexpr, X_STRIDE: tl.constexpr, T: tl.constexpr,
    C: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_ORDER: tl.constexpr, HAS_SAMPLES: tl.constexpr,
    ACTIVATION: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Write one tile of the output."""
    t = tl.program_id(0) * T + tl.arange(0, T)
    c = tl.program_id(1) * C + tl.arange(0, C)
    first, last = sequence_of(cu_seqlens_ptr, t, boundaries, rounds)
    taps = load_taps(weight_ptr, c, INNER, WIDTH)
    SIGN: tl.constexpr = -1 if REVERSE else 1

    value = tl.zeros([T, C], tl.float32)
    if HAS_BIAS:
        value += tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32)[None, :]
    for back in tl.static_range(WIDTH):
        source = t - SIGN * back
        inside = (source >= first) & (source <= last)
        visited = load_visited(
            x_ptr, order_ptr, source, inside, c, rows, INNER, X_STRIDE, HAS_ORDER, HAS_SAMPLES
        )
        value += taps[back][None, :] * visited
    if ACTIVATION:
        value *= sigmoid(value)
    at = t.to(tl.int64)[:, None] * INNER + c[None, :]
    tl.store(y_ptr + at, value, mask=(t < steps)[:, None] & (c < INNER)[None, :])


@no_type_check
@triton.jit
def causal_conv1d_bwd_kernel(
    grad_ptr, x_ptr, weight_ptr, bias_ptr, cu_seqlens_ptr, order_ptr, dx_ptr, parts_ptr, steps,
    rows, boundaries, rounds, tiles,
    INNER: tl.constexpr, WIDTH: tl.constexpr, X_STRIDE: tl.constexpr, GRAD_STRIDE: tl.constexpr,
    DX_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, HAS_BIAS: tl.constexpr,
    HAS_ORDER: tl.constexpr, HAS_SAMPLES: tl.constexpr, TO_SLOTS: tl.constexpr,
    ACTIVATION: tl.constexpr, REVERSE: tl.constexpr,
):  # fmt: skip
    """Write `tiles` tiles of dx, and one row of partial gradients of taps and bias.

    A step affects the outputs up to WIDTH - 1 steps ahead, and these depend on inputs as far back:
    rows from WIDTH - 1 before to WIDTH - 1 after it are loaded, within its sequence.
    """
    c = tl.program_id(1) * C + tl.arange(0, C)
    taps = load_taps(weight_ptr, c, INNER, WIDTH)
    SIGN: tl.constexpr = -1 if REVERSE else 1
    bias = tl.zeros([C], tl.float32)
    if HAS_BIAS:
        bias += tl.load(bias_ptr + c, mask=c < INNER, other=0.0).to(tl.float32)
    sums = ()
    for _ in tl.static_range(WIDTH + 1):
        sums += (tl.zeros([T, C], tl.float32),)

    for tile in range(tiles):
        t = (tl.program_id(0) * tiles + tile) * T + tl.arange(0, T)
        first, last = sequence_of(cu_seqlens_ptr, t, boundaries, rounds)
        near = ()
        for i in tl.static_range(2 * WIDTH - 1):
            source = t + SIGN * (i - WIDTH + 1)
            inside = (source >= first) & (source <= last)
            visited = load_visited(
                x_ptr, order_ptr, source, inside, c, rows, INNER, X_STRIDE, HAS_ORDER, HAS_SAMPLES
            )
            near += (visited,)

        dx = tl.zeros([T, C], tl.float32)
        added = ()
        for ahead in tl.static_range(WIDTH):
            source = t + SIGN * ahead
            inside = (source >= first) & (source <= last)
            d = load_visited(
                grad_ptr, order_ptr, source, inside, c, rows, INNER, GRAD_STRIDE, False, False
            )
            if ACTIVATION:
                value = tl.zeros([T, C], tl.float32) + bias[None, :]
                for back in tl.static_range(WIDTH):
                    value += taps[back][None, :] * near[WIDTH - 1 + ahead - back]
                s = sigmoid(value)
                d *= s * (1.0 + value * (1.0 - s))
                # A product with 0 would keep a NaN.
                d = tl.where(inside[:, None], d, 0.0)
            dx += taps[ahead][None, :] * d
            if ahead == 0:
                for back in tl.static_range(WIDTH):
                    added += (sums[back] + d * near[WIDTH - 1 - back],)
                added += (sums[WIDTH] + d,)
        sums = added

        slot = t
        if TO_SLOTS:
            slot = tl.load(order_ptr + t, mask=t < steps, other=0).to(tl.int32)
        at = slot.to(tl.int64)[:, None] * DX_STRIDE + c[None, :]
        tl.store(dx_ptr + at, dx, mask=(t < steps)[:, None] & (c < INNER)[None, :])

    # A row of partial sums has the gradient of the taps, in their layout, then that of the bias.
    parts_ptr += tl.program_id(0) * ((WIDTH + 1) * INNER)
    for i in tl.static_range(WIDTH + 1):
        at = c * WIDTH + WIDTH - 1 - i if i < WIDTH else WIDTH * INNER + c
        tl.store(parts_ptr + at, tl.sum(sums[i], axis=0), mask=c < INNER)
