"""What a split is scored by, as objects that collect batch after batch.

A metric's `state` is one tensor. The states of several processes, given to `merge`, make the
score of the whole split, to the last bit whatever the number of processes: counts are integers,
and sums of numbers are rounded once (`math.fsum`), so that their order does not matter.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch_geometric.utils import to_dense_batch

from graphmamba.data.catalog import MetricName, PredictionKind, Task
from graphmamba.nn.heads import pair_scores
from graphmamba.training.losses import Links


@runtime_checkable
class Metric(Protocol):
    """What all metrics can do; several that need the same state are one."""

    def update(self, prediction: Tensor, target: Any) -> None:
        """Take in one batch; `target` is what `target_of` gives for the metric's task."""

    def state(self) -> Tensor:
        """Everything taken in so far, as one tensor."""

    def merge(self, states: Sequence[Tensor]) -> None:
        """Replace what was taken in by these states together."""

    def compute(self) -> dict[str, float]:
        """Score what was taken in."""


Columns = Float[Tensor, "rows columns"]
Classwise = Float[Tensor, " classes"]


class _Rows:
    """State of metrics that need every row: predictions and targets side by side."""

    scores: ClassVar[Mapping[str, Callable[[Columns, Columns], float]]]

    def __init__(self, task: Task, names: Sequence[str]) -> None:
        self._names, self._outputs = names, task.outputs
        self._rows: list[Float[Tensor, "_ both"]] = []

    def update(self, prediction: Columns, target: Any) -> None:
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

    def compute(self) -> dict[str, float]:
        """Score all rows."""
        prediction, target = self._split()
        return {name: self.scores[name](prediction, target) for name in self._names}

    def _split(self) -> tuple[Columns, Columns]:
        prediction, target = self.state().cpu().tensor_split(2, dim=1)
        return prediction, target


def average_precision(prediction: Columns, target: Columns) -> float:
    """Average precision of each column, sum of (R_n - R_{n-1}) P_n, then the plain mean.

    NaN labels are skipped, and so are columns without a positive label, where it is undefined. A
    prediction that is no number has no rank: neither has the score then.
    """
    from sklearn.metrics import average_precision_score

    scores = []
    for logits, label in zip(prediction.T, target.T, strict=True):
        known = ~torch.isnan(label)
        if logits[known].isnan().any():
            scores.append(math.nan)
        elif (label[known] == 1).any():
            # infinities have a rank, but scikit-learn takes none
            ranked = logits[known].nan_to_num()
            scores.append(float(average_precision_score(label[known], ranked)))
    return _mean(scores)


def roc_auc(prediction: Columns, target: Columns) -> float:
    """Area under the ROC curve of each column, then the mean over those with both answers.

    It is the share of pairs of a positive and a negative row that are in the right order, ties
    counting half: (sum of the positives' ranks - P (P + 1) / 2) / (P N).
    """
    from scipy.stats import rankdata

    scores = []
    for score, label in zip(prediction.T, target.T, strict=True):
        known = ~torch.isnan(label)
        is_positive = (label[known] == 1).numpy()
        positives = int(is_positive.sum())
        negatives = len(is_positive) - positives
        if score[known].isnan().any():
            scores.append(math.nan)
        elif positives and negatives:
            # ranks are halves of whole numbers, whose sum is exact
            ranked = float(rankdata(score[known].numpy())[is_positive].sum())
            area = ranked - positives * (positives + 1) / 2
            scores.append(area / (positives * negatives))
    return _mean(scores)


def log_loss_of_answers(prediction: Columns, target: Columns) -> float:
    """Mean of -log of the probability of the right answer over all known entries."""
    known = ~torch.isnan(target)
    # a positive answer has probability sigmoid(x), a negative one sigmoid(-x)
    signed = prediction[known] * (1 - 2 * target[known])
    return _mean(torch.nn.functional.softplus(signed).tolist())


def macro_f1_of_answers(prediction: Columns, target: Columns) -> float:
    """F1 of each column, yes above 1/2; mean over columns with a yes, true or guessed."""
    right, both = _answers_right(prediction, target)
    return _mean((2 * right / both)[both != 0].tolist())


def micro_f1_of_answers(prediction: Columns, target: Columns) -> float:
    """F1 of all columns together."""
    right, both = _answers_right(prediction, target)
    return float(2 * right.sum() / both.sum())


def _answers_right(prediction: Columns, target: Columns) -> tuple[Classwise, Classwise]:
    """True positives of each column; and its positives and its guesses, added up."""
    guess = (prediction > 0) & ~target.isnan()
    is_positive = target == 1
    both = (guess.sum(dim=0) + is_positive.sum(dim=0)).double()
    # a column with a prediction that is no number has no score
    both = both.masked_fill((prediction.isnan() & ~target.isnan()).any(dim=0), math.nan)
    return (guess & is_positive).sum(dim=0).double(), both


