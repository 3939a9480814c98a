"""What training minimises, by hand and against PyTorch."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch.nn import functional
from torch_geometric.data import Batch

from graphmamba.data.catalog import CATALOG, LossName, Task
from graphmamba.data.custom.labels import label_statistics
from graphmamba.errors import UserError
from graphmamba.training import losses
from graphmamba.training.evaluate import labels_of
from graphmamba.training.losses import Links, objective_of
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.typecheck import typecheck_off

NAN = math.nan


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


@pytest.mark.parametrize("loss", [losses.l1, losses.binary_cross_entropy])
def test_targets_of_another_shape_are_rejected(loss: object) -> None:
    """As PyG has them for one target a graph."""
    with typecheck_off(), pytest.raises(UserError, match=r"prediction, \(4, 1\), got \(4,\)"):
        loss(torch.zeros(4, 1), torch.zeros(4))


def test_weighted_losses_balance_the_classes_of_a_batch() -> None:
    logits, label = torch.randn(50, 5), torch.randint(4, (50,))
    counts = label.bincount(minlength=5).float()
    weight = torch.where(counts > 0, (50 - counts) / 50, 0)
    theirs = functional.cross_entropy(logits, label, weight=weight)
    assert torch.allclose(losses.weighted_cross_entropy(logits, label), theirs)
    # for one logit the sum is divided by the number of rows
    logits, label = torch.tensor([[2.0], [0.0], [-1.0], [1.0]]), torch.tensor([0, 0, 0, 1])
    entropies = [softplus(2.0), softplus(0.0), softplus(-1.0), softplus(-1.0)]
    expected = (0.25 * sum(entropies[:3]) + 0.75 * entropies[3]) / 4
    assert losses.weighted_binary_cross_entropy(logits, label).item() == pytest.approx(expected)
    # a batch of one class has nothing to balance
    alone = torch.randn(3, 2, requires_grad=True)
    loss = losses.weighted_cross_entropy(alone, torch.zeros(3, dtype=torch.long))
    loss.backward()
    assert loss.item() == 0.0
    assert torch.isfinite(alone.grad).all()


@pytest.mark.parametrize(
    "loss",
    [losses.cross_entropy, losses.weighted_cross_entropy, losses.weighted_binary_cross_entropy],
)
def test_rows_without_a_class_do_not_count(loss: object) -> None:
    outputs = 1 if loss is losses.weighted_binary_cross_entropy else 3
    logits, label = torch.randn(8, outputs), torch.tensor([0, 1, 1, 0, -1, -1, 0, -1])
    known = label >= 0
    assert torch.allclose(loss(logits, label), loss(logits[known], label[known]))


def test_losses_of_links_by_hand() -> None:
    z = torch.tensor([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0]])
    links = Links(
        pairs=torch.tensor([[0, 1], [1, 2]]),
        label=torch.tensor([1.0, 0.0]),
        batch=torch.zeros(3, dtype=torch.long),
        num_graphs=1,
    )
    expected = (softplus(-2.0) + softplus(-1.0)) / 2
    assert losses.link_cross_entropy(z, links).item() == pytest.approx(expected)
    assert losses.link_l1(z, links).item() == pytest.approx((1.0 + 1.0) / 2)


@pytest.mark.parametrize("name", CATALOG)
def test_every_benchmark_has_a_loss_for_its_labels(name: str) -> None:
    task = CATALOG[name].task
    graph = synthetic_graphs(CATALOG[name], count=1)[0]
    rows, columns = {
        "graph": (1, task.outputs),
        "node": (graph.num_nodes, task.outputs),
        "link": (graph.num_nodes, 8),
    }[task.level]
    prediction = torch.randn(rows, columns, requires_grad=True)
    loss = losses.LOSSES[task.loss](
        prediction, labels_of(Batch.from_data_list([graph]), task.level, ())
    )
    loss.backward()
    assert torch.isfinite(loss)


def test_l1_mse_and_huber_by_hand() -> None:
    prediction = torch.tensor([[1.0, 5.0], [0.0, -1.0]])
    target = torch.tensor([[3.0, NAN], [0.5, -1.5]])  # errors 2, 1/2 and 1/2
    assert losses.l1(prediction, target).item() == pytest.approx((2 + 0.5 + 0.5) / 3)
    assert losses.mse(prediction, target).item() == pytest.approx((4 + 0.25 + 0.25) / 3)
    assert losses.huber(prediction, target).item() == pytest.approx((1.5 + 0.125 + 0.125) / 3)
    wide = losses.huber(prediction, target, delta=torch.tensor([4.0, 0.25])).item()
    assert wide == pytest.approx((2 + 0.125 + 0.25 * (0.5 - 0.125)) / 3)


def test_weights_and_smoothing_of_classes_by_hand() -> None:
    logits = torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.0, 2.0], [9.0, 9.0, 9.0]])
    label, weights = torch.tensor([0, 1, -1]), torch.tensor([3.0, 0.5, 1.0])
    log_p = logits.log_softmax(dim=1)
    plain = -(3 * log_p[0, 0] + 0.5 * log_p[1, 1]) / 2
    assert losses.cross_entropy(logits, label, weights).item() == pytest.approx(plain.item())
    smooth = -(0.9 * log_p[0, 0] + 0.9 * log_p[1, 1] + 0.1 / 3 * log_p[:2].sum()) / 2
    found = losses.cross_entropy(logits, label, smoothing=0.1).item()
    assert found == pytest.approx(smooth.item())
    p = log_p.exp()
    focal = -(3 * (1 - p[0, 0]) ** 2 * log_p[0, 0] + 0.5 * (1 - p[1, 1]) ** 2 * log_p[1, 1]) / 2
    assert losses.focal(logits, label, weights).item() == pytest.approx(focal.item())


def test_weights_of_positive_answers_by_hand() -> None:
    logits, weights = torch.tensor([[1.0, -2.0], [0.5, 3.0]]), torch.tensor([5.0, 2.0])
    label = torch.tensor([[1.0, NAN], [0.0, 1.0]])
    expected = (5 * softplus(-1.0) + softplus(0.5) + 2 * softplus(-3.0)) / 3
    found = losses.binary_cross_entropy(logits.requires_grad_(), label, weights)
    assert found.item() == pytest.approx(expected)
    found.backward()
    assert logits.grad[0, 1] == 0 != logits.grad[0, 0]
    wrong = [1 / (1 + math.exp(x)) for x in (1.0, -0.5, 3.0)]  # chance of the other answer
    parts = (5 * softplus(-1.0), softplus(0.5), 2 * softplus(-3.0))
    expected = sum(part * chance**2 for part, chance in zip(parts, wrong, strict=True)) / 3
    assert losses.focal(logits, label, weights).item() == pytest.approx(expected)


CLASSES = Task("graph", 3, "cross_entropy", "accuracy", classes=3)
ANSWERS = Task("graph", 2, "binary_cross_entropy", "average_precision")


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    y = torch.tensor([0, 0, 0, 1, 1, 2, -1])
    found = objective_of("cross_entropy", CLASSES, label_statistics(y, CLASSES), "balanced")
    theirs = compute_class_weight("balanced", classes=np.arange(3), y=y[y >= 0].numpy())
    assert found.weights.tolist() == pytest.approx(theirs.tolist())
    answers = torch.tensor([[1.0, 0.0], [0.0, NAN], [0.0, 1.0], [0.0, 1.0]])
    known = label_statistics(answers, ANSWERS)
    found = objective_of("focal", ANSWERS, known, positive_weights="balanced")
    assert found.weights.tolist() == [3.0, 0.5]


@pytest.mark.parametrize("loss", ["l1", "mse", "huber"])
def test_losses_of_standardised_targets_are_reported_in_their_units(loss: LossName) -> None:
    task = Task("graph", 2, "l1", "mean_absolute_error")
    y = torch.tensor([[10.0, 3.0], [14.0, NAN], [12.0, 3.0]])
    statistics = label_statistics(y, task)
    assert statistics.mean == (12.0, 3.0)
    assert statistics.std == (pytest.approx(math.sqrt(8 / 3)), 1.0)
    objective = objective_of(loss, task, statistics)
    output = torch.tensor([[0.5, 0.0], [3.0, 1.0], [0.0, -2.0]])
    std = torch.tensor(statistics.std)
    in_units = output * std + torch.tensor(statistics.mean)
    function = losses.LOSSES[loss]
    assert torch.allclose(objective(output, y), function(output, (y - in_units) / std + output))
    reported = function(in_units, y, delta=std) if loss == "huber" else function(in_units, y)
    assert torch.allclose(objective.reported(output, y), reported)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            ("l1", Task("graph", 1, "l1", "rmse"), None, "balanced"),
            "class_weights is read for classes with 'cross_entropy'",
        ),
        (("cross_entropy", CLASSES, None, "balanced"), "class_weights must be numbers for a bench"),
        (("cross_entropy", CLASSES, None, (1.0,)), "class_weights must be 3 numbers of at least 0"),
        (("focal", CLASSES, None, None, (1.0,)), "positive_weights is read for answers with 'bin"),
        (("focal", CLASSES, None, None, None, 0.1), "label_smoothing is read by 'cross_entropy'"),
    ],
)
def test_weights_that_nobody_reads_are_rejected(given: tuple[Any, ...], told: str) -> None:
    with pytest.raises(UserError, match=told):
        objective_of(*given)
