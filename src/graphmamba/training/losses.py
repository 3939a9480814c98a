"""Loss functions; entries without a label (NaN, or a negative class) do not count."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from graphmamba.data.catalog import LossName, Task
from graphmamba.data.custom.labels import LabelStatistics
from graphmamba.errors import UserError
from graphmamba.nn.heads import pair_scores


@dataclass(frozen=True)
class Links:
    """Pairs of nodes with a label, of all graphs of a batch."""

    pairs: Int[Tensor, "2 pairs"]
    label: Float[Tensor, " pairs"]
    """1 for positive pairs, 0 for negative ones."""
    batch: Int[Tensor, " nodes"]
    """Graph of each node, ascending."""
    num_graphs: int
    known: Int[Tensor, "2 edges"] | None = None
    """Message passing edges of a single graph whose edges are split; they are not ranked."""


Target = Int[Tensor, " rows"] | Float[Tensor, "rows outputs"] | Links


Scalar = Float[Tensor, ""]


def binary_cross_entropy(
    logits: Float[Tensor, "rows outputs"],
    label: Float[Tensor, "rows outputs"],
    weights: Float[Tensor, " outputs"] | None = None,
) -> Scalar:
    """Mean over all labelled entries; each column is a binary label.

    -w y log p - (1 - y) log(1 - p), with a weight w of the positive labels of each column.
    """
    _check_alike(logits, label)
    is_labelled = ~torch.isnan(label)
    losses = functional.binary_cross_entropy_with_logits(
        logits, label.masked_fill(~is_labelled, 0.0), reduction="none", pos_weight=weights
    )
    return _mean(losses, is_labelled)


def l1(prediction: Float[Tensor, "rows outputs"], target: Float[Tensor, "rows outputs"]) -> Scalar:
    """Mean absolute error over all entries with a target."""
    errors, is_labelled = _errors(prediction, target)
    return _mean(errors.abs(), is_labelled)


def mse(prediction: Float[Tensor, "rows outputs"], target: Float[Tensor, "rows outputs"]) -> Scalar:
    """Mean squared error over all entries with a target."""
    errors, is_labelled = _errors(prediction, target)
    return _mean(errors.square(), is_labelled)


def huber(
    prediction: Float[Tensor, "rows outputs"],
    target: Float[Tensor, "rows outputs"],
    delta: float | Float[Tensor, " outputs"] = 1.0,
) -> Scalar:
    """e^2 / 2 of errors up to delta, delta (|e| - delta / 2) beyond; mean over known entries."""
    errors, is_labelled = _errors(prediction, target)
    near = errors.abs().clamp(max=delta)
    return _mean(near * (errors.abs() - 0.5 * near), is_labelled)


def _errors(
    prediction: Float[Tensor, "rows outputs"], target: Float[Tensor, "rows outputs"]
) -> tuple[Float[Tensor, "rows outputs"], Tensor]:
    """Prediction errors, and which entries have a target."""
    _check_alike(prediction, target)
    is_labelled = ~torch.isnan(target)
    return prediction - target.masked_fill(~is_labelled, 0.0), is_labelled


def cross_entropy(
    logits: Float[Tensor, "rows classes"],
    label: Int[Tensor, " rows"],
    weights: Float[Tensor, " classes"] | None = None,
    smoothing: float = 0.0,
) -> Scalar:
    """Mean over all labelled rows of -sum_k w_k q_k log p_k.

    q is 1 - smoothing + smoothing / K at the label and smoothing / K at the other K - 1 classes.
    Unlike torch's, the sum is divided by the number of rows, not by their weights, so that batches
    add up.
    """
    losses = functional.cross_entropy(
        logits,
        label.clamp_min(0),
        weight=weights,
        reduction="none",
        label_smoothing=smoothing,
    )
    return _mean(losses, label >= 0)


FOCUS = 2.0
"""Power gamma of the focal loss, as published."""


def focal(
    logits: Float[Tensor, "rows outputs"],
    label: Int[Tensor, " rows"] | Float[Tensor, "rows outputs"],
    weights: Float[Tensor, " outputs"] | None = None,
) -> Scalar:
    """Mean of -w (1 - p)^gamma log p, p the probability of the true label (gamma = 2).

    Labels are classes (integers) or binary (floats, with w the weight of positive ones). From
    "Focal Loss for Dense Object Detection", https://arxiv.org/abs/1708.02002.
    """
    if label.is_floating_point():
        _check_alike(logits, label)
        is_labelled = ~torch.isnan(label)
        known = label.masked_fill(~is_labelled, 0.0)
        log_p = functional.logsigmoid(logits * (2.0 * known - 1.0))
        weight: Tensor | float = 1.0 if weights is None else 1.0 + (weights - 1.0) * known
    else:
        is_labelled, known = label >= 0, label.clamp_min(0)
        log_p = logits.log_softmax(dim=1).gather(1, known[:, None])[:, 0]
        weight = 1.0 if weights is None else weights[known]
    return _mean(-weight * (-log_p.expm1()) ** FOCUS * log_p, is_labelled)


def weighted_cross_entropy(
    logits: Float[Tensor, "rows classes"], label: Int[Tensor, " rows"]
) -> Scalar:
    """Cross-entropy weighted by class, rare classes of the batch more (`balanced_weights`)."""
    weight = balanced_weights(label, logits.shape[1], _exact(logits))
    # a batch of one class has no weight at all, and nothing to balance
    total = weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
    losses = functional.cross_entropy(logits, label.clamp_min(0), reduction="none")
    return (weight * losses).sum() / total


def weighted_binary_cross_entropy(
    logits: Float[Tensor, "rows 1"], label: Int[Tensor, " rows"]
) -> Scalar:
    """The same for two classes and one logit, but divided by the number of rows."""
    weight = balanced_weights(label, 2, _exact(logits))
    losses = functional.binary_cross_entropy_with_logits(
        logits[:, 0], label.clamp_min(0).to(logits.dtype), reduction="none"
    )
    return _mean(weight * losses, label >= 0)


def link_cross_entropy(embeddings: Float[Tensor, "nodes channels"], links: Links) -> Scalar:
    """Binary cross-entropy of the inner products, mean over the labelled pairs."""
    scores = pair_scores(embeddings, links.pairs)
    return binary_cross_entropy(scores[:, None], links.label[:, None].to(_exact(scores)))


def link_l1(embeddings: Float[Tensor, "nodes channels"], links: Links) -> Scalar:
    """Absolute error of the inner products against 0 and 1, as in Exphormer's code."""
    scores = pair_scores(embeddings, links.pairs)
    return l1(scores[:, None], links.label[:, None].to(_exact(scores)))


