"""Checks of the numbers that say who belongs to which graph and who is joined to whom."""

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.errors import UserError


def check_membership(
    edge_index: Int[Tensor, "2 edges"], batch: Int[Tensor, " nodes"], num_graphs: int
) -> None:
    """Refuse nodes that are not sorted by graph, graphs and nodes that do not exist."""
    falls = batch[1:] < batch[:-1]
    if bool(falls.any()):
        place = int(falls.nonzero()[0]) + 1
        raise UserError(
            f"batch must be sorted, got {int(batch[place])} after {int(batch[place - 1])} "
            f"at node {place}"
        )
    check_range("batch", batch, num_graphs, "graphs")
    check_range("edge_index", edge_index, batch.shape[0], "nodes")


def check_range(argument: str, values: Int[Tensor, "*shape"], end: int, what: str) -> None:
    """Refuse numbers outside 0 to `end - 1`."""
    if not values.numel():
        return
    low, high = (int(value) for value in torch.aminmax(values))
    if low < 0 or high >= end:
        raise UserError(
            f"{argument} must hold numbers of the {end} {what}, 0 to {end - 1}, "
            f"got {low if low < 0 else high}"
        )
