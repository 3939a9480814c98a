"""Bins of histograms of whole numbers, whose bars tell of the numbers and not of the bins."""

import math

from jaxtyping import Int
from torch import Tensor

BINS = 60
"""About how many there are at most."""


def even_bins(counts: Int[Tensor, " counts"]) -> list[float]:
    """Ends of equal bins, each of which holds as many of the numbers that there may be."""
    low, high = int(counts.min()), int(counts.max())
    step = math.ceil((high - low + 1) / BINS)
    unit = _unit(counts)
    if step > 1 and unit <= 2 * step:
        step = math.ceil(step / unit) * unit
    return [low - 0.5 + step * place for place in range((high - low) // step + 2)]


def log_bins(counts: Int[Tensor, " counts"]) -> list[float]:
    """Ends of bins that are as wide on a logarithmic axis, as far as whole numbers allow.

    None is narrower than the one before, so that neighbours do not take turns in what they hold.

    Args:
        counts: Whole numbers from 1.
    """
    low, high = int(counts.min()), int(counts.max())
    growth = (high / low) ** (1 / BINS) - 1
    unit = _unit(counts) if _unit(counts) <= low else 1
    ends = [low - 0.5]
    while ends[-1] < high:
        ends.append(ends[-1] + unit * max(1, round(ends[-1] * growth / unit)))
    return ends


def _unit(counts: Int[Tensor, " counts"]) -> int:
    """What all differ by a multiple of, such as 2 where edges go both ways."""
    return math.gcd(*(counts - counts.min()).unique().tolist()) or 1
