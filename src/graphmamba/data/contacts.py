"""Wrong pairs for link prediction, drawn anew for each batch (PCQM-Contact)."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NEGATIVES = 2
"""Wrong pairs for each true one."""
ROUNDS = 10
"""Times that a pair which cannot serve is drawn again."""


def draw_negatives(
    positives: Int[Tensor, "2 pairs"],
    node_ptr: Int[Tensor, " boundaries"],
    generator: torch.Generator,
) -> Int[Tensor, "2 negatives"]:
    """Draw wrong pairs with the first node of each true pair, the second anywhere in its graph.

    True pairs and pairs drawn twice are drawn again, ten times at most, and left out if they still
    cannot serve. Self-pairs and edges may be drawn, as in the Long Range Graph Benchmark.

    Args:
        positives: True pairs, in both directions; nodes counted over all graphs of the batch.
        node_ptr: Where each graph's nodes begin.
        generator: Of the device that the pairs are on.
    """
    head = positives[0].repeat_interleave(NEGATIVES)
    graph = torch.searchsorted(node_ptr, head, right=True) - 1
    start, size = node_ptr[graph], node_ptr[graph + 1] - node_ptr[graph]

    def draw() -> Int[Tensor, " pairs"]:
        chance = torch.rand(
            head.shape, generator=generator, device=head.device, dtype=torch.float64
        )
        return start + (chance * size).long()

    # each pair as one number, so that equal pairs are equal numbers
    total = node_ptr[-1]
    known = positives[0] * total + positives[1]
    tail = draw()
    for _ in range(ROUNDS):
        tail = torch.where(_cannot_serve(head * total + tail, known), draw(), tail)
    fits = ~_cannot_serve(head * total + tail, known)
    return torch.stack([head, tail])[:, fits]


def with_negatives(
    positives: Int[Tensor, "2 pairs"],
    node_ptr: Int[Tensor, " boundaries"],
    generator: torch.Generator,
) -> tuple[Int[Tensor, "2 labelled"], Float[Tensor, " labelled"]]:
    """Put fresh wrong pairs behind the true ones; returns pairs and their labels, 1 and 0."""
    negatives = draw_negatives(positives, node_ptr, generator)
    pairs = torch.cat([positives, negatives], dim=1)
    label = torch.zeros(pairs.shape[1], device=pairs.device)
    label[: positives.shape[1]] = 1.0
    return pairs, label


def _cannot_serve(
    drawn: Int[Tensor, " pairs"], known: Int[Tensor, " positives"]
) -> Bool[Tensor, " pairs"]:
    """True pairs, and all but the first of equal pairs."""
    order = drawn.argsort(stable=True)
    is_repeated = torch.zeros_like(drawn, dtype=torch.bool)
    is_repeated[order[1:]] = drawn[order][1:] == drawn[order][:-1]
    return is_repeated | torch.isin(drawn, known)
