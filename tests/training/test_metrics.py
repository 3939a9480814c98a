"""Scores of whole splits, against scikit-learn and by hand."""

import math
from typing import get_args

import pytest
import scipy.stats
import torch
from sklearn import metrics as sklearn_metrics
from torch import Tensor

from graphmamba.data.catalog import CATALOG, MetricName, Task
from graphmamba.training.losses import Links
from graphmamba.training.metrics import (
    COLUMNS,
    COUNT_SCORES,
    Metric,
    make_metrics,
    metric_title,
    predicted_class,
    ranks,
)


def test_titles_have_no_underscore() -> None:
    titles = {name: metric_title(name) for name in get_args(MetricName)}
    assert not any("_" in title for title in titles.values())
    assert len(set(titles.values())) == len(titles)
    assert titles["mean_absolute_error"] == "MAE"
    assert titles["hits@3_filtered"] == "hits@3 filtered"


BENCHMARK_OF: dict[MetricName, str] = {
    "average_precision": "peptides-func",
    "mean_absolute_error": "peptides-struct",
    "macro_f1": "pascalvoc-sp",
    "accuracy": "mnist",
    "accuracy_sbm": "cluster",
}
CLASSES = Task("node", 4, "cross_entropy", "accuracy", classes=4)
TWO = Task("graph", 2, "cross_entropy", "accuracy", classes=2)
ONE_LOGIT = CATALOG["pattern"].task
ANSWERS = Task("graph", 3, "binary_cross_entropy", "average_precision")
TARGETS = Task("graph", 2, "l1", "mean_absolute_error")


def make(name: MetricName) -> Metric:
    return make_metrics(CATALOG[BENCHMARK_OF[name]].task, (name,))[0]


def draw(task: Task, rows: int = 60) -> tuple[Tensor, Tensor]:
    """Predictions, some of which tie, and labels, some of which are missing."""
    generator = torch.Generator().manual_seed(0)
    prediction = torch.randn(rows, task.outputs, generator=generator, dtype=torch.float64)
    prediction = (4 * prediction).round() / 4
    if task.classes:
        return prediction, torch.randint(-1, task.classes, (rows,), generator=generator)
    target = prediction + torch.randn(rows, task.outputs, generator=generator, dtype=torch.float64)
    target = (target > 0.5).double() if task.kind == "multi-label" else target
    is_missing = torch.rand(target.shape, generator=generator) < 0.2
    return prediction, target.masked_fill(is_missing, math.nan)


def expected_of_classes(name: str, logits: Tensor, label: Tensor) -> float:
    if logits.shape[1] == 1:
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    logits, label = logits[label >= 0], label[label >= 0]
    guess, chance = logits.argmax(dim=1), logits.softmax(dim=1)
    scores = chance[:, 1] if logits.shape[1] == 2 else chance
    theirs = sklearn_metrics
    return {
        "accuracy": lambda: theirs.accuracy_score(label, guess),
        "balanced_accuracy": lambda: theirs.balanced_accuracy_score(label, guess),
        "macro_f1": lambda: theirs.f1_score(label, guess, average="macro"),
        "micro_f1": lambda: theirs.f1_score(label, guess, average="micro"),
        "weighted_f1": lambda: theirs.f1_score(label, guess, average="weighted"),
        "mcc": lambda: theirs.matthews_corrcoef(label, guess),
        "roc_auc": lambda: theirs.roc_auc_score(label, scores, multi_class="ovr", average="macro"),
        "average_precision": lambda: theirs.average_precision_score(label, scores),
        "log_loss": lambda: theirs.log_loss(label, chance),
    }[name]()


def expected_of_columns(name: str, prediction: Tensor, target: Tensor) -> float:
    theirs, columns = sklearn_metrics, []
    for output, label in zip(prediction.T, target.T, strict=True):
        known = ~label.isnan()
        columns.append((output[known], label[known]))
    each = {
        "average_precision": lambda p, y: theirs.average_precision_score(y, p),
        "roc_auc": lambda p, y: theirs.roc_auc_score(y, p),
        "macro_f1": lambda p, y: theirs.f1_score(y.int(), (p > 0).int()),
        "rmse": lambda p, y: theirs.root_mean_squared_error(y, p),
        "r2": lambda p, y: theirs.r2_score(y, p),
        "spearman": lambda p, y: scipy.stats.spearmanr(y, p).statistic,
    }
    if name in each:
        return sum(float(each[name](*column)) for column in columns) / len(columns)
    output, label = (torch.cat(parts) for parts in zip(*columns, strict=True))
    return {
        "mean_absolute_error": lambda: theirs.mean_absolute_error(label, output),
        "micro_f1": lambda: theirs.f1_score(label.int(), (output > 0).int()),
        "log_loss": lambda: theirs.log_loss(label, output.sigmoid()),
    }[name]()


