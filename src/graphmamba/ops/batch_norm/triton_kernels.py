"""Triton kernels of the fused batch norm, forward and backward.

A tile is [T, C], T rows by C channels; a program takes every `num_programs(0)`-th tile. The first
kernel of a pass writes one row of partial sums per program. Every program of the second kernel adds
up all of these rows in the same order, which saves a kernel in between.

Loads are separate from arithmetic, so that the next tile is loaded while this one is processed.
They do not wait for the number of real rows: padding rows are loaded, then set to 0.
"""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def lead(PDL: tl.constexpr):
    """Start of the first kernel of a pass: wait for earlier kernels, then let the second launch.

    In this order, the second kernel may read the outputs of earlier kernels without waiting.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@no_type_check
@triton.jit
def wait_for_lead(PDL: tl.constexpr):
    """Wait in the second kernel until the outputs of the first can be read."""
    if PDL:
        tl.extra.cuda.gdc_wait()


@no_type_check
@triton.jit
def mix(bits):
    """Hash 32 bits; the same as `dropout._mix`."""
    bits = (bits ^ (bits >> 16)) * tl.full((), 0x7FEB352D, tl.uint32)
    bits = (bits ^ (bits >> 15)) * tl.full((), 0x846CA68B, tl.uint32)
    return bits ^ (bits >> 16)


@no_type_check
@triton.jit
def load_keys(seed_ptr, site, THRESHOLD: tl.constexpr):
    """Return the two hash keys of a dropout; with threshold 0 nothing is dropped or loaded."""
    key = tl.full((), 0, tl.uint32)
    second = key
    if THRESHOLD > 0:
        seed = tl.load(seed_ptr)
        low, high = (seed & 0xFFFFFFFF).to(tl.uint32), ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
        key = mix(low + site.to(tl.uint32))
        second = mix(high ^ key)
    return key, second


@no_type_check
@triton.jit
def drop(
    values, keys, row, c, THRESHOLD: tl.constexpr, SCALE: tl.constexpr, CHANNELS: tl.constexpr
):
    """Drop and scale entries; the same as `dropout.dropped`."""
    kept = values
    # No early return: Triton compiles the code after one as well.
    if THRESHOLD > 0:
        width = tl.full((), CHANNELS, tl.uint32)
        index = row[:, None].to(tl.uint32) * width + c[None, :].to(tl.uint32)
        bits = mix(mix(index ^ keys[0]) + keys[1])
        kept = tl.where(bits >= tl.full((), THRESHOLD, tl.uint32), values * SCALE, 0.0)
    return kept


@no_type_check
@triton.constexpr_function
def fills_blocks(channels, block):
    """Whether `block` divides the number of channels."""
    return channels % block == 0


@no_type_check
@triton.jit
def tile_mask(row, c, limit, CHANNELS: tl.constexpr):
    """Mask of rows below `limit`, and of channels where the last block is not full."""
    mask = (row < limit)[:, None]
    if not fills_blocks(CHANNELS, c.shape[0]):
        mask = mask & (c < CHANNELS)[None, :]
    return mask


@no_type_check
@triton.jit
def load_tile(ptr, first, c, limit, T: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Load T rows from `first` on in their own type; 0 from row `limit` on."""
    t = tl.arange(0, T)
    # The offset of the tile needs 64 bits, offsets within it 32.
    corner = ptr + first.to(tl.int64) * STRIDE
    mask = tile_mask(first + t, c, limit, CHANNELS)
    return tl.load(corner + (t[:, None] * STRIDE + c[None, :]), mask=mask, other=0.0)


@no_type_check
@triton.jit
def store_tile(ptr, first, c, limit, values, T: tl.constexpr, CHANNELS: tl.constexpr):
    """Store T contiguous rows from `first` on, up to row `limit`."""
    t = tl.arange(0, T)
    corner = ptr + first.to(tl.int64) * CHANNELS
    mask = tile_mask(first + t, c, limit, CHANNELS)
    tl.store(corner + (t[:, None] * CHANNELS + c[None, :]), values, mask=mask)


