"""Checks at the doors of both operations; every message names the argument, the rule, the value."""

from collections.abc import Mapping
from typing import get_args

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops.options import Discretization

MOST_TAPS = 8
"""Taps of the widest convolution."""

_INTEGERS = torch.int32, torch.int64
_REALS = {
    "reference": (torch.float32, torch.bfloat16, torch.float16, torch.float64),
    "cpu": (torch.float32, torch.bfloat16, torch.float64),
    "fused": (torch.float32, torch.bfloat16),
}
_DIMENSIONS = {"D": 1, "delta_bias": 1, "bias": 1}
"""Of the arguments with a number of dimensions other than two."""

Tensors = Mapping[str, Tensor | None]


def device_of(name: str, tensor: Tensor) -> torch.device:
    """Where the tensor lies; what is no tensor is refused."""
    _check_is_tensor(name, tensor)
    return tensor.device


def check_tensors(backend: str, rows: Tensors, parameters: Tensors, indices: Tensors) -> None:
    """Refuse what is no tensor of the right type, number of dimensions and device.

    Args:
        backend: Which implementation will run.
        rows: Tensors that share one type of numbers; the first one says on which device all lie.
        parameters: Tensors of any type of real numbers.
        indices: Tensors of integers.
    """
    (first_name, first), *_ = rows.items()
    assert first is not None
    _check_one_of(f"{first_name}.dtype", first.dtype, _REALS[backend], f" for backend {backend!r}")
    for name, tensor in {**rows, **parameters, **indices}.items():
        if tensor is None and name not in {"A", "B", "C", "delta", "weight", "cu_seqlens"}:
            continue
        _check_is_tensor(name, tensor)
        assert tensor is not None
        if name in rows and tensor.dtype != first.dtype:
            raise UserError(
                f"{name}.dtype must be that of {first_name}, {first.dtype}, got {tensor.dtype}"
            )
        if name in parameters:
            _check_one_of(f"{name}.dtype", tensor.dtype, _REALS["reference"])
        if name in indices:
            _check_one_of(f"{name}.dtype", tensor.dtype, _INTEGERS)
        if tensor.device != first.device:
            raise UserError(
                f"{name}.device must be that of {first_name}, {first.device}, got {tensor.device}"
            )
        dimensions = 1 if name in indices else _DIMENSIONS.get(name, 2)
        if tensor.dim() != dimensions:
            raise UserError(
                f"{name} must have {dimensions} dimensions, got shape {tuple(tensor.shape)}"
            )


def check_scan_shapes(
    tensors: Tensors, cu_seqlens: Tensor, order: Tensor | None, scatter: bool
) -> None:
    """Refuse arguments of the selective scan that do not fit to one another."""
    u, A, z = tensors["u"], tensors["A"], tensors["z"]
    assert u is not None
    assert A is not None
    (steps, inner), state = u.shape, A.shape[1]
    if state == 0:
        raise UserError(f"A must have at least one state, got shape {tuple(A.shape)}")
    expected = {
        "delta": ("steps", "inner"), "A": ("inner", "state"), "B": ("steps", "state"),
        "C": ("steps", "state"), "D": ("inner",), "z": (None, "inner"), "delta_bias": ("inner",),
    }  # fmt: skip
    sizes = {"steps": steps, "inner": inner, "state": state}
    for name, axes in expected.items():
        _check_shape(name, tensors[name], axes, sizes)
    rows = None if z is None else z.shape[0]
    check_walk(cu_seqlens, order, steps, rows, ("scatter", scatter), "z")


def check_conv_shapes(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    cu_seqlens: Tensor,
    order: Tensor | None,
    permutation: bool,
) -> int:
    """Refuse arguments of the convolution that do not fit to one another; return the steps."""
    rows, inner = x.shape
    sizes = {"inner": inner}
    _check_shape("weight", weight, ("inner", None), sizes)
    _check_shape("bias", bias, ("inner",), sizes)
    if not 1 <= weight.shape[1] <= MOST_TAPS:
        raise UserError(f"weight must have 1 to {MOST_TAPS} taps, got shape {tuple(weight.shape)}")
    steps = rows if order is None else order.shape[0]
    check_walk(cu_seqlens, order, steps, rows, ("permutation", permutation), "x")
    return steps


def check_discretization(discretization: str) -> None:
    """Refuse a name that stands for no rule."""
    _check_one_of("discretization", discretization, get_args(Discretization))


