"""Checks of tensor arguments of public functions."""

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.errors import UserError


def check_membership(
    edge_index: Int[Tensor, "2 edges"], batch: Int[Tensor, " nodes"], num_graphs: int
) -> None:
    """Reject an unsorted `batch`, indices out of range, and edges between graphs."""
    descents = batch[1:] < batch[:-1]
    if bool(descents.any()):
        place = int(descents.nonzero()[0]) + 1
        raise UserError(
            f"batch must be sorted, got {int(batch[place])} after {int(batch[place - 1])} "
            f"at node {place}"
        )
    check_range("batch", batch, num_graphs, "graphs")
    check_pairs("edge_index", edge_index, batch)


def check_pairs(argument: str, pairs: Int[Tensor, "2 pairs"], batch: Int[Tensor, " nodes"]) -> None:
    """Reject pairs of nodes that are out of range or in different graphs."""
    check_range(argument, pairs, batch.shape[0], "nodes")
    source, target = (batch.index_select(0, ends.long()) for ends in pairs)
    apart = source != target
    if bool(apart.any()):
        place = int(apart.nonzero()[0])
        first, second = pairs[:, place].tolist()
        raise UserError(
            f"{argument} must join nodes of the same graph, got an edge from node {first} of graph "
            f"{int(source[place])} to node {second} of graph {int(target[place])} at {place}"
        )


def check_range(argument: str, values: Int[Tensor, "*shape"], end: int, what: str) -> None:
    """Reject integers outside 0 to `end - 1`."""
    if not values.numel():
        return
    low, high = (int(value) for value in torch.aminmax(values))
    if low < 0 or high >= end:
        raise UserError(
            f"{argument} must hold numbers of the {end} {what}, 0 to {end - 1}, "
            f"got {low if low < 0 else high}"
        )


def check_rows(
    argument: str,
    rows: object,
    shape: Sequence[int | str],
    *,
    is_integer: bool = False,
    hint: str = "",
) -> None:
    """Reject anything but a tensor of this shape and kind of type, without reading values.

    Args:
        argument: Name of the argument in messages.
        rows: Argument to check.
        shape: Sizes; a name matches any size.
        is_integer: Whether the type must be an integer type instead of a float type.
        hint: End of the message about a wrong shape.
    """
    if not isinstance(rows, Tensor):
        raise UserError(f"{argument} must be a tensor, got {type(rows).__name__}")
    pairs = zip(shape, rows.shape, strict=False)
    if rows.dim() != len(shape) or any(a != b for a, b in pairs if not isinstance(a, str)):
        wanted = ", ".join(map(str, shape))
        raise UserError(f"{argument} must have shape [{wanted}], got {list(rows.shape)}{hint}")
    is_real = rows.is_floating_point()
    is_whole = not (is_real or rows.is_complex() or rows.dtype == torch.bool)
    if not (is_whole if is_integer else is_real):
        kind = "integers" if is_integer else "floats"
        raise UserError(f"{argument} must hold {kind}, got {rows.dtype}")


def check_float_type(argument: str, rows: Float[Tensor, "..."], weight: Tensor) -> None:
    """Reject a float type other than that of the parameters, unless autocast casts both."""
    if rows.dtype == weight.dtype:
        return
    is_double = torch.float64 in {rows.dtype, weight.dtype}
    if is_double or not torch.is_autocast_enabled(rows.device.type):
        raise UserError(
            f"{argument}.dtype must be that of the parameters, {weight.dtype}, got {rows.dtype}: "
            f"convert one of them, as by {argument}.to({weight.dtype})"
        )


MOST_TAPS = 8  # of a convolution

_INTEGERS = torch.int32, torch.int64
_REALS = {
    "reference": (torch.float32, torch.bfloat16, torch.float16, torch.float64),
    "cpu": (torch.float32, torch.bfloat16, torch.float64),
    "triton": (torch.float32, torch.bfloat16),
}
_DIMENSIONS = {"D": 1, "delta_bias": 1, "bias": 1}  # 2 for all others

Tensors = Mapping[str, Tensor | None]


