"""One training step: forward, backward and weight update, without waiting for the GPU."""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, distributed, nn
from torch.optim import Optimizer
from torch_geometric.data import Batch

from graphmamba.data.sampler import Ids
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize, StaticSizes
from graphmamba.data.store import GraphStore
from graphmamba.nn.model import GraphMamba
from graphmamba.training.cuda_graph import CapturedBatches, CapturedCall
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.ema import MovingAverage
from graphmamba.training.evaluate import (
    evaluating,
    labelled_batch,
    labelled_rows,
    labels_of,
    labels_per_graph,
)
from graphmamba.training.experiment import Experiment, Precision
from graphmamba.training.losses import Target

if TYPE_CHECKING:
    from graphmamba.training.update import FusedUpdate

Loss = Float[Tensor, ""]


class TrainStep:
    """Forward and backward pass of one or several batches, then the update of the weights.

    Graphs beyond the batch size are split into several batches (gradient accumulation). Gradients
    of the summed losses are added up in one buffer, over these batches and all processes, and
    divided by the number of all labels. The result is that of one joint batch, except for BatchNorm
    and for losses with class weights (`weighted_...`), which use the statistics of each batch.

    Args:
        model: On the store's device.
        optimizer: Of the model.
        store: Graphs, on the model's device.
        experiment: Loss, batch size and clipping.
        team: All processes; None for this one.
        precision: `bf16-mixed` for autocast to bfloat16.
        seed: Random seed of negative pairs.
        taken: Number of steps taken so far.
        average: Moving average that is updated after each step, or None.
    """

    def __init__(
        self,
        model: GraphMamba,
        optimizer: Optimizer,
        store: GraphStore,
        experiment: Experiment,
        team: ProcessGroup | None = None,
        *,
        precision: Precision = "32-true",
        seed: int = 0,
        taken: int = 0,
        average: MovingAverage | None = None,
    ) -> None:
        self._model, self._optimizer, self._average = model, optimizer, average
        self._store, self._team = store, team or ProcessGroup(device=store.device)
        self._level = experiment.dataset_info.task.level
        self._loss = experiment.objective().to(store.device)
        # further steps on one graph are no further graphs of a batch
        is_one = store.is_transductive and len(store) == 1
        self._size = 1 if is_one else experiment.train.batch_size
        self._clip = experiment.optim.max_grad_norm
        self._is_mixed = precision == "bf16-mixed"
        self._seed, self.taken = seed, taken
        self._labels = labels_per_graph(store, self._level, "train")
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._gradients = FlatGradients(self._parameters)
        self._own = torch.zeros(2, device=store.device)
        """The sum of the loss over the labels of this process, and their number."""
        self._last_loss = torch.zeros((), device=store.device)

    def step(self, ids: Ids) -> Loss:
        """Train on these graphs.

        Returns:
            The mean loss over the graphs of this process before the update, a new detached tensor
            on the device. It is not finite if the gradient is not, and 0 if no graph has a label.
        """
        self._gradients.clear()
        self._own.zero_()
        # A process without graphs takes part with a batch of none.
        for number, part in enumerate(ids.split(self._size)):
            self._add_batch(part, int(self._labels[part].sum()), number)
        if self._team.world > 1:
            distributed.all_reduce(self._gradients.flat)
        self._update()
        self.taken += 1
        return self._last_loss.clone()

    def warm_up(self) -> None:
        """Run one batch forward and backward, so that all is compiled; restores buffers."""
        ids = self._store.split_ids("train")[: self._size]
        with kept_buffers(self._model):
            graphs, target = self._first_batch(ids)
            loss = self._loss(self._predict(graphs), target)
            torch.autograd.grad(loss, self._parameters, allow_unused=True)
            with torch.no_grad(), evaluating(self._model):
                self._predict(graphs)

    def dry_run(self) -> None:
        """Run a step once per batch size, where batches have fixed sizes."""

    def _first_batch(self, ids: Ids) -> tuple[Batch, Target]:
        return labelled_batch(self._store, ids, self._level, (0,), "train")

    def _add_batch(self, ids: Ids, labels: int, number: int) -> None:
        """Add the gradients of a batch."""
        counters = self._seed, self.taken, self._team.rank, number
        graphs, target = labelled_batch(self._store, ids, self._level, counters, "train")
        self._backward(graphs, target, torch.tensor(float(labels), device=self._own.device))

    def _predict(self, graphs: Batch) -> Tensor:
        # A captured graph must not hold copies of weights from another one's cache.
        with torch.autocast(
            self._own.device.type, torch.bfloat16, self._is_mixed, cache_enabled=False
        ):
            return labelled_rows(self._model(graphs).float(), graphs)

    def _backward(self, graphs: Batch, target: Target, labels: Float[Tensor, ""]) -> None:
        output = self._predict(graphs)
        loss = self._loss(output, target) * labels
        gradients = torch.autograd.grad(loss, self._parameters, allow_unused=True)
        self._gradients.add(gradients, labels)
        if self._loss.is_standardized:
            loss = self._loss.reported(output.detach(), target) * labels
        self._own.add_(torch.stack([loss.detach(), labels]))

    def _update(self) -> None:
        """Divide by the labels, clip, and update the weights and their moving average."""
        flat = self._gradients.flat
        flat[:-1].div_(self._gradients.labels.clamp_min(1.0))
        norm = torch.linalg.vector_norm(flat[:-1])
        if self._clip:
            flat[:-1].mul_((self._clip / (norm + 1e-6)).clamp_max(1.0))
        self._optimizer.step()
        if self._average:
            self._average.update()
        # also without clipping: a non-finite gradient must be noticed
        loss = self._own[0] / self._own[1].clamp_min(1.0)
        self._last_loss.copy_(torch.where(norm.isfinite(), loss, torch.nan))


