"""The sum of several tensors of one shape on a GPU."""

from collections.abc import Sequence
from typing import no_type_check

import triton
import triton.language as tl
from torch import Tensor

AT_ONCE = 4
"""Tensors that one kernel adds; more take another one."""
BLOCK = 2048
WARPS = 4


def add_up(tensors: Sequence[Tensor]) -> Tensor:
    """Add dense tensors from the first to the last, in single precision."""
    first, rest = list(tensors[:AT_ONCE]), tensors[AT_ONCE:]
    out = first[0].new_empty(first[0].shape)
    if out.numel():
        pointers = [*first, *[first[0]] * (AT_ONCE - len(first))]
        add_up_kernel[(triton.cdiv(out.numel(), BLOCK),)](
            *pointers, out, out.numel(), COUNT=len(first), B=BLOCK, num_warps=WARPS
        )
    return add_up([out, *rest]) if rest else out


@no_type_check
@triton.jit
def add_up_kernel(
    a_ptr, b_ptr, c_ptr, d_ptr, out_ptr, size, COUNT: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Add B numbers of the first COUNT tensors."""
    at = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B)
    inside = at < size
    total = tl.load(a_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if COUNT > 1:
        total += tl.load(b_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if COUNT > 2:  # noqa: PLR2004
        total += tl.load(c_ptr + at, mask=inside, other=0.0).to(tl.float32)
    if COUNT > 3:  # noqa: PLR2004
        total += tl.load(d_ptr + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + at, total, mask=inside)
