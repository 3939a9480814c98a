"""What the launchers of several kernels have to know of blocks and of the GPU."""

import torch
import triton

LEAST_BLOCK = 16
"""What tensor cores take at least."""
HOPPER = (9, 0)
"""The first GPUs with programmatic dependent launches."""


def block_of(size: int, most: int | None = None, least: int = LEAST_BLOCK) -> int:
    """Return the power of two that holds so many channels or rows, or `most` if that is less."""
    block: int = max(triton.next_power_of_2(size), least)
    return block if most is None else min(block, most)


def starts_early(device: torch.device) -> bool:
    """Tell whether a kernel can be put in place while the one before it is ending."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= HOPPER
