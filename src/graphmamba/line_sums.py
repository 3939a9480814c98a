"""Adds up what the programs of a kernel have left: sums without atomics, in a fixed order."""

import triton
from jaxtyping import Float
from torch import Tensor

from graphmamba.line_sums_kernels import add_lines_kernel

LINES, COLUMNS = 32, 32
MOST_SUMS = 4


def add_lines(lines: Float[Tensor, "programs line"], *sums: Tensor) -> None:
    """Add the lines up into up to four tensors, which they hold one behind the other."""
    count, line = lines.shape
    places = [*sums, *[lines] * (MOST_SUMS - len(sums))]
    sizes = [each.numel() for each in sums] + [0] * (MOST_SUMS - len(sums))
    add_lines_kernel[(triton.cdiv(line, COLUMNS),)](
        *(lines, *places, count),
        **dict(zip("ABCD", sizes, strict=True)),
        LINES=LINES,
        COLUMNS=COLUMNS,
        num_warps=4,
    )
