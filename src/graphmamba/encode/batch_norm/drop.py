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
    return torch.where(kept(drop, rows.shape), rows * drop.scale, 0)


def kept(drop: Drop, shape: tuple[int, ...]) -> Bool[Tensor, "rows channels"]:
    """Tell which entries stay."""
    low, high = _signed_word(drop.seed), _signed_word(drop.seed >> BITS)
    key = _mix(low + site_key(drop.site))
    second = _mix(high ^ key)
    total = shape[0] * shape[1]
    stays = torch.empty(total, dtype=torch.bool, device=drop.seed.device)
    is_whole = drop.seed.device.type != "cpu" or torch.compiler.is_compiling()
    size = max(total, 1) if is_whole else CHUNK
    for begin in range(0, total, size):
        end = min(begin + size, total)
        index = torch.arange(begin, end, dtype=torch.int64, device=drop.seed.device).int()
        bits = _mix(_mix(index ^ key) + second)
        # As unsigned numbers, where the sign bit is the highest digit.
        stays[begin:end] = (bits ^ -(1 << (BITS - 1))) >= drop.threshold - (1 << (BITS - 1))
    return stays.view(shape)


def site_key(site: int) -> int:
    """Spread the numbers of sites over all 32-bit numbers."""
    return _signed(site * GOLDEN)


def _mix(bits: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Scatter 32 bits: a bijection in which each bit of the input sways each of the output."""
    bits = (bits ^ _shift(bits, 16)) * _signed(FIRST)
    bits = (bits ^ _shift(bits, 15)) * _signed(SECOND)
    return bits ^ _shift(bits, 16)


def _shift(bits: Int[Tensor, "*shape"], count: int) -> Int[Tensor, "*shape"]:
    """Shift right, filling with zeros: `>>` alone would drag the sign along."""
    return (bits >> count) & ((1 << (BITS - count)) - 1)


def _signed_word(number: Int[Tensor, ""]) -> Int[Tensor, ""]:
    """The lower 32 bits."""
    # Shifted up and down again, since a number that does not fit must not be converted.
    return ((number << BITS) >> BITS).int()


def _signed(bits: int) -> int:
    """Read the lower 32 bits as the two's complement number that an int32 tensor can hold."""
    bits %= 1 << BITS
    return bits - (1 << BITS) if bits >> (BITS - 1) else bits