@pytest.mark.parametrize("task", [CLASSES, TWO, ONE_LOGIT, ANSWERS, TARGETS])
def test_agrees_with_scikit_learn_in_batches_and_over_processes(task: Task) -> None:
    prediction, target = draw(task)
    expected = expected_of_classes if task.classes else expected_of_columns
    wanted = {name: expected(name, prediction, target) for name in task.metrics}
    whole, merged = make_metrics(task, task.metrics), make_metrics(task, task.metrics)
    processes = [make_metrics(task, task.metrics) for _ in range(4)]  # the last one has no batch
    for number, batch in enumerate(zip(prediction.split(17), target.split(17), strict=True)):
        for metric, own in zip(whole, processes[number % 3], strict=True):
            metric.update(*batch)
            own.update(*batch)
    found: dict[str, float] = {}
    for metric, together, *owns in zip(whole, merged, *processes, strict=True):
        together.merge([own.state() for own in owns])
        found |= metric.compute()
        assert together.compute() == metric.compute()
    assert found.keys() == {*task.metrics}
    assert found == pytest.approx(wanted, abs=1e-12)


def test_pairs_are_scored_by_their_inner_products() -> None:
    z = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    pairs = torch.tensor([[0, 1, 2, 3, 4, 5], [6, 7, 8, 0, 1, 2]])
    label = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0, math.nan])
    (_, rows) = make_metrics(CATALOG["pcqm-contact"].task, ("mrr", "roc_auc"))
    rows.update(z, Links(pairs, label, torch.zeros(9).long(), 1))
    scores = (z[pairs[0]] * z[pairs[1]]).sum(dim=1)[:5]
    theirs = sklearn_metrics.roc_auc_score(label[:5], scores)
    assert rows.compute() == {"roc_auc": pytest.approx(theirs)}


@pytest.mark.parametrize("task", [CLASSES, ONE_LOGIT, ANSWERS, TARGETS])
def test_predictions_that_are_no_numbers_have_no_score(task: Task) -> None:
    prediction, target = draw(task)
    counted = COUNT_SCORES if task.classes else {}
    for metric in make_metrics(task, [name for name in task.metrics if name not in counted]):
        metric.update(prediction.fill_(math.nan), target)
        assert all(math.isnan(value) for value in metric.compute().values())


def test_infinite_logits_have_a_rank_and_nan_has_none() -> None:
    for first, expected in ((math.inf, (1 + 2 / 3) / 2), (math.nan, math.nan)):
        metric = make_metrics(CATALOG["peptides-func"].task)[0]
        logits = torch.tensor([[first], [1.0], [-math.inf]])
        metric.update(logits, torch.tensor([[1.0], [0.0], [1.0]]))
        found = metric.compute()["average_precision"]
        assert found == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("logits", "label", "expected"),
    [([2.0, -1.0, 1.0, -3.0], [1, 1, 0, 0], 0.5), ([math.nan, -1.0, 1.0], [0, 0, 1], 0.75)],
)
def test_one_logit_is_compared_with_one_half(
    logits: list[float], label: list[int], expected: float
) -> None:
    metric = make_metrics(ONE_LOGIT)[0]
    metric.update(torch.tensor(logits)[:, None], torch.tensor(label))
    assert metric.compute()["accuracy_sbm"] == expected
    assert predicted_class(torch.tensor([[-0.1], [0.0], [0.1]])).tolist() == [0, 0, 1]


@pytest.mark.parametrize("name", ["accuracy", "accuracy_sbm", "macro_f1"])
def test_what_is_no_number_is_taken_for_no_class(name: MetricName) -> None:
    metric = make(name)
    label = torch.zeros(4).long()
    metric.update(torch.full((4, 10), math.nan), label)
    assert metric.compute()[name] == 0
    one_of_five = torch.zeros(1, 10)
    one_of_five[0, 0] = 1
    metric.update(one_of_five, label[:1])
    assert metric.compute()[name] == pytest.approx(1 / 3 if name == "macro_f1" else 1 / 5)


@pytest.mark.parametrize("name", [*BENCHMARK_OF, "mrr"])
def test_nothing_seen_is_not_a_number(name: MetricName) -> None:
    metric = ranking() if name == "mrr" else make(name)
    assert all(math.isnan(value) for value in metric.compute().values())


def ranking() -> Metric:
    return make_metrics(CATALOG["pcqm-contact"].task)[0]


