"""What the launchers of several kernels share: blocks, partial sums, sums over repeated rows."""

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.triton_kernels import add_lines_kernel

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


FEW_LINES = 512
MOST_SUMS = 4
MOST_BYTES = 8 << 20
"""Of all lines: with more, adding them up would take longer than what the programs share."""


def share(rows: int, tile: int, programs: int, line: int, least: int = 1) -> tuple[int, int]:
    """Share rows among programs that leave a line each.

    Args:
        rows: How many there are.
        tile: Rows that a program takes at a time.
        programs: How many the GPU wants, at most.
        line: Numbers of a line.
        least: Programs that there may be however long a line is.

    Returns:
        Tiles of a program, and programs.
    """
    most = max(least, min(programs, MOST_BYTES // (4 * line)))
    tiles = triton.cdiv(triton.cdiv(rows, tile), most)
    return tiles, triton.cdiv(rows, tiles * tile)


def add_lines(lines: Float[Tensor, "programs line"], *sums: Tensor) -> None:
    """Add the lines up into up to four tensors, which they hold one behind the other."""
    count, line = lines.shape
    places = [*sums, *[lines] * (MOST_SUMS - len(sums))]
    sizes = [each.numel() for each in sums] + [0] * (MOST_SUMS - len(sums))
    # A program goes down its columns step by step: many lines want more of them, and large steps.
    step, columns, warps = (32, 32, 4) if count <= FEW_LINES else (256, 8, 8)
    add_lines_kernel[(triton.cdiv(line, columns),)](
        *(lines, *places, count),
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
    """Return for each row the sum of `values` over the steps that visit it.

    Args:
        values: What each step sends back; in a permutation, that of step `t` lies at `order[t]`.
        order: The row that each step visits; in a permutation, its slot.
        rows: Number of rows.
        is_permutation: Whether `order` holds each slot once; slot s belongs to row s % rows.
    """
    if is_permutation:
        return values.view(-1, rows, values.shape[1]).sum(0)
    # Sorting brings the visits of a row side by side; each row then adds its own one by one.
    visits = torch.argsort(order, stable=True)
    counts = torch.zeros(rows, dtype=torch.long, device=order.device)
    counts.index_add_(0, order.long(), torch.ones_like(order, dtype=torch.long))
    return torch.segment_reduce(values[visits], "sum", lengths=counts, axis=0, initial=0)