class Answers(_Rows):
    """Yes-or-no answers, a column each."""

    scores: ClassVar[Mapping[str, Callable[[Columns, Columns], float]]] = {
        "average_precision": average_precision,
        "roc_auc": roc_auc,
        "macro_f1": macro_f1_of_answers,
        "micro_f1": micro_f1_of_answers,
        "log_loss": log_loss_of_answers,
    }


def mean_absolute_error(prediction: Columns, target: Columns) -> float:
    """Mean of |prediction - target| over all entries with a target."""
    return _mean((prediction - target).abs()[~torch.isnan(target)].tolist())


def rmse(prediction: Columns, target: Columns) -> float:
    """Root of the mean squared error of each column, then the plain mean."""
    return _over_columns(
        prediction, target, lambda p, y: math.sqrt(_mean(((p - y) ** 2).tolist())), least=1
    )


def r2(prediction: Columns, target: Columns) -> float:
    """Share of each column's variance that is explained, 1 - sum (y - p)^2 / sum (y - mean)^2.

    Then the plain mean; columns whose targets are all alike are left out.
    """

    def explained(p: Float[Tensor, " rows"], y: Float[Tensor, " rows"]) -> float:
        middle = _mean(y.tolist())
        variance = math.fsum(((y - middle) ** 2).tolist())
        return 1 - math.fsum(((y - p) ** 2).tolist()) / variance

    return _over_columns(prediction, target, explained, least=2)


def spearman(prediction: Columns, target: Columns) -> float:
    """Correlation of the ranks in each column, then the plain mean; constant targets left out."""
    from scipy.stats import rankdata

    def correlation(p: Float[Tensor, " rows"], y: Float[Tensor, " rows"]) -> float:
        if p.isnan().any():
            return math.nan
        # twice the rank's distance from the middle: whole numbers, whose products are exact
        a, b = (2 * rankdata(each.numpy()) - len(each) - 1 for each in (p, y))
        spread = math.fsum(a * a) * math.fsum(b * b)
        return math.fsum(a * b) / math.sqrt(spread) if spread else math.nan

    return _over_columns(prediction, target, correlation, least=2)


def _over_columns(
    prediction: Columns,
    target: Columns,
    score: Callable[[Float[Tensor, " rows"], Float[Tensor, " rows"]], float],
    least: int,
) -> float:
    """Mean of the scores of columns that hold so many different targets at least."""
    scores = []
    for p, y in zip(prediction.T, target.T, strict=True):
        known = ~torch.isnan(y)
        if len(y[known].unique()) >= least:
            scores.append(score(p[known], y[known]))
    return _mean(scores)


def _mean(values: Sequence[float]) -> float:
    """Mean, rounded once; NaN of nothing."""
    return math.fsum(values) / len(values) if values else math.nan


class Targets(_Rows):
    """Numbers, a column each."""

    scores: ClassVar[Mapping[str, Callable[[Columns, Columns], float]]] = {
        "mean_absolute_error": mean_absolute_error,
        "rmse": rmse,
        "r2": r2,
        "spearman": spearman,
    }


def predicted_class(prediction: Float[Tensor, "rows outputs"]) -> Int[Tensor, " rows"]:
    """Column of the largest logit; a single column is the logit of class 1 against class 0."""
    if prediction.shape[1] == 1:
        return (prediction[:, 0] > 0).long()
    return prediction.argmax(dim=1)


def log_loss_of_classes(logits: Columns, is_class: Columns) -> float:
    """Mean of -log of the probability of the right class."""
    return _mean((-logits.log_softmax(dim=1))[is_class == 1].tolist())


def roc_auc_of_classes(logits: Columns, is_class: Columns) -> float:
    """Of two classes the area of the second; of more, the mean of each against the rest."""
    return roc_auc(*_one_against_rest(logits, is_class))


def average_precision_of_classes(logits: Columns, is_class: Columns) -> float:
    """Average precision of the second of two classes."""
    return average_precision(*_one_against_rest(logits, is_class))


def _one_against_rest(
    logits: Columns, is_class: Columns
) -> tuple[Float[Tensor, "rows scores"], Float[Tensor, "rows scores"]]:
    """Scores and answers of each class; of two classes those of the second alone."""
    if logits.shape[1] == 2:  # noqa: PLR2004
        # the order of the probabilities, which may round to 1 together
        return logits[:, 1:] - logits[:, :1], is_class[:, 1:]
    return logits.softmax(dim=1), is_class


class ClassRows(_Rows):
    """Classes, for metrics that need the probability of each."""

    scores: ClassVar[Mapping[str, Callable[[Columns, Columns], float]]] = {
        "roc_auc": roc_auc_of_classes,
        "average_precision": average_precision_of_classes,
        "log_loss": log_loss_of_classes,
    }

    def __init__(self, task: Task, names: Sequence[str]) -> None:
        super().__init__(task, names)
        self._classes = task.classes

    def update(self, prediction: Columns, target: Int[Tensor, " rows"]) -> None:
        """Take in one batch; rows with a negative class have no label."""
        label = target[:, None].to(prediction.dtype)
        self._rows.append(torch.cat([prediction.detach(), label], dim=1).double())

    def state(self) -> Float[Tensor, "rows both"]:
        """Logits, then the class, of all rows."""
        if self._rows:
            return torch.cat(self._rows)
        return torch.zeros(0, self._outputs + 1, dtype=torch.float64)

    def _split(self) -> tuple[Columns, Columns]:
        rows = self.state().cpu()
        rows = rows[rows[:, -1] >= 0]
        logits, label = rows[:, :-1], rows[:, -1].long()
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        return logits, torch.nn.functional.one_hot(label, self._classes).double()


