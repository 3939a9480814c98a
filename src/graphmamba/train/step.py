"""One step of training: graphs in, weights changed, the loss out, and no wait for the GPU."""

import math
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.data.sampler import Ids
from graphmamba.data.store import GraphStore
from graphmamba.task.losses import LOSSES
from graphmamba.train.average import WeightAverage
from graphmamba.train.experiment import Experiment
from graphmamba.train.labels import labelled_batch, labels_per_graph
from graphmamba.train.team import Team

Loss = Float[Tensor, ""]


@runtime_checkable
class TrainStep(Protocol):
    """What the loop asks of a step, however it is computed."""

    def step(self, ids: Ids) -> Loss:
        """Train on these graphs.

        Returns:
            The mean loss over this process's graphs before the step: a tensor of its own on the
            device, detached, which later steps leave alone. It is not finite where the gradient
            was not, and 0 where no graph has a label.
        """


class PlainStep:
    """Forward, backward, clip, update, one batch after another.

    Graphs beyond the batch size are split up and their gradients added, each part weighed by its
    labels: as if they had been one batch, but for norms over a batch, and for losses that weigh
    classes (`weighted_...`), whose weights are those of each part.

    Args:
        fabric: Lightning's Fabric, which `model` and `optimizer` were set up by.
        model: As Fabric wraps it.
        optimizer: As Fabric wraps it.
        store: Graphs, on the model's device.
        experiment: Loss, batch size and clipping.
        team: All processes.
        seed: What wrong pairs are drawn from.
        taken: Steps made before.
        average: What follows the weights after each step; None for nothing.
    """

    def __init__(  # noqa: PLR0913
        self,
        fabric: Any,
        model: Any,
        optimizer: Any,
        store: GraphStore,
        experiment: Experiment,
        team: Team,
        *,
        seed: int = 0,
        taken: int = 0,
        average: WeightAverage | None = None,
    ) -> None:
        self._fabric, self._model, self._optimizer = fabric, model, optimizer
        self._store, self._team, self._seed = store, team, seed
        self._level = experiment.data.task.level
        self._loss = LOSSES[experiment.loss]
        self._size, self._clip = experiment.recipe.batch_size, experiment.recipe.clip
        self._labels = labels_per_graph(store, self._level)
        self.taken, self._average = taken, average

    def step(self, ids: Ids) -> Loss:
        """Train on these graphs; see `TrainStep`."""
        self._optimizer.zero_grad()
        parts = ids.split(self._size)
        share = self._share(ids)
        losses = []
        for number, part in enumerate(parts):
            is_last = number == len(parts) - 1
            with self._fabric.no_backward_sync(self._model, enabled=not is_last):
                loss = self._part_loss(part, number) * self._weight(part, ids)
                self._fabric.backward(loss if share is None else loss * share)
            losses.append(loss.detach())
        whole = torch.stack(losses).sum()
        # where nothing is clipped as well: a gradient that is no number must be seen
        norm = self._fabric.clip_gradients(
            self._model, self._optimizer, max_norm=self._clip or math.inf, error_if_nonfinite=False
        )
        whole = torch.where(norm.isfinite(), whole, torch.nan)
        self._optimizer.step()
        if self._average:
            self._average.update()
        self.taken += 1
        return whole

    def _part_loss(self, ids: Ids, number: int) -> Loss:
        counters = (self._seed, self.taken, self._team.rank, number)
        graphs, target = labelled_batch(self._store, ids, self._level, counters)
        return self._loss(self._model(graphs), target)

    def _weight(self, part: Ids, ids: Ids) -> float:
        """Share of the part in its step."""
        return float(self._labels[part].sum()) / max(float(self._labels[ids].sum()), 1.0)

    def _share(self, ids: Ids) -> Tensor | None:
        """How much more labels than the mean process this one has, which averages its gradient."""
        if self._team.world == 1:
            return None
        own = float(self._labels[ids].sum())
        total = self._team.sum(torch.full((), own, dtype=torch.float64, device=self._team.device))
        return (own * self._team.world / total.clamp_min(1.0)).float()
