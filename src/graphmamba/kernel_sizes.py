"""What the launchers of several kernels have to know of blocks."""

import triton

LEAST_BLOCK = 16
"""What tensor cores take at least."""


def block_of(size: int, most: int | None = None, least: int = LEAST_BLOCK) -> int:
    """Return the power of two that holds so many channels or rows, or `most` if that is less."""
    block: int = max(triton.next_power_of_2(size), least)
    return block if most is None else min(block, most)
