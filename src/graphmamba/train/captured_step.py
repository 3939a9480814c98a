"""The training step as CUDA graphs: batch, forward, backward, clipping and update in one launch."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from jaxtyping import Int
from torch import Tensor
from torch.optim import Optimizer

from graphmamba.aside import Aside, with_aside
from graphmamba.data.sampler import Ids
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize, StaticSizes
from graphmamba.data.store import GraphStore
from graphmamba.encode.forgetting import LEAST_BYTES
from graphmamba.task.losses import LOSSES
from graphmamba.task.model import GraphMamba
from graphmamba.task.target import target_of
from graphmamba.train.average import WeightAverage
from graphmamba.train.capture import CapturedBatches, CaptureStreams
from graphmamba.train.experiment import Experiment
from graphmamba.train.options import Precision, RunOptions
from graphmamba.train.step import Loss

if TYPE_CHECKING:
    from graphmamba.train.fused_update import FusedUpdate

MOST_HELD = 0
"""Bytes that gradients of weights may hold back in large batches, which are short of memory."""


def why_not_captured(
    experiment: Experiment, options: RunOptions, device: torch.device, processes: int
) -> str | None:
    """Say why such a run cannot have its step captured; None if it can."""
    hindrances = (
        (device.type != "cuda", f"needs a GPU, and the run is on '{device.type}'"),
        (processes > 1, f"is for one process, and there are {processes}"),
        (options.accumulate > 1, f"is one batch, and accumulate is {options.accumulate}"),
        (options.compile, "takes the place of compile, which is on"),
        (experiment.data.task.level == "link", "cannot draw the wrong pairs of a link task"),
        (find_spec("triton") is None, "needs Triton, which is not installed"),
    )
    return next((why for hinders, why in hindrances if hinders), None)


def is_captured(
    experiment: Experiment, options: RunOptions, device: torch.device, processes: int
) -> bool:
    """Whether such a run has its step, and its evaluation, captured."""
    return (
        options.fast != "off" and why_not_captured(experiment, options, device, processes) is None
    )


class CapturedStep:
    """A step that costs the CPU next to nothing; the same numbers as `PlainStep`'s but for noise.

    Batches are padded to a few sizes by a ghost graph, which norms, orders and losses pass over.

    Args:
        model: On the store's device.
        optimizer: Of the model, with a learning rate that is a tensor there, and capturable.
        store: Graphs, resident on the GPU.
        experiment: Loss, batch size and clipping.
        precision: `bf16-mixed` computes in bfloat16 what bears it.
        streams: Where it is captured; on streams of its own if None.
        average: What follows the weights after each step; None for nothing.
    """

    def __init__(
        self,
        model: GraphMamba,
        optimizer: Optimizer,
        store: GraphStore,
        experiment: Experiment,
        *,
        precision: Precision = "32-true",
        streams: CaptureStreams | None = None,
        average: WeightAverage | None = None,
    ) -> None:
        self._model, self._optimizer, self._average = model, optimizer, average
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._gather = StaticGather(store)
        self._level = experiment.data.task.level
        self._loss, self._clip = LOSSES[experiment.loss], experiment.recipe.clip
        self._is_mixed = precision == "bf16-mixed"
        self._last_loss = torch.zeros((), device=store.device)
        streams = streams or CaptureStreams.on(store.device)
        self._aside, self._scarce = Aside(streams.asides), Aside(streams.asides, MOST_HELD)
        self._node_bytes = self._last_loss.element_size() * experiment.model.channels
        size = experiment.recipe.batch_size
        sizes = StaticSizes.for_graphs(store, store.split_ids("train"), size)
        self._update = _fused_update(optimizer, self._parameters, self._clip)
        self._batches = CapturedBatches(self._train_on, sizes, streams, self._update.fill)

    def step(self, ids: Ids) -> Loss:
        """Train on these graphs; see `TrainStep`."""
        self._batches.run(ids)
        return self._last_loss.clone()

    def _train_on(self, ids: Int[Tensor, " slots"], size: StaticSize) -> None:
        graphs = self._gather.batch(ids, size, by_source=True)
        target = target_of(graphs, self._level, graphs.batch, size.graphs + 1)
        self._optimizer.zero_grad(set_to_none=True)
        is_small = self._node_bytes * size.nodes < LEAST_BYTES
        aside = self._aside if is_small else self._scarce
        with (
            # A captured graph must not hold copies of weights from another one's cache.
            torch.autocast("cuda", torch.bfloat16, self._is_mixed, cache_enabled=False),
            with_aside(aside),
        ):
            loss = self._loss(self._model(graphs), target)
        loss.backward()
        aside.join(each.grad for each in self._parameters if each.grad is not None)
        norm = self._update.run()
        if self._average:
            self._average.update()
        # Nothing if the norm is finite; else the loss is no number either, and the run ends.
        torch.add(loss.detach(), norm * 0.0, out=self._last_loss)


def _fused_update(optimizer: Optimizer, parameters: Sequence[Tensor], clip: float) -> "FusedUpdate":
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.train.fused_update import FusedUpdate

    return FusedUpdate(optimizer, parameters, clip)
