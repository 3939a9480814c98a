"""How high the right partner of a node ranks among all nodes of its graph."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.utils import to_dense_batch

from graphmamba.training.target import Links

HITS = (1, 3, 10)
VARIANTS = ("", "_filtered", "_extended")
COLUMNS = tuple(
    f"{name}{variant}" for variant in VARIANTS for name in ("mrr", *(f"hits@{k}" for k in HITS))
)


class LinkRanking:
    """Mean reciprocal rank and hits@k of the right pairs, in three variants.

    The rivals of (i, j) are all nodes of the graph, i itself included (raw, the paper's number);
    or without the other right partners of i (`_filtered`); or without i as well (`_extended`,
    which "Where did the gap go?" recommends, https://arxiv.org/abs/2309.00367). Averaged over the
    right pairs of a graph, over the graphs of a batch, and over batches by their labelled pairs;
    so batches of other sizes make slightly other numbers. A graph without right pairs counts 0.
    """

    def __init__(self) -> None:
        self._batches: list[Float[Tensor, "1 columns"]] = []

    def update(self, prediction: Float[Tensor, "nodes channels"], target: Links) -> None:
        """Take in one batch."""
        is_right = (target.label > 0.5).double()  # noqa: PLR2004
        scores = _reciprocals_and_hits(
            ranks(prediction.detach().float(), target)
        )  # [columns, pairs]
        graph = target.batch[target.pairs[0]]
        sums = scores.new_zeros(len(COLUMNS) + 1, target.num_graphs)
        sums.index_add_(1, graph, torch.cat([scores * is_right, is_right[None]]))
        means = (sums[:-1] / sums[-1].clamp_min(1.0)).mean(dim=1)
        weight = (~target.label.isnan()).sum().to(means.dtype)[None]
        self._batches.append(torch.cat([weight, means])[None])

    def state(self) -> Float[Tensor, "batches columns"]:
        """Weight and scores of each batch."""
        if not self._batches:
            return torch.zeros(0, len(COLUMNS) + 1, dtype=torch.float64)
        return torch.cat(self._batches)

    def merge(self, states: Sequence[Float[Tensor, "_ columns"]]) -> None:
        """Take the batches of all states."""
        self._batches = list(states)

    def compute(self) -> dict[str, float]:
        """Average over the batches."""
        rows = self.state().cpu()
        weight = rows[:, 0]
        total = math.fsum(weight.tolist())
        if not total:
            return dict.fromkeys(COLUMNS, math.nan)
        sums = (math.fsum((weight * column).tolist()) for column in rows[:, 1:].T)
        return {name: value / total for name, value in zip(COLUMNS, sums, strict=True)}


def ranks(
    embeddings: Float[Tensor, "nodes channels"], links: Links
) -> Int[Tensor, "variants pairs"]:
    """Rank of each pair's score among its rivals, 1 the best, raw, filtered and extended filtered.

    A rival with the very same score ranks behind, as in the published code's sort; scores that
    are not numbers rank last.
    """
    dense, is_node = to_dense_batch(embeddings, links.batch, batch_size=links.num_graphs)
    scores = dense @ dense.transpose(1, 2)  # [graphs, longest, longest]
    graph, head, tail = _within_graphs(links)
    is_partner = torch.zeros_like(scores, dtype=torch.bool)
    is_right = links.label > 0.5  # noqa: PLR2004
    is_partner[graph[is_right], head[is_right], tail[is_right]] = True

    row = scores[graph, head]  # [pairs, longest]
    own = row.gather(1, tail[:, None])
    position = torch.arange(row.shape[1], device=row.device)
    is_other = is_node[graph] & (position != tail[:, None])
    beats = is_other & ~(own >= row)
    is_stranger = ~is_partner[graph, head]
    is_elsewhere = position != head[:, None]
    allowed = (beats, beats & is_stranger, beats & is_stranger & is_elsewhere)
    return torch.stack([each.sum(dim=1) + 1 for each in allowed])


def _within_graphs(
    links: Links,
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Graph of each pair, and the numbers that its two nodes have inside of that graph."""
    start = torch.searchsorted(
        links.batch, torch.arange(links.num_graphs, device=links.batch.device)
    )
    graph = links.batch[links.pairs[0]]
    head, tail = links.pairs - start[graph]
    return graph, head, tail


def _reciprocals_and_hits(
    rank: Int[Tensor, "variants pairs"],
) -> Float[Tensor, "columns pairs"]:
    columns = [[1.0 / row.double(), *((row <= k).double() for k in HITS)] for row in rank]
    return torch.stack([column for variant in columns for column in variant])
