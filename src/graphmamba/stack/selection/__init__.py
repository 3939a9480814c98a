"""What makes the scan selective: step sizes, B and C of each row, from the row itself."""

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphmamba.checks import check_choice
from graphmamba.encode.forgetting import Make
from graphmamba.encode.linear import linear
from graphmamba.stack.selection.operators import FusedSelection

__all__ = ["Selected", "select"]

SelectionBackend = Literal["auto", "reference", "fused"]
"""`auto` is `fused` (Triton) on a GPU where TF32 is allowed and a row fits, else `reference`."""
_HAS_TRITON = find_spec("triton") is not None
MOST_INNER, MOST_STATE, MOST_RANK = 128, 32, 16
"""Sizes whose gradients the registers of the fused form hold."""


@dataclass(frozen=True)
class Selected:
    """What the scan takes of a row."""

    u: Float[Tensor, "steps inner"]
    """The row itself; what follows must take it from here."""
    delta: Float[Tensor, "steps inner"]
    """Step sizes, before their bias and softplus."""
    B: Float[Tensor, "steps state"]
    C: Float[Tensor, "steps state"]
    delta_again: Make
    """Makes `delta` anew, of what is kept anyway."""


def select(
    u: Float[Tensor, "steps inner"],
    select_weight: Float[Tensor, "parts inner"],
    step_weight: Float[Tensor, "inner rank"],
    *,
    backend: SelectionBackend = "auto",
) -> Selected:
    r"""Find step sizes, B and C.

    .. math:: (s, B, C) = W_x u, \quad \Delta = W_\Delta s

    The fused form takes one kernel, and two for all gradients, where PyTorch takes two and about
    twelve; it rounds to TF32. Repeats give the same bits.

    Args:
        u: Convolved rows.
        select_weight: W_x, rows for s, then B, then C.
        step_weight: W_Delta.
        backend: `auto` is `fused` where that runs and `reference` elsewhere.
    """
    check_choice("backend", backend, get_args(SelectionBackend))
    rank = step_weight.shape[1]
    state = (select_weight.shape[0] - rank) // 2
    if backend == "fused" or (backend == "auto" and _can_fuse(u, select_weight, rank, state)):
        u, delta, B, C, out = FusedSelection.apply(u, select_weight, step_weight)  # type: ignore[no-untyped-call]
        weights = select_weight.detach(), step_weight.detach()
        return Selected(u, delta, B, C, lambda: torch.ops.graphmamba.raw_steps_fused(out, *weights))
    s, B, C = linear(u, select_weight).split([rank, state, state], dim=-1)
    low = s.detach()
    return Selected(u, linear(s, step_weight), B, C, lambda: functional.linear(low, step_weight))


def _can_fuse(u: Tensor, weight: Tensor, rank: int, state: int) -> bool:
    is_free = _HAS_TRITON and u.is_cuda and not torch.compiler.is_compiling()
    is_single = u.dtype == weight.dtype == torch.float32
    if not (is_free and is_single) or torch.is_autocast_enabled("cuda"):
        return False
    fits = u.shape[1] <= MOST_INNER and state <= MOST_STATE and rank <= MOST_RANK
    return fits and torch.backends.cuda.matmul.fp32_precision == "tf32"