LOSSES: dict[LossName, Callable[..., Scalar]] = {
    "cross_entropy": cross_entropy,
    "binary_cross_entropy": binary_cross_entropy,
    "focal": focal,
    "l1": l1,
    "mse": mse,
    "huber": huber,
    "weighted_cross_entropy": weighted_cross_entropy,
    "weighted_binary_cross_entropy": weighted_binary_cross_entropy,
    "link_cross_entropy": link_cross_entropy,
    "link_l1": link_l1,
}


def check_fits(argument: str, loss: LossName, task: Task) -> None:
    """Reject a loss that does not fit the labels of a task."""
    if loss not in task.losses:
        listed = " or ".join(repr(name) for name in task.losses)
        raise UserError(f"{argument} must be {listed} for {task.in_words}, got {loss!r}")


@dataclass(frozen=True)
class Objective:
    """A loss with its weights, and the units of the outputs.

    If mean and std are given, outputs predict standardised targets (y - mean) / std. Losses are
    reported in the original units.
    """

    loss: LossName
    weights: Float[Tensor, " outputs"] | None = None
    """Weight of each class, or of the positive labels of each column."""
    smoothing: float = 0.0
    """Label smoothing."""
    mean: Float[Tensor, " outputs"] | None = None
    std: Float[Tensor, " outputs"] | None = None

    def __call__(self, output: Tensor, target: Any) -> Scalar:
        """The loss to take the gradient of."""
        if self.mean is not None and self.std is not None:
            target = (target - self.mean) / self.std
        return self._loss(output, target)

    def reported(self, output: Tensor, target: Any) -> Scalar:
        """The same loss in the units of the targets: absolute errors, or their squares."""
        if self.loss == "huber" and self.std is not None:
            return huber(self.in_units(output), target, delta=self.std)
        return self._loss(self.in_units(output), target)

    def in_units(self, output: Tensor) -> Tensor:
        """Outputs in the units of the targets."""
        if self.mean is None or self.std is None:
            return output
        return output * self.std + self.mean

    def to(self, device: torch.device) -> "Objective":
        """The same with its tensors on a device."""
        weights, mean, std = (
            None if each is None else each.to(device)
            for each in (self.weights, self.mean, self.std)
        )
        return replace(self, weights=weights, mean=mean, std=std)

    @property
    def is_standardized(self) -> bool:
        """Whether outputs have other units than the targets."""
        return self.mean is not None

    def _loss(self, output: Tensor, target: Any) -> Scalar:
        given: dict[str, Any] = {} if self.weights is None else {"weights": self.weights}
        if self.smoothing:
            given["smoothing"] = self.smoothing
        return LOSSES[self.loss](output, target, **given)


