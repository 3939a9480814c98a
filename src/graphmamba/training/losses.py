"""What training minimises; entries without a label (NaN, or a negative class) do not count."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from torch_geometric.data import Data

from graphmamba.data.catalog import Level, LossName, Task
from graphmamba.errors import UserError
from graphmamba.nn.heads import pair_scores


@dataclass(frozen=True)
class Links:
    """Pairs of nodes with a label, of all graphs of a batch."""

    pairs: Int[Tensor, "2 pairs"]
    label: Float[Tensor, " pairs"]
    """1 for pairs that belong together, 0 for the others."""
    batch: Int[Tensor, " nodes"]
    """Graph of each node, ascending."""
    num_graphs: int
    known: Int[Tensor, "2 edges"] | None = None
    """Edges that the model sees, in one graph whose other edges are asked for: no competitors."""


Target = Int[Tensor, " rows"] | Float[Tensor, "rows outputs"] | Links


def target_of(graphs: Data, level: Level, batch: Int[Tensor, " nodes"], num_graphs: int) -> Target:
    """Take the labels out of a batch."""
    if level == "link":
        return Links(graphs.edge_label_index, graphs.edge_label.float(), batch, num_graphs)
    return graphs.y


Scalar = Float[Tensor, ""]


def binary_cross_entropy(
    logits: Float[Tensor, "rows outputs"], label: Float[Tensor, "rows outputs"]
) -> Scalar:
    """Mean over all labelled entries; each column is a yes-or-no question of its own."""
    _check_alike(logits, label)
    is_labelled = ~torch.isnan(label)
    losses = functional.binary_cross_entropy_with_logits(
        logits, label.masked_fill(~is_labelled, 0.0), reduction="none"
    )
    return _mean(losses, is_labelled)


def l1(prediction: Float[Tensor, "rows outputs"], target: Float[Tensor, "rows outputs"]) -> Scalar:
    """Mean absolute error over all entries with a target."""
    _check_alike(prediction, target)
    is_labelled = ~torch.isnan(target)
    return _mean((prediction - target.masked_fill(~is_labelled, 0.0)).abs(), is_labelled)


def cross_entropy(logits: Float[Tensor, "rows classes"], label: Int[Tensor, " rows"]) -> Scalar:
    """Mean over all labelled rows."""
    return _mean(_cross_entropies(logits, label), label >= 0)


def weighted_cross_entropy(
    logits: Float[Tensor, "rows classes"], label: Int[Tensor, " rows"]
) -> Scalar:
    """Weighted mean, a class the heavier the rarer it is in this batch."""
    weight = balanced_weights(label, logits.shape[1], _exact(logits))
    # a batch of one class has no weight at all, and nothing to balance
    total = weight.sum().clamp_min(torch.finfo(weight.dtype).tiny)
    return (weight * _cross_entropies(logits, label)).sum() / total


def weighted_binary_cross_entropy(
    logits: Float[Tensor, "rows 1"], label: Int[Tensor, " rows"]
) -> Scalar:
    """Two classes, one logit; unlike the form for many classes, divided by the number of rows."""
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
    """Distance of the inner products from 0 and 1 themselves, as Exphormer trains."""
    scores = pair_scores(embeddings, links.pairs)
    return l1(scores[:, None], links.label[:, None].to(_exact(scores)))


LOSSES: dict[LossName, Callable[..., Scalar]] = {
    "binary_cross_entropy": binary_cross_entropy,
    "l1": l1,
    "cross_entropy": cross_entropy,
    "weighted_cross_entropy": weighted_cross_entropy,
    "weighted_binary_cross_entropy": weighted_binary_cross_entropy,
    "link_cross_entropy": link_cross_entropy,
    "link_l1": link_l1,
}
ALIKE: tuple[tuple[LossName, ...], ...] = (
    ("binary_cross_entropy",),
    ("l1",),
    ("cross_entropy", "weighted_cross_entropy"),
    ("weighted_binary_cross_entropy",),
    ("link_cross_entropy", "link_l1"),
)
"""Losses that read the same predictions and labels, so that one can take another's place."""


def check_fits(argument: str, loss: LossName, task: Task) -> None:
    """Reject a loss that cannot read the labels of a task, or reads them as something else."""
    fitting = next(losses for losses in ALIKE if task.loss in losses)
    if loss not in fitting:
        listed = " or ".join(repr(name) for name in fitting)
        raise UserError(
            f"{argument} must be {listed} for a {task.level} task with labels of this kind, "
            f"got {loss!r}"
        )


def balanced_weights(
    label: Int[Tensor, " rows"], classes: int, dtype: torch.dtype = torch.float32
) -> Float[Tensor, " rows"]:
    """Weight of each row: the share of labelled rows that are of another class, 0 unlabelled."""
    is_labelled = (label >= 0).to(dtype)
    known = label.clamp_min(0)
    count = is_labelled.new_zeros(classes).index_add_(0, known, is_labelled)
    total = is_labelled.sum().clamp_min(1.0)
    return ((total - count) / total)[known] * is_labelled


def _check_alike(prediction: Tensor, target: Tensor) -> None:
    """Reject targets of another shape, which torch would spread over the predictions."""
    if prediction.shape != target.shape:
        raise UserError(
            f"target must have the shape of the prediction, {tuple(prediction.shape)}, "
            f"got {tuple(target.shape)}"
        )


def _exact(scores: Float[Tensor, "*shape"]) -> torch.dtype:
    """The type to add up in: that of the scores, float32 at least."""
    return torch.promote_types(scores.dtype, torch.float32)


def _cross_entropies(
    logits: Float[Tensor, "rows classes"], label: Int[Tensor, " rows"]
) -> Float[Tensor, " rows"]:
    return functional.cross_entropy(logits, label.clamp_min(0), reduction="none")


def _mean(losses: Float[Tensor, "*shape"], counts: Tensor) -> Scalar:
    """Average where `counts`; a sum and a quotient, since picking rows would wait for the GPU."""
    return (losses * counts).sum() / counts.sum().clamp_min(1)
