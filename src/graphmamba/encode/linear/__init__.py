"""A linear map whose gradients are found in few kernels on a GPU."""

from importlib.util import find_spec
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_choice
from graphmamba.encode.linear.operators import FusedLinear, ThroughLinear, may_round

__all__ = ["Linear", "linear", "linear_through"]

LinearBackend = Literal["auto", "reference", "fused"]
"""`auto` is `fused` (Triton) for float32 rows on a GPU, but where a graph is compiled or autocast
chooses types, and `reference` (PyTorch) elsewhere."""
_HAS_TRITON = find_spec("triton") is not None

MOST_THROUGH = 64
"""Channels of a weight that one of many programs holds."""
ROWS = 2
"""Dimensions of rows."""

Inputs = Float[Tensor, "*rows in"]
Rows = Float[Tensor, "*rows out"]
Weight = Float[Tensor, "out in"]
Bias = Float[Tensor, " out"]


class Linear(nn.Linear):
    """`torch.nn.Linear`, with the same parameters, whose gradients come from `linear`."""

    backend: LinearBackend = "auto"
    """What runs it."""

    def forward(self, input: Inputs) -> Rows:  # noqa: A002 - as PyTorch names it
        """Map each row."""
        return linear(input, self.weight, self.bias, backend=self.backend)


def linear(
    x: Inputs, weight: Weight, bias: Bias | None = None, *, backend: LinearBackend = "auto"
) -> Rows:
    r"""Map each row, as `torch.nn.functional.linear` does.

    .. math:: y = x W^T + b

    A batch of graphs has many rows and few channels. For such shapes PyTorch takes up to five
    kernels for the gradients, and the one that sums a bias's costs more than the product. The fused
    form finds those of weight and bias in one pass over the rows, and adds up the shares of its
    programs in a second kernel. Where TF32 is not allowed, PyTorch keeps the products, and only the
    bias is summed here. Repeats give the same bits.

    Args:
        x: Rows.
        weight: W.
        bias: b; none if None.
        backend: `auto` is `fused` for float32 on a GPU and `reference` elsewhere.
    """
    check_choice("backend", backend, get_args(LinearBackend))
    if backend == "reference" or (backend == "auto" and not _can_fuse(x, weight)):
        return functional.linear(x, weight, bias)
    return FusedLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]


def linear_through(
    x: Float[Tensor, "rows in"],
    weight: Weight,
    bias: Bias | None = None,
    *,
    backend: LinearBackend = "auto",
) -> tuple[Float[Tensor, "rows out"], Float[Tensor, "rows in"]]:
    """Map rows that are used once more, as by a residual sum; that has to take them from here.

    Two uses of a tensor have two gradients, which PyTorch adds in a pass of its own. The fused form
    adds the other one where it finds that of the map; it runs where TF32 is allowed and the weight
    is small.

    Args:
        x: Rows.
        weight: W.
        bias: b; none if None.
        backend: As in `linear`.

    Returns:
        The mapped rows, and the rows themselves.
    """
    check_choice("backend", backend, get_args(LinearBackend))
    fits = max(weight.shape) <= MOST_THROUGH and x.dim() == ROWS and may_round(x)
    if backend == "fused" or (backend == "auto" and fits and _can_fuse(x, weight)):
        return ThroughLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return linear(x, weight, bias, backend=backend), x


def _can_fuse(x: Tensor, weight: Tensor) -> bool:
    is_free = _HAS_TRITON and not torch.compiler.is_compiling()
    is_single = x.dtype == weight.dtype == torch.float32
    return x.is_cuda and is_single and is_free and not torch.is_autocast_enabled("cuda")