Weights = Literal["balanced"] | tuple[float, ...] | None
"""Options for the weights of classes or positive labels."""


def objective_of(
    loss: LossName,
    task: Task,
    statistics: LabelStatistics | None = None,
    class_weights: Weights = None,
    positive_weights: Weights = None,
    smoothing: float = 0.0,
) -> Objective:
    """Make the objective of a task; weights that its loss does not use are rejected.

    `statistics` are those of the training labels of custom graphs; the rest is as in `TrainConfig`.
    """
    if smoothing and loss != "cross_entropy":
        raise UserError(
            f"train.label_smoothing is read by 'cross_entropy' alone, got {smoothing} for {loss!r}"
        )
    answers = task.outputs if task.kind == "multi-label" else 0
    wanted: tuple[float, ...] | None = None
    for name, given, what, base, count in (
        ("class_weights", class_weights, "classes", "cross_entropy", task.classes),
        ("positive_weights", positive_weights, "answers", "binary_cross_entropy", answers),
    ):
        if given is None:
            continue
        if loss not in (base, "focal") or not count:
            raise UserError(
                f"train.{name} is read for {what} with {base!r} or 'focal' alone, got {given!r} "
                f"for {task.in_words} with {loss!r}"
            )
        if given == "balanced":
            if statistics is None or not statistics.counts:
                raise UserError(
                    f"train.{name} must be numbers for a benchmark: 'balanced' is for custom graphs"
                )
            wanted = statistics.class_weights if task.classes else statistics.positive_weights
        elif len(given) != count or min(given) < 0 or not 0 < sum(given) < float("inf"):
            raise UserError(f"train.{name} must be {count} numbers of at least 0, got {given}")
        else:
            wanted = given
    weights = None if wanted is None else torch.tensor(wanted, dtype=torch.float32)
    if statistics is None or not statistics.std:
        return Objective(loss, weights, smoothing)
    mean, std = (torch.tensor(each) for each in (statistics.mean, statistics.std))
    return Objective(loss, weights, smoothing, mean, std)


def balanced_weights(
    label: Int[Tensor, " rows"], classes: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, " rows"]:
    """Weight of each row: the share of labelled rows of other classes; 0 if unlabelled."""
    is_labelled = (label >= 0).to(dtype)
    known = label.clamp_min(0)
    count = is_labelled.new_zeros(classes).index_add_(0, known, is_labelled)
    total = is_labelled.sum().clamp_min(1.0)
    return ((total - count) / total)[known] * is_labelled


def _check_alike(prediction: Tensor, target: Tensor) -> None:
    """Reject targets of another shape, which torch would broadcast."""
    if prediction.shape != target.shape:
        raise UserError(
            f"target must have the shape of the prediction, {tuple(prediction.shape)}, "
            f"got {tuple(target.shape)}"
        )


def _exact(scores: Float[Tensor, "*shape"]) -> torch.dtype:
    """The type of sums: that of the predictions, at least float32."""
    return torch.promote_types(scores.dtype, torch.float32)


def _mean(losses: Float[Tensor, "*shape"], counts: Tensor) -> Scalar:
    """Mean over entries where `counts`, without indexing, which would wait for the GPU."""
    return (losses * counts).sum() / counts.sum().clamp_min(1)
