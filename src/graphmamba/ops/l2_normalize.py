"""L2 normalisation of rows."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

LEAST = 1e-12  # lower bound of the norm
Rows = Float[Tensor, "rows channels"]


def l2_normalize(x: Rows) -> Rows:
    """Divide each row by its norm; rows of zeros stay zero."""
    if x.is_cuda and not torch.compiler.is_compiling():
        out: Tensor = L2Normalize.apply(x)  # type: ignore[no-untyped-call]
        return out
    return functional.normalize(x, dim=-1, eps=LEAST)


class L2Normalize(torch.autograd.Function):
    """L2 normalisation whose gradient takes four kernel launches instead of eleven."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """Divide by the norm."""
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min_(LEAST)
        y = x / norm
        ctx.save_for_backward(y, norm)
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Project the gradient orthogonally to the row, and divide by the norm."""
        y, norm = ctx.saved_tensors
        along = (grad * y).sum(dim=-1, keepdim=True)
        return torch.addcmul(grad, y, along, value=-1).div_(norm)
