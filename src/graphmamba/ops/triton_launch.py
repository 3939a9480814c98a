"""What the launchers of several kernels share: blocks, partial sums, sums over repeated rows."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.triton_kernels import add_lines_kernel


def ceil_div(size: int, block: int) -> int:
    """Number of blocks that hold so many; Triton's own takes several microseconds."""
    return -(-size // block)


def power_of_two(size: int) -> int:
    """Return the least power of two that is not below `size`, at least 1."""
    return 1 << max(size - 1, 0).bit_length()


HOPPER = (9, 0)
"""The first GPUs with programmatic dependent launches."""


def starts_early(device: torch.device) -> bool:
    """Tell whether a kernel can be put in place while the one before it is ending."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= HOPPER


FEW_ROWS, MOST_SUMS = 512, 4


def add_partial_sums(partial: Float[Tensor, "programs numbers"], *sums: Tensor) -> None:
    """Add the rows that programs have left into up to four tensors, one behind the other.

    In a fixed order and without atomics.
    """
    count, numbers = partial.shape
    places = [*sums, *[partial] * (MOST_SUMS - len(sums))]
    sizes = [each.numel() for each in sums] + [0] * (MOST_SUMS - len(sums))
    # A program goes down its columns step by step: many rows want more of them, and large steps.
    step, columns, warps = (32, 32, 4) if count <= FEW_ROWS else (256, 8, 8)
    add_lines_kernel[(ceil_div(numbers, columns),)](
        *(partial, *places, count),
        **dict(zip("ABCD", sizes, strict=True)),
        LINES=step,
        COLUMNS=columns,
        num_warps=warps,
    )


def sum_rows(
    values: Float[Tensor, "steps inner"],
    order: Int[Tensor, " steps"],
    rows: int,
    *,
    is_permutation: bool,
) -> Float[Tensor, "rows inner"]:
    """Return for each row the sum of `values` over the steps that read it, in a fixed order.

    Args:
        values: What each step adds; in a permutation, that of step `t` lies at `order[t]`.
        order: The row that each step reads; in a permutation, its slot.
        rows: Number of rows.
        is_permutation: Whether `order` holds each slot once; slot s belongs to row s % rows.
    """
    if is_permutation:
        return values.view(-1, rows, values.shape[1]).sum(0)
    # Sorting brings the steps of a row side by side; each row then adds its own one by one.
    by_row = torch.argsort(order, stable=True)
    counts = torch.zeros(rows, dtype=torch.long, device=order.device)
    counts.index_add_(0, order.long(), torch.ones_like(order, dtype=torch.long))
    return torch.segment_reduce(values[by_row], "sum", lengths=counts, axis=0, initial=0)
