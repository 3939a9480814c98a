"""What makes the scan selective: step sizes, B and C of each row, from the row itself."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.fusing import FusedBackend, can_fuse_single, is_fused_single, may_round
from graphmamba.ops.linear import linear
from graphmamba.ops.selection.operators import FusedSelection

__all__ = ["Selected", "select"]

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


def select(
    u: Float[Tensor, "steps inner"],
    select_weight: Float[Tensor, "parts inner"],
    step_weight: Float[Tensor, "inner rank"],
    *,
    backend: FusedBackend = "auto",
) -> Selected:
    r"""Find step sizes, B and C.

    .. math:: (s, B, C) = W_x u, \quad \Delta = W_\Delta s

    The fused form takes one kernel, and two for all gradients, where PyTorch takes two and about
    twelve; it rounds to TF32. Repeats give the same bits.

    Args:
        u: Convolved rows.
        select_weight: W_x, rows for s, then B, then C.
        step_weight: W_Delta.
        backend: `auto` is `fused` for float32 on a GPU where TF32 is allowed and a row fits, but
            where autocast chooses types, and `reference` elsewhere.
    """
    rank = step_weight.shape[1]
    state = (select_weight.shape[0] - rank) // 2
    if backend == "auto":
        is_fused = _can_fuse(u, select_weight, rank, state)
    else:
        is_fused = is_fused_single(backend, u, select_weight, step_weight)
    if is_fused:
        u, delta, B, C, _ = FusedSelection.apply(u, select_weight, step_weight)  # type: ignore[no-untyped-call]
        return Selected(u, delta, B, C)
    s, B, C = linear(u, select_weight).split([rank, state, state], dim=-1)
    return Selected(u, linear(s, step_weight), B, C)


def _can_fuse(u: Tensor, weight: Tensor, rank: int, state: int) -> bool:
    fits = u.shape[1] <= MOST_INNER and state <= MOST_STATE and rank <= MOST_RANK
    return can_fuse_single(u, weight) and fits and may_round(u)
