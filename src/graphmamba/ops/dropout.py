"""Dropout whose mask follows from a seed, a site, a row and a column: on every device the same."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

BITS = 32
GOLDEN = 0x9E3779B9
FIRST, SECOND = 0x7FEB352D, 0x846CA68B
CHUNK = 1 << 15
"""Entries whose bits are computed at a time, few enough for the nearest cache."""


class Drop(NamedTuple):
    """What decides which entries are dropped."""

    rate: float
    seed: Int[Tensor, ""]
    """64 bits, on the device of the rows; a new one for every step."""
    site: int
    """Tells places apart that share a seed."""

    @property
    def scale(self) -> float:
        """Factor of the entries that stay."""
        return 1 / (1 - self.rate)

    @property
    def threshold(self) -> int:
        """Entries with bits below it are dropped."""
        return round(self.rate * (1 << BITS))


def dropped(rows: Float[Tensor, "rows channels"], drop: Drop) -> Float[Tensor, "rows channels"]:
    """Set entries to 0 at the rate of `drop` and scale the others, so that the mean stays."""
    return rows * factors(drop, rows.shape, rows.dtype)


def factors(
    drop: Drop, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "rows channels"]:
    """What each entry is multiplied with: 0, or the scale."""
    low, high = _signed_word(drop.seed), _signed_word(drop.seed >> BITS)
    key = _mix(low + site_key(drop.site))
    second = _mix(high ^ key)
    total = shape[0] * shape[1]
    if drop.seed.device.type != "cpu" or torch.compiler.is_compiling():
        # without a range over sizes, which a compiler would take for constants
        whole = _stays(drop, key, second, 0, total)
    else:
        begins = range(0, max(total, 1), CHUNK)
        stays = [_stays(drop, key, second, at, min(at + CHUNK, total)) for at in begins]
        whole = torch.cat(stays)
    return whole.to(dtype).mul_(drop.scale).view(shape)


def _stays(
    drop: Drop, key: Int[Tensor, ""], second: Int[Tensor, ""], begin: int, end: int
) -> Bool[Tensor, " entries"]:
    """Tell which of some entries, counted through row by row, stay."""
    index = torch.arange(begin, end, dtype=torch.int64, device=key.device).int()
    bits = _mix(_mix(index ^ key) + second)
    # As unsigned numbers, where the sign bit is the highest digit.
    return (bits ^ -(1 << (BITS - 1))) >= drop.threshold - (1 << (BITS - 1))


def site_key(site: int) -> int:
    """Spread the numbers of sites over all 32-bit numbers."""
    return _signed(site * GOLDEN)


def _mix(bits: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Scatter 32 bits: a bijection in which each bit of the input sways each of the output."""
    bits = _shift(bits, 16).bitwise_xor_(bits).mul_(_signed(FIRST))
    bits = _shift(bits, 15).bitwise_xor_(bits).mul_(_signed(SECOND))
    return _shift(bits, 16).bitwise_xor_(bits)


def _shift(bits: Int[Tensor, "*shape"], count: int) -> Int[Tensor, "*shape"]:
    """Shift right, filling with zeros: `>>` alone would drag the sign along."""
    return (bits >> count).bitwise_and_((1 << (BITS - count)) - 1)


def _signed_word(number: Int[Tensor, ""]) -> Int[Tensor, ""]:
    """The lower 32 bits."""
    # Shifted up and down again, since a number that does not fit must not be converted.
    return ((number << BITS) >> BITS).int()


def _signed(bits: int) -> int:
    """Read the lower 32 bits as the two's complement number that an int32 tensor can hold."""
    bits %= 1 << BITS
    return bits - (1 << BITS) if bits >> (BITS - 1) else bits
