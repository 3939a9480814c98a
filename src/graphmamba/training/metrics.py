"""Metrics of a split, accumulated batch by batch.

States of several processes are merged, and the score has the same bits for any number of processes:
counts are integers, and sums of floats are rounded once (`math.fsum`), so that their order does not
matter.
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
    """Scores that are computed from the same rows.

    Args:
        rows: Maps predictions and targets of a batch to the rows to keep.
        score: Maps all rows, on the CPU, to scores by name.
        empty: A tensor of no rows, of their shape and type.
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
        """Add a batch."""
        self._kept.append(self._rows(prediction.detach(), target))

    def state(self) -> Tensor:
        """All rows so far."""
        return torch.cat(self._kept) if self._kept else self._empty

    def merge(self, states: Sequence[Tensor]) -> None:
        """Replace the state by these rows."""
        self._kept = list(states)

    def compute(self) -> dict[str, float]:
        """Compute the scores."""
        return self._score(self.state().cpu())


Columns = Float[Tensor, "rows columns"]
Classwise = Float[Tensor, " classes"]


def average_precision(prediction: Columns, target: Columns) -> float:
    """Average precision of each column, sum of (R_n - R_{n-1}) P_n, then the plain mean.

    NaN labels are skipped, and so are columns without a positive label. The score is NaN if a
    prediction is NaN.
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
    """Area under the ROC curve of each column, then the mean over columns with both labels.

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
    """Mean of -log of the probability of the true label over all known entries."""
    known = ~torch.isnan(target)
    # a positive answer has probability sigmoid(x), a negative one sigmoid(-x)
    signed = prediction[known] * (1 - 2 * target[known])
    return _mean(torch.nn.functional.softplus(signed).tolist())


def macro_f1_of_answers(prediction: Columns, target: Columns) -> float:
    """F1 of each column, positive above 1/2; mean over columns with true or predicted ones."""
    right, both = _answers_right(prediction, target)
    return _mean((2 * right / both)[both != 0].tolist())


def micro_f1_of_answers(prediction: Columns, target: Columns) -> float:
    """F1 of all columns together."""
    right, both = _answers_right(prediction, target)
    return float(2 * right.sum() / both.sum())


def _answers_right(prediction: Columns, target: Columns) -> tuple[Classwise, Classwise]:
    """True positives of each column; and its positives plus its predicted positives."""
    guess = (prediction > 0) & ~target.isnan()
    is_positive = target == 1
    both = (guess.sum(dim=0) + is_positive.sum(dim=0)).double()
    # a column with a NaN prediction has no score
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

    Then the plain mean; columns with constant targets are left out.
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
"""Metrics of binary labels and of regression targets, per column; links are one binary column."""


def column_metric(task: Task, names: Sequence[str]) -> Metric:
    """Metric that keeps predictions and targets of all rows, side by side."""
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
    """Mean of -log of the probability of the true class."""
    return _mean((-logits.log_softmax(dim=1))[is_class == 1].tolist())


def _one_against_rest(
    logits: Columns, is_class: Columns
) -> tuple[Float[Tensor, "rows scores"], Float[Tensor, "rows scores"]]:
    """One-vs-rest scores and labels of each class; with two classes, of the second one only."""
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
"""Metrics of class probabilities; with more than two classes, areas are one-vs-rest means."""


def class_metric(task: Task, names: Sequence[str]) -> Metric:
    """Metric that keeps logits and class of all rows; a negative class is no label."""

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
    """Share of rows whose class is predicted."""
    return float(right.sum() / true.sum())


def balanced_accuracy(right: Classwise, true: Classwise, guessed: Classwise) -> float:  # noqa: ARG001
    """Recall TP / (TP + FN) of each class, then the plain mean over the classes that occur."""
    return float((right / true)[true > 0].mean())


