"""Host functions that several kernels share: block sizes, sums over programs and repeated rows."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.triton_kernels import add_lines_kernel


def ceil_div(size: int, block: int) -> int:
    """Integer division rounded up; `triton.cdiv` takes several microseconds."""
    return -(-size // block)


def power_of_two(size: int) -> int:
    """Return the smallest power of two that is at least `size`, and at least 1."""
    return 1 << max(size - 1, 0).bit_length()


HOPPER = (9, 0)  # first compute capability with programmatic dependent launch


def starts_early(device: torch.device) -> bool:
    """Whether the device supports programmatic dependent launch."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= HOPPER


FEW_ROWS, MOST_SUMS = 512, 4


def add_partial_sums(partial: Float[Tensor, "programs numbers"], *sums: Tensor) -> None:
    """Sum over programs in a fixed order; the columns are split into up to four tensors `sums`."""
    count, numbers = partial.shape
    outputs = [*sums, *[partial] * (MOST_SUMS - len(sums))]
    sizes = [each.numel() for each in sums] + [0] * (MOST_SUMS - len(sums))
    # Many rows need more programs, and more rows per iteration.
    step, columns, warps = (32, 32, 4) if count <= FEW_ROWS else (256, 8, 8)
    add_lines_kernel[(ceil_div(numbers, columns),)](
        partial, *outputs, count, **dict(zip("ABCD", sizes, strict=True)), LINES=step,
        COLUMNS=columns, num_warps=warps,
    )  # fmt: skip


def sum_rows(
    values: Float[Tensor, "steps inner"],
    order: Int[Tensor, " steps"],
    rows: int,
    *,
    is_permutation: bool,
) -> Float[Tensor, "rows inner"]:
    """Sum `values` over the steps that read each row, in a fixed order.

    Args:
        values: Gradient of each step; in a permutation, that of step `t` is at `order[t]`.
        order: Step `t` reads row `order[t]`; in a permutation, row `order[t] % rows`.
        rows: Number of rows.
        is_permutation: Whether `order` is a permutation of the steps.
    """
    if is_permutation:
        return values.view(-1, rows, values.shape[1]).sum(0)
    by_row = torch.argsort(order, stable=True)
    counts = torch.zeros(rows, dtype=torch.long, device=order.device)
    counts.index_add_(0, order.long(), torch.ones_like(order, dtype=torch.long))
    return torch.segment_reduce(values[by_row], "sum", lengths=counts, axis=0, initial=0)
