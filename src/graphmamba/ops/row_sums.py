"""Sum on any device what the visits of a row sent back to it, in a fixed order, without atomics."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def sum_rows(
    values: Float[Tensor, "steps inner"],
    order: Int[Tensor, " steps"],
    rows: int,
    *,
    is_permutation: bool,
) -> Float[Tensor, "rows inner"]:
    """Return for each row the sum of `values` over the steps that visit it.

    Args:
        values: What each step sends back; in a permutation, that of step `t` lies at `order[t]`.
        order: The row that each step visits; in a permutation, its slot.
        rows: Number of rows.
        is_permutation: Whether `order` holds each slot once; slot s belongs to row s % rows.
    """
    if is_permutation:
        return values.view(-1, rows, values.shape[1]).sum(0)
    # Sorting brings the visits of a row side by side; each row then adds its own one by one.
    visits = torch.argsort(order, stable=True)
    counts = torch.zeros(rows, dtype=torch.long, device=order.device)
    counts.index_add_(0, order.long(), torch.ones_like(order, dtype=torch.long))
    return torch.segment_reduce(values[visits], "sum", lengths=counts, axis=0, initial=0)
