"""The selection on a GPU: which kernels run, on what tiles."""

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.kernel_sizes import block_of
from graphmamba.ops.line_sums import add_lines, share
from graphmamba.ops.selection.fused_kernels import selection_bwd_kernel, selection_fwd_kernel

FORWARD_ROWS, BACKWARD_ROWS = 64, 32
STAGES = 1
WARPS = 4
PROGRAMS, LEAST_LINES = 264, 16
"""Of a gradient: two for each of an H200's processors, and some however wide the rows are."""
ALIGNED = 4
"""Numbers that are read at once: rows of the projection are as long as a multiple of it."""

Rows = Float[Tensor, "rows inner"]
Select = Float[Tensor, "parts inner"]
Step = Float[Tensor, "inner rank"]


def forward(u: Rows, select: Select, step: Step) -> tuple[Float[Tensor, "rows width"], Rows]:
    """B, C and the low-rank step of each row, one behind the other, and the raw steps."""
    rows, width = u.shape[0], triton.cdiv(select.shape[0], ALIGNED) * ALIGNED
    out, delta = u.new_empty(rows, width), u.new_empty(u.shape)
    _walk(u, select, step, out, delta, only_delta=False)
    return out, delta


def raw_steps(out: Float[Tensor, "rows width"], select: Select, step: Step) -> Rows:
    """The raw steps anew, to the last bit."""
    delta = out.new_empty(out.shape[0], step.shape[0])
    _walk(delta, select, step, out, delta, only_delta=True)
    return delta


def backward(
    du: Rows, d_delta: Rows, dB: Float[Tensor, "rows state"], dC: Float[Tensor, "rows state"],
    u: Rows, out: Float[Tensor, "rows width"], select: Select, step: Step,
) -> tuple[Rows, Select, Step]:  # fmt: skip
    """Gradients of u, `du` of its other uses included, and of both weights."""
    rows, rank = u.shape[0], step.shape[1]
    found = u.new_empty(u.shape)
    if rows == 0:
        return found, torch.zeros_like(select), torch.zeros_like(step)
    line = select.numel() + step.numel()
    tiles, programs = share(rows, BACKWARD_ROWS, PROGRAMS, line, LEAST_LINES)
    lines = u.new_empty(programs, line)
    shape = _shape(select, step)
    selection_bwd_kernel[(programs,)](
        *(du, d_delta, dB, dC, u, out[:, select.shape[0] - rank :], select, step, found, lines),
        *(rows, tiles),
        DU_STRIDE=du.stride(0),
        DELTA_STRIDE=d_delta.stride(0),
        B_STRIDE=dB.stride(0),
        C_STRIDE=dC.stride(0),
        U_STRIDE=u.stride(0),
        LOW_STRIDE=out.stride(0),
        R=BACKWARD_ROWS,
        STAGES=STAGES,
        num_warps=WARPS,
        **shape,
    )
    d_select, d_step = torch.empty_like(select), torch.empty_like(step)
    add_lines(lines, d_select, d_step)
    return found, d_select, d_step


def _walk(
    u: Rows, select: Select, step: Step, out: Tensor, delta: Rows, *, only_delta: bool
) -> None:
    rows = u.shape[0]
    if rows:
        selection_fwd_kernel[(triton.cdiv(rows, FORWARD_ROWS),)](
            *(u, select, step, out, delta, rows),
            U_STRIDE=u.stride(0),
            OUT_STRIDE=out.stride(0),
            R=FORWARD_ROWS,
            ONLY_DELTA=only_delta,
            num_warps=WARPS,
            **_shape(select, step),
        )


def _shape(select: Select, step: Step) -> dict[str, int]:
    (inner, rank), parts = step.shape, select.shape[0]
    state = (parts - rank) // 2
    return {
        "INNER": inner, "STATE": state, "RANK": rank,
        "IB": block_of(inner), "N": block_of(state), "K": block_of(rank),
    }  # fmt: skip
