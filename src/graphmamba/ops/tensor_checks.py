"""Checks of rows, and of the numbers that say who belongs to which graph and who is joined."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.errors import UserError


def check_membership(
    edge_index: Int[Tensor, "2 edges"], batch: Int[Tensor, " nodes"], num_graphs: int
) -> None:
    """Reject unsorted nodes, graphs and nodes that do not exist, and edges between graphs."""
    falls = batch[1:] < batch[:-1]
    if bool(falls.any()):
        place = int(falls.nonzero()[0]) + 1
        raise UserError(
            f"batch must be sorted, got {int(batch[place])} after {int(batch[place - 1])} "
            f"at node {place}"
        )
    check_range("batch", batch, num_graphs, "graphs")
    check_pairs("edge_index", edge_index, batch)


def check_pairs(argument: str, pairs: Int[Tensor, "2 pairs"], batch: Int[Tensor, " nodes"]) -> None:
    """Reject pairs of nodes that do not exist or are of two graphs, which would leak by them."""
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
    """Reject numbers outside 0 to `end - 1`."""
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
    """Reject what is no tensor of such numbers in this shape; nothing is read from a device.

    Args:
        argument: What a message calls the rows.
        rows: What was given.
        shape: Sizes; a name stands for any size.
        is_integer: Whether the numbers must be integers, and not floats.
        hint: What a message about the shape ends with.
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
    """Reject floats of another type than the parameters', unless autocast makes them one."""
    if rows.dtype == weight.dtype:
        return
    # autocast leaves doubles as they are
    is_double = torch.float64 in {rows.dtype, weight.dtype}
    if is_double or not torch.is_autocast_enabled(rows.device.type):
        raise UserError(
            f"{argument}.dtype must be that of the parameters, {weight.dtype}, got {rows.dtype}: "
            f"convert one of them, as by {argument}.to({weight.dtype})"
        )
