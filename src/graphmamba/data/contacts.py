"""Wrong pairs for link prediction, drawn anew for each batch (PCQM-Contact)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphmamba.data.random_bits import draw_bits, take_bits

NEGATIVES = 2
"""Wrong pairs for each true one."""
ROUNDS = 10
"""Times that a pair which cannot serve is drawn again."""
BITS = 32
"""Random bits that decide on a node."""


def draw_negatives(
    positives: Int[Tensor, "2 pairs"],
    node_ptr: Int[Tensor, " boundaries"],
    stream: Int[Tensor, ""],
) -> tuple[Int[Tensor, "2 negatives"], Bool[Tensor, " negatives"]]:
    """Draw wrong pairs with the first node of each true pair, the second anywhere in its graph.

    True pairs and pairs drawn twice are drawn again, ten times at most. Self-pairs and edges may be
    drawn, as in the Long Range Graph Benchmark. No shape depends on the data, and nothing is read
    back from the device.

    Args:
        positives: True pairs, in both directions; nodes counted over all graphs of the batch.
        node_ptr: Where each graph's nodes begin.
        stream: What the draws follow, on the device of the pairs.

    Returns:
        The pairs, and which of them can serve.
    """
    head = positives[0].repeat_interleave(NEGATIVES)
    graph = torch.searchsorted(node_ptr, head, right=True) - 1
    start, size = node_ptr[graph], node_ptr[graph + 1] - node_ptr[graph]
    place = torch.arange(head.shape[0], device=head.device)
    # each pair as one number, so that equal pairs are equal numbers
    total = node_ptr[-1]
    known = (positives[0] * total + positives[1]).sort().values

    def draw(number: int) -> Int[Tensor, " pairs"]:
        bits = take_bits(draw_bits(draw_bits(stream, number), place), 0, BITS)
        return start + ((bits * size) >> BITS)

    tail = draw(0)
    for number in range(1, ROUNDS + 1):
        tail = torch.where(_can_serve(head * total + tail, known), tail, draw(number))
    return torch.stack([head, tail]), _can_serve(head * total + tail, known)


def with_negatives(
    positives: Int[Tensor, "2 pairs"],
    node_ptr: Int[Tensor, " boundaries"],
    stream: Int[Tensor, ""],
    num_real_nodes: Int[Tensor, ""] | None = None,
) -> tuple[Int[Tensor, "2 labelled"], Float[Tensor, " labelled"]]:
    """Put fresh wrong pairs behind the true ones; returns pairs and their labels.

    Args:
        positives: As for `draw_negatives`.
        node_ptr: As for `draw_negatives`.
        stream: As for `draw_negatives`.
        num_real_nodes: Nodes before those of a padding graph; all are real if None.

    Returns:
        The pairs, and for each 1 if it is true, 0 if it is wrong, NaN if it does not count.
    """
    negatives, can_serve = draw_negatives(positives, node_ptr, stream)
    pairs = torch.cat([positives, negatives], dim=1)
    label = torch.cat([torch.ones_like(positives[0]), torch.zeros_like(negatives[0])]).float()
    counts = torch.cat([torch.ones_like(positives[0], dtype=torch.bool), can_serve])
    if num_real_nodes is not None:
        counts = counts & (pairs[0] < num_real_nodes)
    return pairs, label.masked_fill(~counts, torch.nan)


def _can_serve(
    drawn: Int[Tensor, " pairs"], known: Int[Tensor, " positives"]
) -> Bool[Tensor, " pairs"]:
    """Neither a true pair, of which the numbers are given in order, nor like an earlier one."""
    ordered, order = drawn.sort(stable=True)
    is_repeated = torch.zeros_like(drawn, dtype=torch.bool)
    is_repeated[order[1:]] = ordered[1:] == ordered[:-1]
    if not known.shape[0]:
        return ~is_repeated
    place = torch.searchsorted(known, drawn).clamp_max(known.shape[0] - 1)
    return ~is_repeated & (known[place] != drawn)
