"""Adds up what the programs of a kernel have left: sums without atomics, in a fixed order."""

import triton
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.line_sums_kernels import add_lines_kernel

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