def are_values_checked(check: bool | None, *tensors: Tensor | None) -> bool:
    """Whether to look at values, for which a GPU has to be waited for."""
    if torch.compiler.is_compiling() or check is False:
        return False
    present = [x for x in tensors if x is not None]
    if present[0].is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    is_training = torch.is_grad_enabled() and any(x.requires_grad for x in present)
    return check is True or not present[0].is_cuda or not is_training


def check_values(
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None,
    steps: int,
    rows: int,
    permutation: bool,
    flag: str | None = None,
) -> None:
    """Refuse boundaries that cut nothing, and visits to rows that are not there.

    Args:
        cu_seqlens: Boundaries of the sequences.
        order: The row that each step visits.
        steps: Number of steps.
        rows: Number of rows.
        permutation: Whether `order` must hold each step once.
        flag: Name of the argument that says so, if there is one.
    """
    first, last = int(cu_seqlens[0]), int(cu_seqlens[-1])
    if first != 0:
        raise UserError(f"cu_seqlens must start at 0, got {first}")
    falls = (cu_seqlens.diff() < 0).nonzero()
    if len(falls):
        at = int(falls[0])
        pair = cu_seqlens[at : at + 2].tolist()
        raise UserError(f"cu_seqlens must not fall, got {pair[0]}, {pair[1]} at {at}, {at + 1}")
    if last != steps:
        raise UserError(f"cu_seqlens must end at the number of steps, {steps}, got {last}")
    end = steps if permutation else rows
    if order is None or steps == 0:
        return
    wrong = ((order < 0) | (order >= end)).nonzero()
    if len(wrong):
        at = int(wrong[0])
        raise UserError(f"order must be in 0 to {end - 1}, got {int(order[at])} at {at}")
    if permutation:
        visits = torch.bincount(order, minlength=steps)
        again = (visits > 1).nonzero()
        if len(again):
            slot = int(again[0])
            why = f" with {flag}=True" if flag else ""
            raise UserError(
                f"order must be a permutation{why}, got {slot} {int(visits[slot])} times"
            )


def _check_is_tensor(name: str, tensor: object) -> None:
    if not isinstance(tensor, Tensor):
        raise UserError(f"{name} must be a tensor, got {type(tensor).__name__}")


def _check_one_of(name: str, value: object, allowed: tuple[object, ...], where: str = "") -> None:
    if value not in allowed:
        names = ", ".join(map(str, allowed))
        raise UserError(f"{name} must be one of {names}{where}, got {value}")


def _check_shape(
    name: str, tensor: Tensor | None, axes: tuple[str | None, ...], sizes: Mapping[str, int]
) -> None:
    """Compare with the sizes of the axes that have a name."""
    if tensor is None:
        return
    for axis, size in zip(axes, tensor.shape, strict=True):
        if axis is not None and size != sizes[axis]:
            wanted = ", ".join("any" if a is None else f"{a} {sizes[a]}" for a in axes)
            raise UserError(f"{name} must have shape ({wanted}), got {tuple(tensor.shape)}")


def check_walk(
    cu_seqlens: Tensor,
    order: Tensor | None,
    steps: int,
    rows: int | None,
    permutation: tuple[str, bool],
    visited: str,
) -> None:
    """Refuse a walk that its rows do not fit to; `visited` is the argument that holds them."""
    if cu_seqlens.shape[0] == 0:
        raise UserError("cu_seqlens must have at least one entry, got shape (0,)")
    flag, is_permutation = permutation
    if order is None:
        if is_permutation:
            raise UserError(f"{flag}=True needs an order, got order=None")
        if rows is not None and rows != steps:
            raise UserError(f"{visited} must have {steps} rows, one a step, got {rows}")
        return
    if order.shape[0] != steps:
        raise UserError(f"order must have shape (steps {steps},), got {tuple(order.shape)}")
    if rows is not None and rows != steps:
        _check_rows(steps, rows, visited, flag if is_permutation else None)


def _check_rows(steps: int, rows: int, visited: str, flag: str | None) -> None:
    if rows == 0:
        raise UserError(f"{visited} must have rows for the {steps} steps to visit, got 0")
    if flag is not None and steps % rows != 0:
        raise UserError(
            f"the number of steps, {steps}, must be a multiple of the rows of {visited} with "
            f"{flag}=True, got {rows} rows"
        )
