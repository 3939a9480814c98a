"""Rows scaled to length 1, with or without a ReLU before it: one kernel a pass on a GPU."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphmamba.encode.unit_rows.operators import UnitRows
from graphmamba.fusing import FusedBackend, is_fused

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
    if is_fused(backend, x):
        return UnitRows.apply(x, has_relu)  # type: ignore[no-untyped-call]
    rows = functional.relu(x) if has_relu else x
    return functional.normalize(rows, dim=-1).to(x.dtype)
