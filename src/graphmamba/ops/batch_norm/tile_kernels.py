"""What the kernels of the batch norm do to one tile: [T, C], T rows by C channels.

Rows are loaded as they are stored, apart from what is made of them, so that those of the next tile
can be on their way while this one is worked on. Loads do not look at the number of real rows, which
would have to be waited for: what is behind them is loaded like the others, then put to 0.
"""

from typing import no_type_check

import triton
import triton.language as tl


@no_type_check
@triton.jit
def lead(PDL: tl.constexpr):
    """Begin the first kernel of a pass: let the second be put in place while this one runs.

    Only once all that came before has ended, so that the second may read it at once.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@no_type_check
@triton.jit
def wait_for_lead(PDL: tl.constexpr):
    """Wait for the end of the first kernel, of which the second may read nothing earlier."""
    if PDL:
        tl.extra.cuda.gdc_wait()


@no_type_check
@triton.jit
def mix(bits):
    """Scatter 32 bits, as `drop._mix` does."""
    bits = (bits ^ (bits >> 16)) * tl.full((), 0x7FEB352D, tl.uint32)
    bits = (bits ^ (bits >> 15)) * tl.full((), 0x846CA68B, tl.uint32)
    return bits ^ (bits >> 16)


@no_type_check
@triton.jit
def load_keys(seed_ptr, site, THRESHOLD: tl.constexpr):
    """Return what all entries of a dropout share; a threshold of 0 drops none and has no seed."""
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
    """Drop and scale entries as `drop.dropped` does."""
    kept = values
    # No early return: what follows one is compiled all the same.
    if THRESHOLD > 0:
        width = tl.full((), CHANNELS, tl.uint32)
        index = row[:, None].to(tl.uint32) * width + c[None, :].to(tl.uint32)
        bits = mix(mix(index ^ keys[0]) + keys[1])
        kept = tl.where(bits >= tl.full((), THRESHOLD, tl.uint32), values * SCALE, 0.0)
    return kept


@no_type_check
@triton.constexpr_function
def fills_blocks(channels, block):
    """Tell whether the last block of channels is full, too."""
    return channels % block == 0


@no_type_check
@triton.jit
def tile_mask(row, c, limit, CHANNELS: tl.constexpr):
    """Tell what lies before row `limit`; only a block that reaches past the last channel asks."""
    mask = (row < limit)[:, None]
    if not fills_blocks(CHANNELS, c.shape[0]):
        mask = mask & (c < CHANNELS)[None, :]
    return mask


@no_type_check
@triton.jit
def load_tile(ptr, first, c, limit, T: tl.constexpr, STRIDE: tl.constexpr, CHANNELS: tl.constexpr):
    """Load T rows from `first` on, as they are stored; 0 from row `limit` on."""
    t = tl.arange(0, T)
    # The tile's place is one number of 64 bits; within it 32 are enough.
    corner = ptr + first.to(tl.int64) * STRIDE
    mask = tile_mask(first + t, c, limit, CHANNELS)
    return tl.load(corner + (t[:, None] * STRIDE + c[None, :]), mask=mask, other=0.0)


@no_type_check
@triton.jit
def store_tile(ptr, first, c, limit, values, T: tl.constexpr, CHANNELS: tl.constexpr):
    """Store T dense rows from `first` on, but none from row `limit` on."""
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
    """Load what `add_pair` adds; x twice where nothing is added to it."""
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
    """Return before + drop(x), what is normalised."""
    value = drop(x.to(tl.float32), keys, row, c, THRESHOLD, SCALE, CHANNELS)
    if HAS_BEFORE:
        value += before.to(tl.float32)
    return value


@no_type_check
@triton.jit
def from_end(number, tiles, rows, T: tl.constexpr):
    """Return the first row of a tile counted from the end, and the limit of its rows.

    The rows that a kernel went through last are those that the cache still holds: the next one
    starts with them. Behind the last number there is no tile; its limit is 0.
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
    """Return how many of the real rows a program has that takes every `programs`-th tile."""
    whole = real // (programs * T)
    left = real - whole * programs * T
    return whole * T + tl.minimum(tl.maximum(left - number * T, 0), T)


@no_type_check
@triton.jit
def load_lines(
    parts_ptr, lines, c, LINES: tl.constexpr, LINE: tl.constexpr, CHANNELS: tl.constexpr
):
    """Load all lines of sums at once; 0 behind the last."""
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
