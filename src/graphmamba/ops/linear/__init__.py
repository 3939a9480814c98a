"""A linear map whose gradients are found in few kernels on a GPU."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from graphmamba.ops.fusing import FusedBackend, is_fused_single
from graphmamba.ops.linear.operators import MATRIX, FusedLinear, ThroughLinear, is_ours_faster

__all__ = ["linear", "linear_through"]

Inputs = Float[Tensor, "*rows in"]
Rows = Float[Tensor, "*rows out"]
Weight = Float[Tensor, "out in"]
Bias = Float[Tensor, " out"]


def linear(
    x: Inputs, weight: Weight, bias: Bias | None = None, *, backend: FusedBackend = "auto"
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
        backend: `auto` is `fused` for float32 on a GPU, but where autocast chooses types, and
            `reference` elsewhere.
    """
    if is_fused_single(backend, x, weight):
        return FusedLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return functional.linear(x, weight, bias)


def linear_through(
    x: Float[Tensor, "rows in"],
    weight: Weight,
    bias: Bias | None = None,
    *,
    backend: FusedBackend = "auto",
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
    is_kernel = is_fused_single(backend, x, weight)
    if is_kernel and x.dim() == MATRIX and is_ours_faster(x, weight):
        return ThroughLinear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return linear(x, weight, bias, backend=backend), x
