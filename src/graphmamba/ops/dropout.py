"""Dropout whose mask is a hash of seed, site, row and column: the same on every device."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

BITS = 32
GOLDEN = 0x9E3779B9
FIRST, SECOND = 0x7FEB352D, 0x846CA68B
CHUNK = 1 << 15  # entries computed at a time on a CPU, to stay in its cache


class Drop(NamedTuple):
    """Parameters of a dropout mask."""

    rate: float
    seed: Int[Tensor, ""]  # 64 bits, on the device of the rows; new in every step
    site: int  # number of this dropout among those that share a seed

    @property
    def scale(self) -> float:
        """Factor of the entries that are kept."""
        return 1 / (1 - self.rate)

    @property
    def threshold(self) -> int:
        """Entries whose hash is below it are dropped."""
        return round(self.rate * (1 << BITS))


def dropped(rows: Float[Tensor, "rows channels"], drop: Drop) -> Float[Tensor, "rows channels"]:
    """Set entries to 0 at the rate of `drop`, and scale the others by 1 / (1 - rate)."""
    return rows * factors(drop, rows.shape, rows.dtype)


def factors(
    drop: Drop, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "rows channels"]:
    """Factor of each entry: 0 or the scale."""
    low, high = _signed_word(drop.seed), _signed_word(drop.seed >> BITS)
    key = _mix(low + site_key(drop.site))
    second = _mix(high ^ key)
    total = shape[0] * shape[1]
    if drop.seed.device.type != "cpu" or torch.compiler.is_compiling():
        # no loop over chunks, which would make torch.compile specialise on the size
        whole = _stays(drop, key, second, 0, total)
    else:
        begins = range(0, max(total, 1), CHUNK)
        stays = [_stays(drop, key, second, at, min(at + CHUNK, total)) for at in begins]
        whole = torch.cat(stays)
    return whole.to(dtype).mul_(drop.scale).view(shape)


def _stays(
    drop: Drop, key: Int[Tensor, ""], second: Int[Tensor, ""], begin: int, end: int
) -> Bool[Tensor, " entries"]:
    """Mask of the entries `begin` to `end`, in row-major order, that are kept."""
    index = torch.arange(begin, end, dtype=torch.int64, device=key.device).int()
    bits = _mix(_mix(index ^ key) + second)
    # Compares as unsigned integers: flips the sign bit.
    return (bits ^ -(1 << (BITS - 1))) >= drop.threshold - (1 << (BITS - 1))


def site_key(site: int) -> int:
    """Map site numbers to keys that are spread over all 32-bit integers."""
    return _signed(site * GOLDEN)


def _mix(bits: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Hash 32 bits: a bijection in which each input bit affects all output bits."""
    bits = _shift(bits, 16).bitwise_xor_(bits).mul_(_signed(FIRST))
    bits = _shift(bits, 15).bitwise_xor_(bits).mul_(_signed(SECOND))
    return _shift(bits, 16).bitwise_xor_(bits)


def _shift(bits: Int[Tensor, "*shape"], count: int) -> Int[Tensor, "*shape"]:
    """Logical right shift; `>>` copies the sign bit."""
    return (bits >> count).bitwise_and_((1 << (BITS - count)) - 1)


def _signed_word(number: Int[Tensor, ""]) -> Int[Tensor, ""]:
    """Lower 32 bits, sign-extended before the conversion, which must not overflow."""
    return ((number << BITS) >> BITS).int()


def _signed(bits: int) -> int:
    """Reinterpret the lower 32 bits as a signed integer."""
    bits %= 1 << BITS
    return bits - (1 << BITS) if bits >> (BITS - 1) else bits
