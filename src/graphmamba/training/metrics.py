"""What a split is scored by, as objects that collect batch after batch.

A metric's `state` is one tensor. The states of several processes, given to `merge`, make the
score of the whole split, to the last bit whatever the number of processes: counts are integers,
and sums of numbers are rounded once (`math.fsum`), so that their order does not matter.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch_geometric.utils import to_dense_batch

from graphmamba.data.catalog import MetricName, Task
from graphmamba.training.losses import Links


class Metric(Protocol):
    """What all metrics can do."""

    def update(self, prediction: Tensor, target: Any) -> None:
        """Take in one batch; `target` is what `target_of` gives for the metric's task."""

    def state(self) -> Tensor:
        """Everything taken in so far, as one tensor."""

    def merge(self, states: Sequence[Tensor]) -> None:
        """Replace what was taken in by these states together."""

    def compute(self) -> dict[str, float]:
        """Score what was taken in; the first entry is the one that models are chosen by."""


class _Rows:
    """State of metrics that need every row: predictions and targets side by side."""

    def __init__(self, outputs: int) -> None:
        self._outputs = outputs
        self._rows: list[Float[Tensor, "_ both"]] = []

    def update(
        self, prediction: Float[Tensor, "rows outputs"], target: Float[Tensor, "rows outputs"]
    ) -> None:
        """Take in one batch."""
        self._rows.append(torch.cat([prediction.detach(), target], dim=1).double())

    def state(self) -> Float[Tensor, "rows both"]:
        """Predictions, then targets, of all rows."""
        return (
            torch.cat(self._rows)
            if self._rows
            else torch.zeros(0, 2 * self._outputs, dtype=torch.float64)
        )

    def merge(self, states: Sequence[Float[Tensor, "_ both"]]) -> None:
        """Take the rows of all states."""
        self._rows = list(states)

    def _split(self) -> tuple[Float[Tensor, "rows outputs"], Float[Tensor, "rows outputs"]]:
        prediction, target = self.state().cpu().tensor_split(2, dim=1)
        return prediction, target


class AveragePrecision(_Rows):
    """Average precision of each column, sum of (R_n - R_{n-1}) P_n, then the plain mean.

    NaN labels are skipped, and so are columns without a positive label, where it is undefined. A
    prediction that is no number has no rank: neither has the score then.
    """

    def compute(self) -> dict[str, float]:
        """Score all rows with scikit-learn."""
        from sklearn.metrics import average_precision_score

        scores = []
        for logits, label in zip(*(part.T for part in self._split()), strict=True):
            known = ~torch.isnan(label)
            if logits[known].isnan().any():
                scores.append(math.nan)
            elif (label[known] == 1).any():
                # infinities have a rank, but scikit-learn takes none
                ranked = logits[known].nan_to_num()
                scores.append(float(average_precision_score(label[known], ranked)))
        return {"average_precision": math.fsum(scores) / len(scores) if scores else math.nan}


class MeanAbsoluteError(_Rows):
    """Mean of |prediction - target| over all entries with a target."""

    def compute(self) -> dict[str, float]:
        """Average over all entries."""
        prediction, target = self._split()
        errors = (prediction - target).abs()[~torch.isnan(target)].tolist()
        return {"mean_absolute_error": math.fsum(errors) / len(errors) if errors else math.nan}


class _Confusion:
    """State of metrics of classes: how often each true class (row) was taken for each class.

    The last column counts rows that were taken for none, since the model found no number.
    """

    def __init__(self, classes: int) -> None:
        self._classes = classes
        self._counts = torch.zeros(classes, classes + 1, dtype=torch.int64)

    def update(
        self, prediction: Float[Tensor, "rows outputs"], target: Int[Tensor, " rows"]
    ) -> None:
        """Take in one batch; rows with a negative class have no label and are skipped."""
        self._counts = self._counts.to(prediction.device)
        guess = predicted_class(prediction).where(~prediction.isnan().any(dim=1), self._classes)
        is_labelled = target >= 0
        cell = (target * (self._classes + 1) + guess).masked_fill(~is_labelled, 0)
        self._counts.view(-1).index_add_(0, cell, is_labelled.long())

    def state(self) -> Int[Tensor, "classes guesses"]:
        """The table of counts."""
        return self._counts

    def merge(self, states: Sequence[Int[Tensor, "classes guesses"]]) -> None:
        """Add up the tables."""
        self._counts = torch.stack([state.cpu() for state in states]).sum(dim=0)

    def _right(self) -> Float[Tensor, " classes"]:
        return self._counts.cpu().diagonal().double()

    def _true(self) -> Float[Tensor, " classes"]:
        return self._counts.cpu().sum(dim=1).double()

    def _guessed(self) -> Float[Tensor, " classes"]:
        return self._counts.cpu().sum(dim=0)[: self._classes].double()


def predicted_class(prediction: Float[Tensor, "rows outputs"]) -> Int[Tensor, " rows"]:
    """Column of the largest logit; a single column is the logit of class 1 against class 0."""
    if prediction.shape[1] == 1:
        return (prediction[:, 0] > 0).long()
    return prediction.argmax(dim=1)


class Accuracy(_Confusion):
    """Share of rows whose class was found."""

    def compute(self) -> dict[str, float]:
        """Divide the diagonal by the whole."""
        return {"accuracy": float(self._right().sum() / self._true().sum())}


class MacroF1(_Confusion):
    """F1 of each class, then the plain mean over the classes that occur or were guessed."""

    def compute(self) -> dict[str, float]:
        """Average 2 TP / (2 TP + FP + FN)."""
        both = self._true() + self._guessed()
        return {"macro_f1": _mean_where(2 * self._right() / both, both > 0)}


