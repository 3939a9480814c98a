"""Dropout by counters."""

import pytest
import torch

from graphmamba.ops.dropout import Drop, factors

SEED = torch.tensor(-8_000_000_000_000_000_001)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_as_many_entries_are_dropped_as_asked_for(rate: float) -> None:
    stays = factors(Drop(rate, SEED, 3), (1000, 64)) > 0
    # Four standard deviations of the mean of 64,000 draws.
    allowed = 4 * (rate * (1 - rate) / stays.numel()) ** 0.5
    assert abs(stays.double().mean() - (1 - rate)) < allowed
    for axis in (0, 1):
        spread = stays.double().mean(dim=axis)
        allowed = 5 * (rate * (1 - rate) / stays.shape[axis]) ** 0.5
        assert (spread - (1 - rate)).abs().max() < allowed


@pytest.mark.parametrize(
    "other", [Drop(0.5, SEED, 4), Drop(0.5, SEED + 1, 3), Drop(0.5, SEED + (1 << 32), 3)]
)
def test_sites_and_seeds_drop_independently(other: Drop) -> None:
    shape = 1000, 64
    first, second = (
        factors(drop, shape).double() / 2 - 0.5 for drop in (Drop(0.5, SEED, 3), other)
    )
    # Also against a mask that is the same one shifted by a few entries.
    for shift in range(-3, 4):
        correlation = 4 * (first.flatten() * second.flatten().roll(shift)).mean()
        assert abs(correlation) < 4 / 64_000**0.5


def test_rows_keep_their_mask_whatever_follows_them() -> None:
    drop = Drop(0.3, SEED, 1)
    assert torch.equal(factors(drop, (5000, 7))[:123], factors(drop, (123, 7)))
