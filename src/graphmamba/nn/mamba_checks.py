"""Checks at the door of the Mamba block; every message names the argument, the rule, the value."""

from torch import Tensor

from graphmamba.checks import check_is, check_least
from graphmamba.errors import UserError
from graphmamba.ops import checks
from graphmamba.ops.tensor_checks import check_float_type


def check_walk(
    weight: Tensor,
    x: Tensor,
    cu_seqlens: Tensor,
    order: Tensor | None,
    samples: int,
    check: bool | None,
) -> None:
    """Refuse rows that the block cannot map, and walks that do not visit each row once a sample.

    Args:
        weight: That of the in-projection.
        x: Rows.
        cu_seqlens: Boundaries of the sequences.
        order: Slot of each step.
        samples: Line-ups in `order`.
        check: Whether to look at the values, as in `scan.checks.are_values_checked`.
    """
    checks.device_of("x", x)
    checks.check_tensors("reference", {"x": x}, {}, {"cu_seqlens": cu_seqlens, "order": order})
    nodes, channels = x.shape[0], weight.shape[1]
    if x.shape[1] != channels:
        raise UserError(f"x must have shape (nodes, channels {channels}), got {tuple(x.shape)}")
    check_float_type("x", x, weight)
    check_is("samples", samples, int)
    check_least("samples", samples, 1)
    steps, is_lined_up = samples * nodes, order is not None
    rows = nodes if is_lined_up else None
    checks.check_walk(cu_seqlens, order, steps, rows, ("order", is_lined_up), "x")
    if checks.are_values_checked(check, x, weight):
        checks.check_values(cu_seqlens, order, steps, nodes, is_lined_up)
