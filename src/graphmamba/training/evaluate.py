"""Scores of whole splits, to the last bit the same whatever the number of processes."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.checks import check_least
from graphmamba.data.catalog import LossName
from graphmamba.data.sampler import Ids
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.nn.model import GraphMamba
from graphmamba.training.distributed import Team
from graphmamba.training.experiment import Precision
from graphmamba.training.labels import labelled_batch, labels_per_graph
from graphmamba.training.losses import LOSSES, Target, check_fits
from graphmamba.training.metrics import METRICS


class MeanLoss:
    """Mean of the batches' losses, weighed by their labels; a metric like any other.

    It is the loss of all graphs in one batch, unless the loss weighs classes by how often a batch
    has them. Without any label it is NaN.
    """

    def __init__(self) -> None:
        self._batches: list[Float[Tensor, "1 2"]] = []

    def update(self, loss: Float[Tensor, ""], labels: int) -> None:
        """Take in one batch."""
        weighed = torch.stack([loss.detach(), torch.full_like(loss, labels)])
        self._batches.append(weighed.double()[None])

    def state(self) -> Float[Tensor, "batches 2"]:
        """Loss and weight of each batch."""
        return torch.cat(self._batches) if self._batches else torch.zeros(0, 2, dtype=torch.float64)

    def merge(self, states: Sequence[Float[Tensor, "_ 2"]]) -> None:
        """Take the batches of all states."""
        self._batches = list(states)

    def compute(self) -> float:
        """Average over the batches, rounded once."""
        losses, labels = self.state().cpu().T
        total = math.fsum(labels.tolist())
        return math.fsum((losses * labels).tolist()) / total if total else math.nan


def evaluate(  # noqa: PLR0913
    model: GraphMamba,
    store: GraphStore,
    split: str | Ids,
    *,
    batch_size: int = 128,
    loss: LossName | None = None,
    precision: Precision = "32-true",
    team: Team | None = None,
    on_batch: Callable[[int, int], None] | None = None,
    predict: Callable[[Ids], tuple[Float[Tensor, "_ _"], Target]] | None = None,
) -> dict[str, float]:
    """Score a model on a split: `loss`, then the task's metrics, the one to choose by first.

    The model is put into evaluation mode for the time, so that random line-ups are averaged over
    as its order asks, and draws nothing from torch's generators.

    Args:
        model: On the store's device.
        store: Graphs with the columns that the model reads.
        split: `train`, `validation` or `test`, or the graphs themselves.
        batch_size: Graphs at a time.
        loss: Which of the losses that fit the task to report; None takes the task's own.
        precision: `bf16-mixed` computes in bfloat16 what bears it.
        team: All processes; each takes every so many of the batches, the same ones as a single
            process would make.
        on_batch: Told how many batches are done, and of how many.
        predict: What predicts a batch in the model's place, and gives its labels, such as
            `CapturedForward.predict`.
    """
    check_least("batch_size", batch_size, 1)
    team = team or Team(device=store.device)
    ids = store.split_ids(split) if isinstance(split, str) else split
    if not len(ids):
        raise UserError(f"split must hold graphs, got none in '{split}'")
    task, name = model.task, loss or model.task.loss
    check_fits("loss", name, task)
    metric, mean_loss = METRICS[task.metric](task), MeanLoss()
    counts = labels_per_graph(store, task.level)
    batches = list(enumerate(ids.cpu().split(batch_size)))[team.rank :: team.world]
    is_mixed = precision == "bf16-mixed"
    with torch.no_grad(), evaluating(model):
        for done, (number, chosen) in enumerate(batches, start=1):
            if predict is not None:
                prediction, target = predict(chosen)
            else:
                graphs, target = labelled_batch(store, chosen, task.level, (number, int(chosen[0])))
                with torch.autocast(store.device.type, torch.bfloat16, enabled=is_mixed):
                    prediction = model(graphs).float()
            metric.update(prediction, target)
            mean_loss.update(LOSSES[name](prediction, target), int(counts[chosen].sum()))
            if on_batch:
                on_batch(done, len(batches))
    metric.merge(team.gather(metric.state()))
    mean_loss.merge(team.gather(mean_loss.state()))
    return {"loss": mean_loss.compute(), **metric.compute()}


@contextmanager
def evaluating(model: GraphMamba) -> Iterator[None]:
    """Put a model into evaluation mode for the time, whatever happens."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