class CapturedStep(TrainStep):
    """The same step, captured as CUDA graphs, so that the CPU launches next to nothing.

    Batches are padded by a padding graph to one of a few sizes; norms, node orders and losses
    ignore it. One CUDA graph per size holds batch, forward and backward pass, another one the
    update. Gradients are summed over processes between the two.

    Args:
        *parts: As for `TrainStep`; the optimizer's learning rate is a tensor on the GPU.
        stream: CUDA stream of the capture; a new one if None.
        is_required: Whether a capture that fails ends the run.
        **others: As for `TrainStep`.
    """

    def __init__(
        self,
        *parts: Any,
        stream: torch.cuda.Stream | None = None,
        is_required: bool = False,
        **others: Any,
    ) -> None:
        super().__init__(*parts, **others)
        # graphs of an earlier run, which cycles keep alive, must be gone before others are captured
        gc.collect()
        stream = stream or torch.cuda.Stream(self._store.device)
        self._gather = StaticGather(self._store)
        ids = self._store.split_ids("train")
        self._sizes = StaticSizes.for_graphs(self._store, ids, self._size)
        self._batches = CapturedBatches(
            self._add_static_batch,
            self._sizes,
            stream,
            numbers=3,
            is_required=is_required,
        )
        self._captured_update = CapturedCall(self._apply, stream, is_required=is_required)

    def dry_run(self) -> None:
        """Run forward, backward pass and update once per batch size, for `collected_kernels`."""
        with kept_buffers(self._model):
            self._batches.dry_run()
            self._fused_update.launch(self._own, self._last_loss)

    def _first_batch(self, ids: Ids) -> tuple[Batch, Target]:
        slots = self._sizes.padded(ids.cpu()).to(self._store.device)
        graphs = self._gather.batch(slots, self._sizes.choose(ids.cpu()), by_source=True)
        return graphs, labels_of(graphs, self._level, (0,))

    def _add_batch(self, ids: Ids, labels: int, number: int) -> None:
        self._batches.run(ids, labels, self.taken, number)

    def _add_static_batch(
        self, ids: Int[Tensor, " slots"], size: StaticSize, numbers: Int[Tensor, " numbers"]
    ) -> None:
        labels, taken, number = numbers
        graphs = self._gather.batch(ids, size, by_source=True)
        target = labels_of(graphs, self._level, (self._seed, taken, self._team.rank, number))
        self._backward(graphs, target, labels.float())

    def _update(self) -> None:
        self._captured_update()

    def _apply(self) -> None:
        self._fused_update(self._own, self._last_loss)
        if self._average:
            self._average.update()

    @cached_property
    def _fused_update(self) -> "FusedUpdate":
        from graphmamba.training.update import FusedUpdate

        made = self._gradients
        return FusedUpdate(self._optimizer, made.parameters, made.parts, made.flat, self._clip)


@contextmanager
def kept_buffers(model: GraphMamba) -> Iterator[None]:
    """Restore buffers and random generators on exit."""
    buffers = [each.clone() for each in model.buffers()]
    device = next(model.parameters()).device
    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
    finally:
        with torch.no_grad():
            for buffer, before in zip(model.buffers(), buffers, strict=True):
                buffer.copy_(before)


ALIGNED = 4
"""Each gradient begins at a multiple of so many floats: 16 bytes, which a kernel loads at once."""


class FlatGradients:
    """One buffer with the gradients of all parameters that have one, and the number of labels.

    Which parameters have gradients is known once the first ones are added; the others are never
    updated.

    Args:
        parameters: Of the model; their `grad` becomes a view of the buffer.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._all, self.parameters = parameters, list[nn.Parameter]()
        self._flat: Float[Tensor, " numbers"] | None = None
        self.parts: list[Tensor] = []
        """Gradients of `parameters`, as views of the buffer."""
        self._has = [False] * len(parameters)

    @property
    def flat(self) -> Float[Tensor, " numbers"]:
        """All gradients end to end; the last entry is the number of labels."""
        assert self._flat is not None
        return self._flat

    @property
    def labels(self) -> Float[Tensor, ""]:
        """Number of labels."""
        return self.flat[-1]

    def add(self, gradients: Sequence[Tensor | None], labels: Float[Tensor, ""]) -> None:
        """Add the gradients of a loss that is summed over `labels` labels."""
        has = [each is not None for each in gradients]
        if self._flat is None:
            self._allocate(has)
        elif has != self._has:
            raise RuntimeError("the same parameters must have gradients at every step")
        torch._foreach_add_(self.parts, [each for each in gradients if each is not None])
        self.labels.add_(labels)

    def clear(self) -> None:
        """Set the buffer to zero."""
        if self._flat is not None:
            self._flat.zero_()

    def _allocate(self, has: list[bool]) -> None:
        self._has = has
        kept = [each for each, is_there in zip(self._all, has, strict=True) if is_there]
        self.parameters = kept
        rooms = [-(-each.numel() // ALIGNED) * ALIGNED for each in kept]
        self._flat = kept[0].new_zeros(sum(rooms) + 1)
        rows = self._flat[:-1].split(rooms)
        self.parts = [
            row[: each.numel()].view_as(each) for row, each in zip(rows, kept, strict=True)
        ]
        for parameter, part in zip(kept, self.parts, strict=True):
            parameter.grad = part
