"""What a split is scored by, collected batch after batch.

The states of several processes together make the score of the whole split, to the last bit whatever
the number of processes: counts are integers, and sums of numbers are rounded once (`math.fsum`), so
that their order does not matter.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.utils import to_dense_batch

from graphmamba.data.catalog import MetricName, PredictionKind, Task
from graphmamba.nn.heads import pair_scores
from graphmamba.training.losses import Links


class Metric:
    """Scores that need the same of each batch.

    Args:
        rows: What to keep of a batch: from predictions and what `target_of` gives to rows.
        score: From all rows, on the CPU, to scores by name.
        empty: No rows, of their shape and type.
    """

    def __init__(
        self,
        rows: Callable[[Tensor, Any], Tensor],
        score: Callable[[Tensor], dict[str, float]],
        empty: Tensor,
    ) -> None:
        self._rows, self._score, self._empty = rows, score, empty
        self._kept: list[Tensor] = []

    def update(self, prediction: Tensor, target: Any) -> None:
        """Take in one batch."""
        self._kept.append(self._rows(prediction.detach(), target))

    def state(self) -> Tensor:
        """All rows so far."""
        return torch.cat(self._kept) if self._kept else self._empty

    def merge(self, states: Sequence[Tensor]) -> None:
        """Take these rows in place of what was taken in."""
        self._kept = list(states)

    def compute(self) -> dict[str, float]:
        """Score what was taken in."""
        return self._score(self.state().cpu())


Columns = Float[Tensor, "rows columns"]
Classwise = Float[Tensor, " classes"]


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


COLUMN_SCORES: dict[str, Callable[[Columns, Columns], float]] = {
    "average_precision": average_precision,
    "roc_auc": roc_auc,
    "macro_f1": macro_f1_of_answers,
    "micro_f1": micro_f1_of_answers,
    "log_loss": log_loss_of_answers,
    "mean_absolute_error": mean_absolute_error,
    "rmse": rmse,
    "r2": r2,
    "spearman": spearman,
}
"""Of yes-or-no answers and of numbers, a column each; pairs of nodes are one column of answers."""


def column_metric(task: Task, names: Sequence[str]) -> Metric:
    """Keep predictions and targets of all rows side by side, as many columns of each."""
    columns = 1 if task.kind == "link" else task.outputs

    def rows(
        prediction: Float[Tensor, "_ _"], target: Columns | Links
    ) -> Float[Tensor, "rows both"]:
        if isinstance(target, Links):
            prediction = pair_scores(prediction, target.pairs)[:, None]
            target = target.label[:, None]
        return torch.cat([prediction, target], dim=1).double()

    def score(kept: Columns) -> dict[str, float]:
        return {name: COLUMN_SCORES[name](*kept.tensor_split(2, dim=1)) for name in names}

    return Metric(rows, score, torch.zeros(0, 2 * columns, dtype=torch.float64))


def predicted_class(prediction: Float[Tensor, "rows outputs"]) -> Int[Tensor, " rows"]:
    """Column of the largest logit; a single column is the logit of class 1 against class 0."""
    if prediction.shape[1] == 1:
        return (prediction[:, 0] > 0).long()
    return prediction.argmax(dim=1)


def log_loss_of_classes(logits: Columns, is_class: Columns) -> float:
    """Mean of -log of the probability of the right class."""
    return _mean((-logits.log_softmax(dim=1))[is_class == 1].tolist())


def _one_against_rest(
    logits: Columns, is_class: Columns
) -> tuple[Float[Tensor, "rows scores"], Float[Tensor, "rows scores"]]:
    """Scores and answers of each class; of two classes those of the second alone."""
    if logits.shape[1] == 2:  # noqa: PLR2004
        # the order of the probabilities, which may round to 1 together
        return logits[:, 1:] - logits[:, :1], is_class[:, 1:]
    return logits.softmax(dim=1), is_class


CLASS_SCORES: dict[str, Callable[[Columns, Columns], float]] = {
    "roc_auc": lambda logits, is_class: roc_auc(*_one_against_rest(logits, is_class)),
    "average_precision": lambda logits, is_class: average_precision(
        *_one_against_rest(logits, is_class)
    ),
    "log_loss": log_loss_of_classes,
}
"""Of classes, by the probability of each; the areas of more than two are means."""


def class_metric(task: Task, names: Sequence[str]) -> Metric:
    """Keep the logits and the class of all rows; a negative class is no label."""

    def rows(logits: Columns, label: Int[Tensor, " rows"]) -> Float[Tensor, "rows both"]:
        return torch.cat([logits, label[:, None].to(logits.dtype)], dim=1).double()

    def score(kept: Columns) -> dict[str, float]:
        kept = kept[kept[:, -1] >= 0]
        logits, label = kept[:, :-1], kept[:, -1].long()
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        is_class = torch.nn.functional.one_hot(label, task.classes).double()
        return {name: CLASS_SCORES[name](logits, is_class) for name in names}

    return Metric(rows, score, torch.zeros(0, task.outputs + 1, dtype=torch.float64))


def accuracy(right: Classwise, true: Classwise, guessed: Classwise) -> float:  # noqa: ARG001
    """Share of rows whose class was found."""
    return float(right.sum() / true.sum())


def balanced_accuracy(right: Classwise, true: Classwise, guessed: Classwise) -> float:  # noqa: ARG001
    """Recall TP / (TP + FN) of each class, then the plain mean over the classes that occur."""
    return float((right / true)[true > 0].mean())


def macro_f1(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """F1 of each class, 2 TP / (2 TP + FP + FN); mean over classes that occur or were guessed."""
    both = true + guessed
    return float((2 * right / both)[both > 0].mean())


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


COUNT_SCORES: dict[str, Callable[[Classwise, Classwise, Classwise], float]] = {
    "accuracy": accuracy,
    "balanced_accuracy": balanced_accuracy,
    "accuracy_sbm": balanced_accuracy,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "weighted_f1": weighted_f1,
    "mcc": mcc,
}
"""Of classes, by how often each was found, occurs and was guessed."""


def count_metric(task: Task, names: Sequence[str]) -> Metric:
    """Count how often each class (row) was taken for each, in a table for each batch.

    The last column counts rows that were taken for none, since the model found no number; a
    negative class is no label.
    """
    classes = task.classes

    def rows(
        prediction: Float[Tensor, "rows outputs"], target: Int[Tensor, " rows"]
    ) -> Int[Tensor, "1 classes guesses"]:
        guess = predicted_class(prediction).where(~prediction.isnan().any(dim=1), classes)
        is_labelled = target >= 0
        cell = (target * (classes + 1) + guess).masked_fill(~is_labelled, 0)
        counts = is_labelled.new_zeros(classes * (classes + 1), dtype=torch.int64)
        counts.index_add_(0, cell, is_labelled.long())
        return counts.view(1, classes, classes + 1)

    def score(kept: Int[Tensor, "batches classes guesses"]) -> dict[str, float]:
        counts = kept.sum(dim=0)
        right, true = counts.diagonal().double(), counts.sum(dim=1).double()
        guessed = counts.sum(dim=0)[:classes].double()
        return {name: COUNT_SCORES[name](right, true, guessed) for name in names}

    return Metric(rows, score, torch.zeros(0, classes, classes + 1, dtype=torch.int64))


HITS = (1, 3, 10)
VARIANTS = ("", "_filtered", "_extended")
COLUMNS = tuple(
    f"{name}{variant}" for variant in VARIANTS for name in ("mrr", *(f"hits@{k}" for k in HITS))
)


def ranking_metric(_task: Task, _names: Sequence[str]) -> Metric:
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

    def rows(embeddings: Float[Tensor, "nodes channels"], links: Links) -> Columns:
        weight = (~links.label.isnan()).sum().double()[None]
        links = _some_right(links)
        is_right = (links.label > 0.5).double()  # noqa: PLR2004
        found = ranks(embeddings.float(), links)
        columns = [
            column
            for rank in found
            for column in (1.0 / rank.double(), *((rank <= k).double() for k in HITS))
        ]
        scores = torch.stack(columns)  # [columns, pairs]
        graph = links.batch[links.pairs[0]]
        sums = scores.new_zeros(len(COLUMNS) + 1, links.num_graphs)
        sums.index_add_(1, graph, torch.cat([scores * is_right, is_right[None]]))
        means = (sums[:-1] / sums[-1].clamp_min(1.0)).mean(dim=1)
        return torch.cat([weight, means])[None]

    def score(kept: Columns) -> dict[str, float]:
        means = (_weighed_mean(column, kept[:, 0]) for column in kept[:, 1:].T)
        return dict(zip(COLUMNS, means, strict=True))

    return Metric(rows, score, torch.zeros(0, len(COLUMNS) + 1, dtype=torch.float64))


def _weighed_mean(values: Float[Tensor, " batches"], weights: Float[Tensor, " batches"]) -> float:
    """Mean of the batches, rounded once; NaN where none has weight."""
    total = math.fsum(weights.tolist())
    return math.fsum((values * weights).tolist()) / total if total else math.nan


def mean_loss() -> Metric:
    """Mean of the batches' losses, weighed by their labels, which are the target.

    It is the loss of all graphs in one batch, unless the loss weighs classes by how often a batch
    has them. Without any label it is NaN.
    """
    return Metric(
        lambda loss, labels: torch.stack([loss, torch.full_like(loss, labels)]).double()[None],
        lambda kept: {"loss": _weighed_mean(kept[:, 0], kept[:, 1])},
        torch.zeros(0, 2, dtype=torch.float64),
    )


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


MAKERS: dict[
    PredictionKind, tuple[tuple[Collection[str], Callable[[Task, Sequence[str]], Metric]], ...]
] = {
    "classes": ((COUNT_SCORES, count_metric), (CLASS_SCORES, class_metric)),
    "multi-label": ((COLUMN_SCORES, column_metric),),
    "regression": ((COLUMN_SCORES, column_metric),),
    "link": ((COLUMNS, ranking_metric), (COLUMN_SCORES, column_metric)),
}
LOWER_IS_BETTER: frozenset[str] = frozenset({"mean_absolute_error", "rmse", "log_loss"})


def make_metrics(task: Task, names: Sequence[MetricName] = ()) -> list[Metric]:
    """Make metrics by their names, those that need the same of each batch as one.

    Without names it is the one that models are chosen by.
    """
    names = names or (task.metric,)
    found = [(make, [name for name in names if name in known]) for known, make in MAKERS[task.kind]]
    return [make(task, own) for make, own in found if own]
