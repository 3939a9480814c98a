"""The causal convolution over packed sequences: the public function and its operators."""

from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops import checks
from graphmamba.ops.backends import Backend, choose_backend
from graphmamba.ops.causal_conv1d import reference
from graphmamba.ops.registration import SequenceOperator, reject_tangents


def causal_conv1d(
    x: Float[Tensor, "rows inner"],
    weight: Float[Tensor, "inner width"],
    bias: Float[Tensor, " inner"] | None = None,
    *,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None = None,
    permutation: bool = False,
    activation: bool = True,
    reverse: bool = False,
    backend: Backend = "auto",
    check: bool | None = None,
) -> Float[Tensor, "steps inner"]:
    r"""Depthwise causal convolution of packed sequences.

    .. math::
        y_t = \mathrm{SiLU}\Big(b + \sum_{k=0}^{width-1} w_{width-1-k} \odot x_{o(t-k)}\Big)

    where steps before the start of a sequence are 0. Output and gradients are bitwise reproducible.

    Args:
        x: Rows that the steps read; float32 or bfloat16, on the CPU also float64.
        weight: Taps of each channel, at most 8; the last one multiplies the step itself.
        bias: Added before the activation.
        cu_seqlens: Sequence `i` is steps `cu_seqlens[i]` to `cu_seqlens[i + 1]`; it may be empty.
        order: Row that each step reads, repeats allowed; step `t` reads row `t` if None.
        permutation: Whether `order` is a permutation of the steps, which makes the backward pass
            faster; step `t` then reads row `order[t] % rows`.
        activation: Whether SiLU is applied.
        reverse: Whether the taps reach forwards instead of backwards.
        backend: `auto` is `triton` for tensors on a GPU and `cpu` for the others.
        check: Whether the values of `cu_seqlens` and `order` are checked, which synchronises a GPU.
            None checks on the CPU, and on a GPU if no gradient is recorded; never while a graph is
            compiled or captured.

    Returns:
        The output in the order of the steps, in the type of `x`.

    Raises:
        ValueError: An argument is invalid.
        ImportError: The backend needs a package that is not installed.

    Example:
        >>> import torch
        >>> x, weight = torch.randn(5, 8), torch.randn(8, 4)
        >>> causal_conv1d(x, weight, cu_seqlens=torch.tensor([0, 2, 5])).shape
        torch.Size([5, 8])
    """
    name = choose_backend(backend, checks.device_of("x", x))
    rows, parameters = {"x": x}, {"weight": weight, "bias": bias}
    checks.check_tensors(name, rows, parameters, {"cu_seqlens": cu_seqlens, "order": order})
    steps = checks.check_conv_shapes(x, weight, bias, cu_seqlens, order, permutation)
    if checks.are_values_checked(check, x, weight, bias):
        checks.check_values(cu_seqlens, order, steps, x.shape[0], permutation, "permutation")

    if name == "reference":
        return reference.causal_conv1d(
            *(x, weight, bias), cu_seqlens=cu_seqlens, order=order, permutation=permutation,
            activation=activation, reverse=reverse,
        )  # fmt: skip
    reject_tangents("causal_conv1d", x, weight, bias)
    exact = torch.promote_types(x.dtype, torch.float32)
    weight, bias = weight.to(exact), None if bias is None else bias.to(exact)
    settings = permutation, activation, reverse
    out, _ = _OPERATORS[name](x, weight, bias, cu_seqlens, order, *settings)
    return out


def _shapes(_: ModuleType, *arguments: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    x, order = arguments[0], arguments[4]
    return ((x if order is None else order).shape[0], x.shape[1]), (0,)


_OPERATOR = SequenceOperator(
    name="causal_conv1d",
    leaves=("Tensor x", "Tensor weight", "Tensor? bias"),
    settings=("bool permutation", "bool activation", "bool reverse"),
    shapes=_shapes,
)
_OPERATORS = {backend: _OPERATOR.register(backend) for backend in ("cpu", "triton")}