@no_type_check
@triton.jit
def load_pair(
    x_ptr, before_ptr, first, c, limit, T: tl.constexpr, X_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, HAS_BEFORE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Load the operands of `add_pair`; without `before`, x twice."""
    x = load_tile(x_ptr, first, c, limit, T, X_STRIDE, CHANNELS)
    before = x
    if HAS_BEFORE:
        before = load_tile(before_ptr, first, c, limit, T, BEFORE_STRIDE, CHANNELS)
    return x, before


@no_type_check
@triton.jit
def add_pair(
    x, before, keys, row, c, HAS_BEFORE: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Return before + drop(x), the input of the norm."""
    value = drop(x.to(tl.float32), keys, row, c, THRESHOLD, SCALE, CHANNELS)
    if HAS_BEFORE:
        value += before.to(tl.float32)
    return value


@no_type_check
@triton.jit
def from_end(number, tiles, rows, T: tl.constexpr):
    """Return the first row of tile `number`, counted from the end, and its row limit.

    The first kernel read the last rows last, so they are still in the cache. For a `number` past
    the last tile the limit is 0.
    """
    return tl.maximum(tiles - 1 - number, 0) * T, tl.where(number < tiles, rows, 0)


@no_type_check
@triton.jit
def real_rows(count_ptr, rows, HAS_COUNT: tl.constexpr):
    """Return the number of real rows."""
    if HAS_COUNT:
        return tl.minimum(tl.load(count_ptr).to(tl.int32), rows)
    return rows


@no_type_check
@triton.jit
def rows_of(number, programs, real, T):
    """Number of real rows of program `number`, which takes every `programs`-th tile."""
    whole = real // (programs * T)
    left = real - whole * programs * T
    return whole * T + tl.minimum(tl.maximum(left - number * T, 0), T)


@no_type_check
@triton.jit
def load_lines(
    parts_ptr, lines, c, LINES: tl.constexpr, LINE: tl.constexpr, CHANNELS: tl.constexpr
):
    """Load all rows of partial sums; 0 after the last."""
    i = tl.arange(0, LINES)
    mask = tile_mask(i, c, lines, CHANNELS)
    return tl.load(parts_ptr + (i[:, None] * LINE + c[None, :]), mask=mask, other=0.0)


@no_type_check
@triton.jit
def activate(z, ACTIVATION: tl.constexpr):
    """Apply the activation."""
    if ACTIVATION == "relu":
        return tl.maximum(z, 0.0)
    if ACTIVATION == "gelu":
        return 0.5 * z * (1.0 + tl.erf(z * 0.7071067811865476))
    return z


@no_type_check
@triton.jit
def activation_slope(z, ACTIVATION: tl.constexpr):
    """Return the derivative of the activation."""
    if ACTIVATION == "relu":
        return tl.where(z > 0.0, 1.0, 0.0)
    if ACTIVATION == "gelu":
        density = 0.3989422804014327 * tl.exp(-0.5 * z * z)
        return 0.5 * (1.0 + tl.erf(z * 0.7071067811865476)) + z * density
    return tl.full(z.shape, 1.0, tl.float32)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site"])
def batch_norm_sums_kernel(
    x_ptr, before_ptr, seed_ptr, count_ptr, parts_ptr, rows, site,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr,
    T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr, HAS_COUNT: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the mean and the sum of squared deviations of the rows of each program.

    Sums are over differences from the mean of its first tile, so that a mean far from zero costs no
    digits: with N tiles, the mean of one is at most sqrt(N) standard deviations off.
    """
    lead(PDL)
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    first, step = tl.program_id(0) * T, tl.num_programs(0) * T
    x, before = load_pair(
        x_ptr, before_ptr, first, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    next_x, next_before = load_pair(
        x_ptr, before_ptr, first + step, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_ptr, site, THRESHOLD)
    value = add_pair(x, before, keys, first + t, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
    is_real = (first + t < real)[:, None]
    value = tl.where(is_real, value, 0.0)
    height = tl.minimum(tl.maximum(real - first, 1), T).to(tl.float32)
    base = tl.sum(value, axis=0) / height
    total = tl.where(is_real, value - base[None, :], 0.0)
    squares = total * total
    for at in tl.range(first + step, rows, step, loop_unroll_factor=UNROLL):
        x, before = next_x, next_before
        next_x, next_before = load_pair(
            x_ptr, before_ptr, at + step, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
        )
        value = add_pair(x, before, keys, at + t, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
        value = tl.where((at + t < real)[:, None], value - base[None, :], 0.0)
        total += value
        squares += value * value
    own = tl.maximum(rows_of(tl.program_id(0), tl.num_programs(0), real, T), 1).to(tl.float32)
    moved = tl.sum(total, axis=0)
    spread = tl.sum(squares, axis=0) - moved * (moved / own)
    line = parts_ptr + tl.program_id(0) * 2 * CHANNELS + c
    tl.store(line, base + moved / own, mask=c < CHANNELS)
    # Not tl.maximum, which would turn NaN into 0.
    tl.store(line + CHANNELS, tl.where(spread < 0.0, 0.0, spread), mask=c < CHANNELS)


@no_type_check
@triton.jit
def load_sums(parts_ptr, lines, c, LINES: tl.constexpr, CHANNELS: tl.constexpr):
    """Load the means and squared deviations of all programs, and the mean of the first one."""
    own = load_lines(parts_ptr, lines, c, LINES, 2 * CHANNELS, CHANNELS)
    spread = load_lines(parts_ptr + CHANNELS, lines, c, LINES, 2 * CHANNELS, CHANNELS)
    return own, spread, tl.load(parts_ptr + c, mask=c < CHANNELS, other=0.0)


@no_type_check
@triton.jit
def join_sums(loaded, real, lines, line_rows, LINES: tl.constexpr):
    """Return mean and variance of all rows from those of `lines` programs.

    `line_rows` is the number of rows per tile in the first kernel.
    """
    own, spread, base = loaded
    number = tl.maximum(real, 1).to(tl.float32)
    i = tl.arange(0, LINES)
    size = tl.where(i < lines, rows_of(i, lines, real, line_rows), 0).to(tl.float32)[:, None]
    # Differences from the mean of one program keep more digits than the means.
    off = own - base[None, :]
    moved = tl.sum(off * size, axis=0) / number
    off -= moved[None, :]
    return base + moved, tl.sum(spread + off * off * size, axis=0) / number


@no_type_check
@triton.jit
def move_running(
    mean_ptr, var_ptr, batches_ptr, mean, variance, own, spread, real, momentum, c,
    HAS_BATCHES: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Update the running statistics in channels where those of the batch are finite."""
    number = real.to(tl.float32)
    unbiased = spread * number / (number - 1.0)
    moves = (c < CHANNELS) & (tl.abs(own) < float("inf")) & (unbiased < float("inf"))
    # Not mean + momentum * (own - mean), which is not exact for momentum 1.
    rest = 1.0 - momentum
    tl.store(mean_ptr + c, rest * mean + momentum * own, mask=moves)
    tl.store(var_ptr + c, rest * variance + momentum * unbiased, mask=moves)
    if HAS_BATCHES:
        if tl.program_id(1) == 0:
            tl.store(batches_ptr, tl.load(batches_ptr) + 1)


@no_type_check
@triton.jit(do_not_specialize=["rows", "lines", "line_rows", "site", "site_after"])
def batch_norm_apply_kernel(
    x_ptr, before_ptr, after_ptr, weight_ptr, bias_ptr, running_mean_ptr, running_var_ptr,
    batches_ptr, seed_before_ptr, seed_after_ptr, count_ptr, parts_ptr, y_ptr, kept_ptr, rows,
    lines, line_rows, site, site_after, momentum, eps,
    CHANNELS: tl.constexpr, X_STRIDE: tl.constexpr, BEFORE_STRIDE: tl.constexpr,
    AFTER_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, LINES: tl.constexpr,
    HAS_BEFORE: tl.constexpr, HAS_AFTER: tl.constexpr, HAS_COUNT: tl.constexpr,
    HAS_BATCHES: tl.constexpr, TRAINING: tl.constexpr,
    ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr, SCALE: tl.constexpr,
    THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr, UNROLL: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Write the output; programs 0 save (mean, 1 / std) and update the running statistics.

    No other program uses the running statistics where they are updated.
    """
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    exists = c < CHANNELS
    tiles = tl.cdiv(rows, T)
    at, limit = from_end(tl.program_id(0), tiles, rows, T)
    x, before = load_pair(
        x_ptr, before_ptr, at, c, limit, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    after = x
    if HAS_AFTER:
        after = load_tile(after_ptr, at, c, limit, T, AFTER_STRIDE, CHANNELS)
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_before_ptr, site, THRESHOLD)
    keys_after = load_keys(seed_after_ptr, site_after, THRESHOLD_AFTER)
    weight = tl.load(weight_ptr + c, mask=exists, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    mean = tl.load(running_mean_ptr + c, mask=exists, other=0.0).to(tl.float32)
    variance = tl.load(running_var_ptr + c, mask=exists, other=1.0).to(tl.float32)
    wait_for_lead(PDL)
    if TRAINING:
        loaded = load_sums(parts_ptr, lines, c, LINES, CHANNELS)
        own, spread = join_sums(loaded, real, lines, line_rows, LINES)
        if real > 1:
            if tl.program_id(0) == 0:
                move_running(
                    running_mean_ptr, running_var_ptr, batches_ptr, mean, variance, own, spread,
                    real, momentum, c, HAS_BATCHES, CHANNELS,
                )  # fmt: skip
        mean = tl.where(real > 1, own, mean)
        variance = tl.where(real > 1, spread, variance)
    scale = 1.0 / tl.sqrt_rn(variance + eps)
    if tl.program_id(0) == 0:
        tl.store(kept_ptr + c, mean, mask=exists)
        tl.store(kept_ptr + CHANNELS + c, scale, mask=exists)
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), loop_unroll_factor=UNROLL):
        next_at, next_limit = from_end(number + tl.num_programs(0), tiles, rows, T)
        next_x, next_before = load_pair(
            x_ptr, before_ptr, next_at, c, next_limit, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE,
            CHANNELS,
        )  # fmt: skip
        next_after = next_x
        if HAS_AFTER:
            next_after = load_tile(after_ptr, next_at, c, next_limit, T, AFTER_STRIDE, CHANNELS)
        row = at + t
        value = add_pair(x, before, keys, row, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
        z = (value - mean[None, :]) * scale[None, :] * weight[None, :] + bias[None, :]
        y = activate(z, ACTIVATION)
        y = drop(y, keys_after, row, c, THRESHOLD_AFTER, SCALE_AFTER, CHANNELS)
        y = tl.where((row < real)[:, None], y, 0.0)
        if HAS_AFTER:
            y += after.to(tl.float32)
        store_tile(y_ptr, at, c, rows, y, T, CHANNELS)
        at, x, before, after = next_at, next_x, next_before, next_after


@no_type_check
@triton.jit
def load_norm(kept_ptr, weight_ptr, bias_ptr, c, CHANNELS: tl.constexpr):
    """Return the saved mean and 1 / std, weight and bias."""
    exists = c < CHANNELS
    mean = tl.load(kept_ptr + c, mask=exists, other=0.0)
    scale = tl.load(kept_ptr + CHANNELS + c, mask=exists, other=0.0)
    weight = tl.load(weight_ptr + c, mask=exists, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + c, mask=exists, other=0.0).to(tl.float32)
    return mean[None, :], scale[None, :], weight[None, :], bias[None, :]


@no_type_check
@triton.jit
def slope(
    grad, x, before, norm, keys, keys_after, row, c, real,
    CHANNELS: tl.constexpr, HAS_BEFORE: tl.constexpr, ACTIVATION: tl.constexpr,
    THRESHOLD: tl.constexpr, SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr,
    SCALE_AFTER: tl.constexpr,
):  # fmt: skip
    """Return the normalised rows and the gradient of the activation's input; 0 in padding rows."""
    mean, scale, weight, bias = norm
    is_real = (row < real)[:, None]
    value = add_pair(x, before, keys, row, c, HAS_BEFORE, THRESHOLD, SCALE, CHANNELS)
    hat = tl.where(is_real, (value - mean) * scale, 0.0)
    grad = drop(grad.to(tl.float32), keys_after, row, c, THRESHOLD_AFTER, SCALE_AFTER, CHANNELS)
    grad *= activation_slope(hat * weight + bias, ACTIVATION)
    return hat, tl.where(is_real, grad, 0.0)


@no_type_check
@triton.jit(do_not_specialize=["rows", "site", "site_after"])
def batch_norm_bwd_sums_kernel(
    grad_ptr, x_ptr, before_ptr, weight_ptr, bias_ptr, seed_before_ptr, seed_after_ptr, count_ptr,
    kept_ptr, parts_ptr, rows, site, site_after,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, HAS_BEFORE: tl.constexpr,
    HAS_COUNT: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr,
    UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write partial sums of the gradients of weight and bias, one row per program."""
    lead(PDL)
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    first, step = tl.program_id(0) * T, tl.num_programs(0) * T
    grad = load_tile(grad_ptr, first, c, rows, T, GRAD_STRIDE, CHANNELS)
    x, before = load_pair(
        x_ptr, before_ptr, first, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_before_ptr, site, THRESHOLD)
    keys_after = load_keys(seed_after_ptr, site_after, THRESHOLD_AFTER)
    norm = load_norm(kept_ptr, weight_ptr, bias_ptr, c, CHANNELS)
    d_weight = tl.zeros([T, C], tl.float32)
    d_bias = tl.zeros([T, C], tl.float32)
    for at in tl.range(first, rows, step, loop_unroll_factor=UNROLL):
        next_grad = load_tile(grad_ptr, at + step, c, rows, T, GRAD_STRIDE, CHANNELS)
        next_x, next_before = load_pair(
            x_ptr, before_ptr, at + step, c, rows, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
        )
        hat, dz = slope(
            grad, x, before, norm, keys, keys_after, at + t, c, real, CHANNELS, HAS_BEFORE,
            ACTIVATION, THRESHOLD, SCALE, THRESHOLD_AFTER, SCALE_AFTER,
        )  # fmt: skip
        d_weight += dz * hat
        d_bias += dz
        grad, x, before = next_grad, next_x, next_before
    line = parts_ptr + tl.program_id(0) * 2 * CHANNELS + c
    tl.store(line, tl.sum(d_weight, axis=0), mask=c < CHANNELS)
    tl.store(line + CHANNELS, tl.sum(d_bias, axis=0), mask=c < CHANNELS)


@no_type_check
@triton.jit(do_not_specialize=["rows", "lines", "site", "site_after"])
def batch_norm_bwd_apply_kernel(
    grad_ptr, x_ptr, before_ptr, weight_ptr, bias_ptr, seed_before_ptr, seed_after_ptr, count_ptr,
    kept_ptr, parts_ptr, dx_ptr, d_before_ptr, d_weight_ptr, d_bias_ptr, rows, lines, site,
    site_after,
    CHANNELS: tl.constexpr, GRAD_STRIDE: tl.constexpr, X_STRIDE: tl.constexpr,
    BEFORE_STRIDE: tl.constexpr, T: tl.constexpr, C: tl.constexpr, LINES: tl.constexpr,
    HAS_BEFORE: tl.constexpr, HAS_COUNT: tl.constexpr, WRITES_BEFORE: tl.constexpr,
    TRAINING: tl.constexpr, ACTIVATION: tl.constexpr, THRESHOLD: tl.constexpr,
    SCALE: tl.constexpr, THRESHOLD_AFTER: tl.constexpr, SCALE_AFTER: tl.constexpr,
    UNROLL: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Write the gradients of x and before; programs 0 write those of weight and bias."""
    t, c = tl.arange(0, T), tl.program_id(1) * C + tl.arange(0, C)
    tiles = tl.cdiv(rows, T)
    at, limit = from_end(tl.program_id(0), tiles, rows, T)
    grad = load_tile(grad_ptr, at, c, limit, T, GRAD_STRIDE, CHANNELS)
    x, before = load_pair(
        x_ptr, before_ptr, at, c, limit, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE, CHANNELS
    )
    real = real_rows(count_ptr, rows, HAS_COUNT)
    keys = load_keys(seed_before_ptr, site, THRESHOLD)
    keys_after = load_keys(seed_after_ptr, site_after, THRESHOLD_AFTER)
    norm = load_norm(kept_ptr, weight_ptr, bias_ptr, c, CHANNELS)
    wait_for_lead(PDL)
    own = load_lines(parts_ptr, lines, c, LINES, 2 * CHANNELS, CHANNELS)
    own_bias = load_lines(parts_ptr + CHANNELS, lines, c, LINES, 2 * CHANNELS, CHANNELS)
    d_weight, d_bias = tl.sum(own, axis=0), tl.sum(own_bias, axis=0)
    if tl.program_id(0) == 0:
        tl.store(d_weight_ptr + c, d_weight, mask=c < CHANNELS)
        tl.store(d_bias_ptr + c, d_bias, mask=c < CHANNELS)
    # A single row was normalised with running statistics, which do not depend on it.
    share = tl.where(real > 1, 1.0 / tl.maximum(real, 1).to(tl.float32), 0.0)
    if not TRAINING:
        share = share * 0.0
    d_weight, d_bias = (d_weight * share)[None, :], (d_bias * share)[None, :]
    factor = norm[1] * norm[2]
    for number in tl.range(tl.program_id(0), tiles, tl.num_programs(0), loop_unroll_factor=UNROLL):
        next_at, next_limit = from_end(number + tl.num_programs(0), tiles, rows, T)
        next_grad = load_tile(grad_ptr, next_at, c, next_limit, T, GRAD_STRIDE, CHANNELS)
        next_x, next_before = load_pair(
            x_ptr, before_ptr, next_at, c, next_limit, T, X_STRIDE, BEFORE_STRIDE, HAS_BEFORE,
            CHANNELS,
        )  # fmt: skip
        row = at + t
        hat, dz = slope(
            grad, x, before, norm, keys, keys_after, row, c, real, CHANNELS, HAS_BEFORE,
            ACTIVATION, THRESHOLD, SCALE, THRESHOLD_AFTER, SCALE_AFTER,
        )  # fmt: skip
        d = (dz - (d_bias + hat * d_weight)) * factor
        d = tl.where((row < real)[:, None], d, 0.0)
        if WRITES_BEFORE:
            store_tile(d_before_ptr, at, c, rows, d, T, CHANNELS)
        d = drop(d, keys, row, c, THRESHOLD, SCALE, CHANNELS)
        store_tile(dx_ptr, at, c, rows, d, T, CHANNELS)
        at, grad, x, before = next_at, next_grad, next_x, next_before