def links_of(pairs: list[tuple[int, int]], label: list[float], sizes: list[int]) -> Links:
    batch = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return Links(torch.tensor(pairs).T, torch.tensor(label).float(), batch, len(sizes))


class TestLinkRanking:
    # One coordinate: the score of (i, j) is z_i z_j, so node 0 scores 1 with itself, then
    # 4, 3, 2 with nodes 1, 2, 3.
    Z = torch.tensor([[1.0], [4.0], [3.0], [2.0]])

    def test_ranks_by_hand(self) -> None:
        links = links_of([(0, 1), (0, 3), (2, 3), (0, 2)], [1, 1, 1, 0], [4])
        raw, filtered, extended = ranks(self.Z, links)
        # (0, 3): beaten by 1 and 2; 1 is a true partner. (2, 3): beaten by 1 and by 2 itself.
        assert raw[:3].tolist() == [1, 3, 3]
        assert filtered[:3].tolist() == [1, 2, 3]
        assert extended[:3].tolist() == [1, 2, 2]

    def test_candidates_of_the_same_score_rank_behind_and_nan_ranks_last(self) -> None:
        links, equal = links_of([(0, 1)], [1], [4]), torch.ones(4, 1)
        assert ranks(equal, links).flatten().tolist() == [1, 1, 1]
        # one that is better by the least that there is ranks before
        equal[2] = 1.0 + torch.finfo().eps
        assert ranks(equal, links).flatten().tolist() == [2, 2, 2]
        assert ranks(torch.full((4, 2), math.nan), links)[0].item() == 4

    def test_averages_over_pairs_then_graphs_then_labelled_pairs(self) -> None:
        two = torch.cat([self.Z, torch.tensor([[1.0], [2.0]])])
        metric = ranking()
        # first graph: ranks 1 and 3; second graph, (4, 5): rank 1; four labelled pairs
        metric.update(two, links_of([(0, 1), (0, 3), (0, 2), (4, 5)], [1, 1, 0, 1], [4, 2]))
        # ranks 4; one labelled pair
        metric.update(self.Z, links_of([(1, 0)], [1], [4]))
        first = ((1 + 1 / 3) / 2 + 1) / 2
        scores = metric.compute()
        assert tuple(scores) == COLUMNS
        assert scores["mrr"] == pytest.approx((4 * first + 1 * 0.25) / 5)
        assert scores["hits@1"] == pytest.approx((4 * 0.75 + 0) / 5)
        assert scores["hits@3"] == pytest.approx(4 / 5)
        assert scores["hits@10"] == 1.0
        # two processes give the very same number
        states, merged = metric.state().split(1), ranking()
        merged.merge(states[::-1])
        assert merged.compute() == scores

    def test_pairs_without_a_label_do_not_weigh(self) -> None:
        metric = ranking()
        metric.update(self.Z, links_of([(0, 1)], [1], [4]))
        alone = metric.compute()
        metric.update(self.Z, links_of([(0, 2), (1, 2)], [math.nan, math.nan], [4]))
        assert metric.compute() == alone
        assert alone["mrr"] > 0

    def test_a_graph_without_right_pairs_counts_zero(self) -> None:
        metric = ranking()
        two = torch.cat([self.Z, self.Z])
        metric.update(two, links_of([(0, 1), (4, 5)], [1, 0], [4, 4]))
        assert metric.compute()["mrr"] == 0.5

    def test_variants_are_ordered_and_agree_with_a_loop(self) -> None:
        generator = torch.Generator().manual_seed(0)
        z = torch.randn(30, 4, generator=generator)
        sizes = [12, 1, 17]
        starts = [0, 12, 13]
        pairs = [(12, 12)] + [
            (starts[g] + int(a), starts[g] + int(b))
            for g in (0, 2)
            for a, b in torch.randint(sizes[g], (15, 2), generator=generator)
        ]
        label = torch.randint(2, (len(pairs),), generator=generator).float().tolist()
        links = links_of(pairs, label, sizes)
        rank = ranks(z, links)
        assert (rank[0] >= rank[1]).all()
        assert (rank[1] >= rank[2]).all()
        right = {pair for pair, is_right in zip(pairs, label, strict=True) if is_right}
        for index, (i, j) in enumerate(pairs):
            graph = int(links.batch[i])
            nodes = range(starts[graph], starts[graph] + sizes[graph])
            candidates = [k for k in nodes if k != j]
            strangers = [k for k in candidates if (i, k) not in right]
            others = [k for k in strangers if k != i]
            for variant, allowed in enumerate((candidates, strangers, others)):
                above = sum(float(z[i] @ z[k]) > float(z[i] @ z[j]) + 1e-6 for k in allowed)
                assert rank[variant, index] == above + 1