def accuracy(right: Classwise, true: Classwise, guessed: Classwise) -> float:  # noqa: ARG001
    """Share of rows whose class was found."""
    return float(right.sum() / true.sum())


def balanced_accuracy(right: Classwise, true: Classwise, guessed: Classwise) -> float:  # noqa: ARG001
    """Recall TP / (TP + FN) of each class, then the plain mean over the classes that occur."""
    return _mean_where(right / true, true > 0)


def macro_f1(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """F1 of each class, 2 TP / (2 TP + FP + FN); mean over classes that occur or were guessed."""
    both = true + guessed
    return _mean_where(2 * right / both, both > 0)


def micro_f1(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """F1 of all classes together: the accuracy, where each row has a guess."""
    return float(2 * right.sum() / (true.sum() + guessed.sum()))


def weighted_f1(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """F1 of each class, then the mean weighted by how often it occurs."""
    f1 = (2 * right / (true + guessed)).where(true > 0, 0.0)
    return float((f1 * true).sum() / true.sum())


def mcc(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """Matthews correlation coefficient of true and guessed classes; 0 where one is constant.

    (c s - sum_k p_k t_k) / sqrt((s^2 - sum p_k^2) (s^2 - sum t_k^2)) with c of s rows right, and
    class k guessed p_k and true t_k times.
    """
    s = true.sum()
    covariance = right.sum() * s - (guessed * true).sum()
    variances = (s**2 - (guessed**2).sum()) * (s**2 - (true**2).sum())
    return float(covariance / variances.sqrt()) if variances > 0 else 0.0


def _mean_where(values: Classwise, counts: Bool[Tensor, " classes"]) -> float:
    return float(values[counts].mean())


class Confusion:
    """Classes, for metrics that count how often each (row) was taken for each.

    The last column counts rows that were taken for none, since the model found no number.
    """

    scores: ClassVar[Mapping[str, Callable[[Classwise, Classwise, Classwise], float]]] = {
        "accuracy": accuracy,
        "balanced_accuracy": balanced_accuracy,
        "accuracy_sbm": balanced_accuracy,
        "macro_f1": macro_f1,
        "micro_f1": micro_f1,
        "weighted_f1": weighted_f1,
        "mcc": mcc,
    }

    def __init__(self, task: Task, names: Sequence[str]) -> None:
        self._names, self._classes = names, task.classes
        self._counts = torch.zeros(task.classes, task.classes + 1, dtype=torch.int64)

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

    def compute(self) -> dict[str, float]:
        """Score the counts."""
        counts = self._counts.cpu()
        right, true = counts.diagonal().double(), counts.sum(dim=1).double()
        guessed = counts.sum(dim=0)[: self._classes].double()
        return {name: self.scores[name](right, true, guessed) for name in self._names}


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
    sizes make slightly other numbers. A graph without right pairs counts 0. All of them are
    computed, whichever are asked for.
    """

    scores: ClassVar[frozenset[str]] = frozenset(COLUMNS)

    def __init__(self, task: Task, names: Sequence[str]) -> None:  # noqa: ARG002
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


class PairRows(_Rows):
    """Pairs of nodes, for metrics that ask how well right ones are separated from wrong ones."""

    scores: ClassVar[Mapping[str, Callable[[Columns, Columns], float]]] = {
        "roc_auc": roc_auc,
        "average_precision": average_precision,
    }

    def __init__(self, task: Task, names: Sequence[str]) -> None:
        super().__init__(task, names)
        self._outputs = 1

    def update(self, prediction: Float[Tensor, "nodes channels"], target: Links) -> None:
        """Take in one batch."""
        scores = pair_scores(prediction.detach(), target.pairs)[:, None]
        super().update(scores, target.label[:, None])


PARTS: dict[PredictionKind, tuple[Any, ...]] = {
    "classes": (Confusion, ClassRows),
    "multi-label": (Answers,),
    "regression": (Targets,),
    "link": (LinkRanking, PairRows),
}
LOWER_IS_BETTER: frozenset[str] = frozenset({"mean_absolute_error", "rmse", "log_loss"})


def make_metrics(task: Task, names: Sequence[MetricName] = ()) -> list[Metric]:
    """Make metrics by their names, those that need the same state as one.

    Args:
        task: What is scored.
        names: Which of its metrics; none for the one that models are chosen by.
    """
    names = names or (task.metric,)
    found = [(part, [name for name in names if name in part.scores]) for part in PARTS[task.kind]]
    return [part(task, own) for part, own in found if own]