def macro_f1(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """F1 of each class, 2 TP / (2 TP + FP + FN); mean over classes that occur or are predicted."""
    both = true + guessed
    return float((2 * right / both)[both > 0].mean())


def micro_f1(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """F1 of all classes together: the accuracy, if each row has a prediction."""
    return float(2 * right.sum() / (true.sum() + guessed.sum()))


def weighted_f1(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """F1 of each class, then the mean weighted by class frequency."""
    f1 = (2 * right / (true + guessed)).where(true > 0, 0.0)
    return float((f1 * true).sum() / true.sum())


def mcc(right: Classwise, true: Classwise, guessed: Classwise) -> float:
    """Matthews correlation coefficient of true and predicted classes; 0 if one is constant.

    (c s - sum_k p_k t_k) / sqrt((s^2 - sum p_k^2) (s^2 - sum t_k^2)) with c of s rows right, and
    class k predicted p_k and true t_k times.
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
"""Metrics from true positives, true counts and predicted counts of each class."""


def count_metric(task: Task, names: Sequence[str]) -> Metric:
    """Metric that keeps the confusion matrix (true class in rows) of each batch.

    The last column counts rows without a prediction, whose logits are NaN; a negative class is no
    label.
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
    """Mean reciprocal rank and hits@k of the positive pairs, in three variants.

    The pair (i, j) is ranked among the pairs of i with all nodes of the graph, i included (raw, as
    in the paper); without the other true partners of i (`_filtered`); or also without i
    (`_extended`, recommended by "Where did the gap go?", https://arxiv.org/abs/2309.00367). In a
    single graph whose edges are split, neighbours of i in the message passing graph are left out of
    all three, and at most 10,000 evenly spaced positive pairs are ranked. Averaged over the
    positive pairs of a graph, over the graphs of a batch, and over batches weighted by their
    labelled pairs, so that the score depends slightly on the batch size. A graph without positive
    pairs counts 0.
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
    """Weighted mean over batches, rounded once; NaN if all weights are 0."""
    total = math.fsum(weights.tolist())
    return math.fsum((values * weights).tolist()) / total if total else math.nan


def mean_loss() -> Metric:
    """Mean of the losses of batches, weighted by their number of labels.

    It is the loss of all graphs as one batch, except for losses with class weights from each batch.
    NaN without labels.
    """
    return Metric(
        lambda loss, labels: torch.stack([loss, torch.full_like(loss, labels)]).double()[None],
        lambda kept: {"loss": _weighed_mean(kept[:, 0], kept[:, 1])},
        torch.zeros(0, 2, dtype=torch.float64),
    )


def ranks(
    embeddings: Float[Tensor, "nodes channels"], links: Links
) -> Int[Tensor, "variants pairs"]:
    """Rank of each pair among the candidates, 1 is the best: raw, filtered, extended.

    Candidates with the same score rank behind, as in the published code; NaN scores rank last.
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
"""Positive pairs of a single graph that are ranked, each against all nodes."""
MOST_SCORES = 1 << 24
"""Scores of a single graph that are in memory at a time."""


def _some_right(links: Links) -> Links:
    """Positive pairs of a single graph; evenly spaced ones if there are many."""
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
    """`ranks` in a single graph, some pairs at a time: memory is linear in nodes and edges."""
    assert links.known is not None
    nodes, device = embeddings.shape[0], embeddings.device
    found = [torch.empty(len(VARIANTS), 0, dtype=torch.int64, device=device)]
    known, right = _by_source(links.known, nodes), _by_source(links.pairs, nodes)
    for pairs in links.pairs.split(max(MOST_SCORES // max(nodes, 1), 1), dim=1):
        head, tail = pairs
        rows = torch.arange(len(head), device=device)
        row = embeddings[head] @ embeddings.T
        own = row.gather(1, tail[:, None])
        beats = ~(own >= row)
        beats[rows, tail] = False
        beats[_partners_of(head, *known)] = False
        filtered = beats.clone()
        filtered[_partners_of(head, *right)] = False
        extended = filtered.clone()
        extended[rows, head] = False
        found.append(torch.stack([each.sum(dim=1) + 1 for each in (beats, filtered, extended)]))
    return torch.cat(found, dim=1)


def _by_source(
    edges: Int[Tensor, "2 edges"], nodes: int
) -> tuple[Int[Tensor, " boundaries"], Int[Tensor, " edges"]]:
    """First edge of each source, and the targets in this order."""
    source, order = edges[0].sort(stable=True)
    every = torch.arange(nodes + 1, device=edges.device)
    return torch.searchsorted(source, every), edges[1][order]


def _partners_of(
    head: Int[Tensor, " pairs"], begin: Int[Tensor, " boundaries"], target: Int[Tensor, " edges"]
) -> tuple[Int[Tensor, " partners"], Int[Tensor, " partners"]]:
    """Place among the heads, and partner, of each edge that leaves one of them."""
    counts = begin.diff()[head]
    place = torch.arange(len(head), device=head.device).repeat_interleave(counts)
    first = begin[head] - (counts.cumsum(0) - counts)
    return place, target[torch.arange(len(place), device=head.device) + first[place]]


def _within_graphs(
    links: Links,
) -> tuple[Int[Tensor, " pairs"], Int[Tensor, " pairs"], Int[Tensor, " pairs"]]:
    """Graph of each pair, and the indices of its two nodes within that graph."""
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


METRIC_TITLES = {
    "average_precision": "AP",
    "mean_absolute_error": "MAE",
    "macro_f1": "F1",
    "accuracy": "accuracy",
    "accuracy_sbm": "accuracy (mean of classes)",
    "micro_f1": "F1 (micro)",
    "weighted_f1": "F1 (weighted)",
    "mcc": "MCC",
    "roc_auc": "ROC-AUC",
    "log_loss": "log-loss",
    "rmse": "RMSE",
    "r2": "R2",
    "spearman": "Spearman",
    "mrr": "MRR",
    "mrr_filtered": "MRR filtered",
    "mrr_extended": "MRR extended",
}
"""Short names of metrics in tables; of others, their name."""


def metric_title(name: str) -> str:
    """Title of a metric in tables."""
    return METRIC_TITLES.get(name, name.replace("_", " "))


def make_metrics(task: Task, names: Sequence[MetricName] = ()) -> list[Metric]:
    """Make metrics by name; those computed from the same rows are one object.

    Without names, the metric of the task.
    """
    names = names or (task.metric,)
    found = [(make, [name for name in names if name in known]) for known, make in MAKERS[task.kind]]
    return [make(task, own) for make, own in found if own]