class AccuracySBM(_Confusion):
    """Recall of each class, then the plain mean over the classes that occur."""

    def compute(self) -> dict[str, float]:
        """Average TP / (TP + FN)."""
        true = self._true()
        return {"accuracy_sbm": _mean_where(self._right() / true, true > 0)}


def _mean_where(values: Float[Tensor, " classes"], counts: Bool[Tensor, " classes"]) -> float:
    return float(values[counts].mean())


HITS = (1, 3, 10)
VARIANTS = ("", "_filtered", "_extended")
COLUMNS = tuple(
    f"{name}{variant}" for variant in VARIANTS for name in ("mrr", *(f"hits@{k}" for k in HITS))
)


class LinkRanking:
    """Mean reciprocal rank and hits@k of the right pairs, in three variants.

    The baselines of (i, j) are all nodes of the graph, i itself included (raw, the paper's number);
    or without the other right partners of i (`_filtered`); or without i as well (`_extended`,
    which "Where did the gap go?" recommends, https://arxiv.org/abs/2309.00367). In one graph whose
    edges are split, nodes that the model sees joined with i are left out of all three, and of more
    than 10,000 right pairs so many are ranked, evenly spread. Averaged over the right pairs of a
    graph, over the graphs of a batch, and over batches by their labelled pairs; so batches of other
    sizes make slightly other numbers. A graph without right pairs counts 0.
    """

    def __init__(self) -> None:
        self._batches: list[Float[Tensor, "1 columns"]] = []

    def update(self, prediction: Float[Tensor, "nodes channels"], target: Links) -> None:
        """Take in one batch."""
        weight = (~target.label.isnan()).sum().double()[None]
        target = _some_right(target)
        is_right = (target.label > 0.5).double()  # noqa: PLR2004
        scores = _reciprocals_and_hits(
            ranks(prediction.detach().float(), target)
        )  # [columns, pairs]
        graph = target.batch[target.pairs[0]]
        sums = scores.new_zeros(len(COLUMNS) + 1, target.num_graphs)
        sums.index_add_(1, graph, torch.cat([scores * is_right, is_right[None]]))
        means = (sums[:-1] / sums[-1].clamp_min(1.0)).mean(dim=1)
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
    """Rank of each pair's score among its competitors, 1 the best: raw, filtered, extended.

    A baseline with the very same score ranks behind, as in the published code's sort; scores that
    are not numbers rank last.
    """
    if links.known is not None:
        return _ranks_in_one_graph(embeddings, links)
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


MOST_RANKED = 10_000
"""Right pairs of one graph that are ranked: each meets all nodes."""
MOST_SCORES = 1 << 24
"""Scores of one graph in memory at a time."""


def _some_right(links: Links) -> Links:
    """Keep the right pairs of one large graph, evenly spread ones where there are many."""
    if links.known is None:
        return links
    right = (links.label > 0.5).nonzero().flatten()  # noqa: PLR2004
    if len(right) > MOST_RANKED:
        place = torch.linspace(0, len(right) - 1, MOST_RANKED, device=right.device)
        right = right[place.round().long()]
    return replace(links, pairs=links.pairs[:, right], label=links.label[right])


def _ranks_in_one_graph(
    embeddings: Float[Tensor, "nodes channels"], links: Links
) -> Int[Tensor, "variants pairs"]:
    """The same, some pairs at a time: memory is linear in nodes and edges."""
    assert links.known is not None
    nodes, device = embeddings.shape[0], embeddings.device
    found = [torch.empty(len(VARIANTS), 0, dtype=torch.int64, device=device)]
    for pairs in links.pairs.split(max(MOST_SCORES // max(nodes, 1), 1), dim=1):
        head, tail = pairs
        rows = torch.arange(len(head), device=device)
        row = embeddings[head] @ embeddings.T
        own = row.gather(1, tail[:, None])
        beats = ~(own >= row)
        beats[rows, tail] = False
        beats[_partners_of(head, links.known, nodes)] = False
        filtered = beats.clone()
        filtered[_partners_of(head, links.pairs, nodes)] = False
        extended = filtered.clone()
        extended[rows, head] = False
        found.append(torch.stack([each.sum(dim=1) + 1 for each in (beats, filtered, extended)]))
    return torch.cat(found, dim=1)


def _partners_of(
    head: Int[Tensor, " pairs"], edges: Int[Tensor, "2 edges"], nodes: int
) -> tuple[Int[Tensor, " partners"], Int[Tensor, " partners"]]:
    """Place among the heads, and partner, of each edge that leaves one of them."""
    source, order = edges[0].sort(stable=True)
    begin = torch.searchsorted(source, torch.arange(nodes + 1, device=edges.device))
    counts = begin.diff()[head]
    place = torch.arange(len(head), device=edges.device).repeat_interleave(counts)
    first = begin[head] - (counts.cumsum(0) - counts)
    return place, edges[1][order[torch.arange(len(place), device=edges.device) + first[place]]]


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


METRICS: dict[MetricName, Callable[[Task], Metric]] = {
    "average_precision": lambda task: AveragePrecision(task.outputs),
    "mean_absolute_error": lambda task: MeanAbsoluteError(task.outputs),
    "macro_f1": lambda task: MacroF1(task.classes),
    "accuracy": lambda task: Accuracy(task.classes),
    "accuracy_sbm": lambda task: AccuracySBM(task.classes),
    "mrr": lambda _task: LinkRanking(),
}
LOWER_IS_BETTER: frozenset[MetricName] = frozenset({"mean_absolute_error"})