def device_of(name: str, tensor: Tensor) -> torch.device:
    """Device of a tensor; anything else is rejected."""
    _check_is_tensor(name, tensor)
    return tensor.device


def check_tensors(backend: str, rows: Tensors, parameters: Tensors, indices: Tensors) -> None:
    """Reject anything but tensors of the right type, number of dimensions and device.

    Args:
        backend: Implementation that will run.
        rows: Tensors of one float type; all tensors must be on the device of the first one.
        parameters: Tensors of any float type.
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
    """Reject arguments of the selective scan with inconsistent shapes."""
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
    check_order(cu_seqlens, order, steps, rows, ("scatter", scatter), "z")


def check_conv_shapes(
    x: Tensor, weight: Tensor, bias: Tensor | None, cu_seqlens: Tensor, order: Tensor | None,
    permutation: bool,
) -> int:  # fmt: skip
    """Reject arguments of the convolution with inconsistent shapes; return the number of steps."""
    rows, inner = x.shape
    sizes = {"inner": inner}
    _check_shape("weight", weight, ("inner", None), sizes)
    _check_shape("bias", bias, ("inner",), sizes)
    if not 1 <= weight.shape[1] <= MOST_TAPS:
        raise UserError(f"weight must have 1 to {MOST_TAPS} taps, got shape {tuple(weight.shape)}")
    steps = rows if order is None else order.shape[0]
    check_order(cu_seqlens, order, steps, rows, ("permutation", permutation), "x")
    return steps


def are_values_checked(check: bool | None, *tensors: Tensor | None) -> bool:
    """Whether values are checked, which synchronises a GPU."""
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
    """Reject wrong boundaries of sequences, and an `order` that is out of range.

    Args:
        cu_seqlens: Boundaries of the sequences.
        order: Row that each step reads.
        steps: Number of steps.
        rows: Number of rows.
        permutation: Whether `order` must be a permutation of the steps.
        flag: Name of the option that requires it, for messages.
    """
    first, last = int(cu_seqlens[0]), int(cu_seqlens[-1])
    if first != 0:
        raise UserError(f"cu_seqlens must start at 0, got {first}")
    descents = (cu_seqlens.diff() < 0).nonzero()
    if len(descents):
        at = int(descents[0])
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
        counts = torch.bincount(order, minlength=steps)
        repeated = (counts > 1).nonzero()
        if len(repeated):
            slot = int(repeated[0])
            why = f" with {flag}=True" if flag else ""
            raise UserError(
                f"order must be a permutation{why}, got {slot} {int(counts[slot])} times"
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
    if tensor is None:
        return
    for axis, size in zip(axes, tensor.shape, strict=True):
        if axis is not None and size != sizes[axis]:
            wanted = ", ".join("any" if a is None else f"{a} {sizes[a]}" for a in axes)
            raise UserError(f"{name} must have shape ({wanted}), got {tuple(tensor.shape)}")


def check_order(
    cu_seqlens: Tensor, order: Tensor | None, steps: int, rows: int | None,
    permutation: tuple[str, bool], argument: str,
) -> None:  # fmt: skip
    """Reject an `order` that does not fit to the rows of `argument`."""
    if cu_seqlens.shape[0] == 0:
        raise UserError("cu_seqlens must have at least one entry, got shape (0,)")
    flag, is_permutation = permutation
    if order is None:
        if is_permutation:
            raise UserError(f"{flag}=True needs an order, got order=None")
        if rows is not None and rows != steps:
            raise UserError(f"{argument} must have {steps} rows, one a step, got {rows}")
        return
    if order.shape[0] != steps:
        raise UserError(f"order must have shape (steps {steps},), got {tuple(order.shape)}")
    if rows == 0 and steps > 0:
        raise UserError(f"{argument} must have rows for the {steps} steps to read, got 0")
    if is_permutation and rows and steps % rows != 0:
        raise UserError(
            f"the number of steps, {steps}, must be a multiple of the rows of {argument} with "
            f"{flag}=True, got {rows} rows"
        )
