"""Rows scaled to length 1, with or without a ReLU before it: one kernel a pass on a GPU."""

from typing import get_args

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphmamba.checks import check_choice
from graphmamba.encode.unit_rows.operators import UnitRows
from graphmamba.errors import UserError
from graphmamba.fusing import FUSED_TYPES, FusedBackend, can_fuse

__all__ = ["unit_rows"]

Rows = Float[Tensor, "rows channels"]


def unit_rows(x: Rows, *, has_relu: bool = False, backend: FusedBackend = "auto") -> Rows:
    r"""Scale every row to length 1; rows of zeros stay.

    .. math:: y = \frac{r}{\max(\lVert r \rVert, 10^{-12})}, \quad r = x \text{ or } \max(x, 0)

    The fused form takes one kernel, and one for the gradient, which finds the length anew.

    Args:
        x: Rows.
        has_relu: Whether negative numbers become 0 before.
        backend: `auto` is `fused` for tensors on a GPU and `reference` for the others.

    Returns:
        Rows of the type of `x`, where autocast chooses types too.
    """
    check_choice("backend", backend, get_args(FusedBackend))
    is_fit = x.dtype in FUSED_TYPES
    if backend == "fused" and not is_fit:
        raise UserError(f"backend must be 'reference' for {x.dtype}, got 'fused'")
    if backend == "fused" or (backend == "auto" and is_fit and can_fuse(x)):
        return UnitRows.apply(x, has_relu)  # type: ignore[no-untyped-call]
    rows = functional.relu(x) if has_relu else x
    return functional.normalize(rows, dim=-1).to(x.dtype)
