"""Statistics of norms that are taken anew before a model is scored."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.sampler import Ids
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize, StaticSizes
from graphmamba.data.store import GraphStore
from graphmamba.encode.norm import norms_of
from graphmamba.task.model import GraphMamba
from graphmamba.train.capture import CapturedBatches, CaptureStreams
from graphmamba.train.experiment import Experiment
from graphmamba.train.labels import labelled_batch
from graphmamba.train.options import Precision


class FreshStatistics:
    """Gives all norms of a model the mean of the statistics of some batches of training graphs.

    Running statistics follow the batches of the last few steps, made by weights that change from
    step to step. Where few batches have rows that are far larger than those of the others, as
    Mamba makes them of raw coordinates, they follow these, and scores swing from epoch to epoch.

    The batches are the same at each call, and seen as in training, dropout included. Counters and
    generators are put back, so that training goes on as if nothing had happened.

    Args:
        model: On the store's device.
        store: Graphs with the columns that the model reads.
        experiment: The size of a batch and how many are seen, at least one.
        seed: What the batches are drawn by.
        precision: `bf16-mixed` computes in bfloat16 what bears it.
        is_captured: Whether batches run as CUDA graphs.
    """

    def __init__(
        self,
        model: GraphMamba,
        store: GraphStore,
        experiment: Experiment,
        *,
        seed: int = 0,
        precision: Precision = "32-true",
        is_captured: bool = False,
    ) -> None:
        self._model, self._store = model, store
        self._level = experiment.data.task.level
        self._is_mixed = precision == "bf16-mixed"
        self._norms = norms_of(model)
        self._statistics = [each for norm in self._norms for each in _statistics_of(norm)]
        self._sums = [torch.zeros_like(each) for each in self._statistics]
        self._counters = [each for each in model.buffers() if not each.is_floating_point()]
        self.batches = _drawn(
            store, experiment.recipe.batch_size, experiment.recipe.statistics, seed
        )
        self._captured = self._capture() if is_captured else None

    @torch.no_grad()
    def take(self) -> None:
        """Look at all batches, and leave the statistics in the norms."""
        counters = [each.clone() for each in self._counters]
        torch._foreach_zero_(self._sums)
        for each in self._statistics:
            # A share of nothing of what is no number would be none.
            each.nan_to_num_(0.0, 0.0, 0.0)
        with self._seen_as_in_training():
            for number, ids in enumerate(self.batches):
                if self._captured:
                    self._captured.run(ids)
                else:
                    self._see(labelled_batch(self._store, ids, self._level, (number,))[0])
        torch._foreach_copy_(self._statistics, torch._foreach_div(self._sums, len(self.batches)))
        torch._foreach_copy_(self._counters, counters)

    def _capture(self) -> CapturedBatches:
        gather, sizes = (
            StaticGather(self._store),
            StaticSizes.for_batches(self._store, self.batches),
        )

        def see(ids: Int[Tensor, " slots"], size: StaticSize) -> None:
            self._see(gather.batch(ids, size, by_source=True))

        return CapturedBatches(see, sizes, CaptureStreams.on(self._store.device))

    @torch.no_grad()
    def _see(self, graphs: object) -> None:
        kind = self._store.device.type
        with torch.autocast(kind, torch.bfloat16, self._is_mixed, cache_enabled=False):
            self._model(graphs)
        torch._foreach_add_(self._sums, self._statistics)

    @contextmanager
    def _seen_as_in_training(self) -> Iterator[None]:
        """Let norms take the statistics of each batch as they are, for the time."""
        was_training, device = self._model.training, self._store.device
        momenta = [norm.momentum for norm in self._norms]
        self._model.train()
        for norm in self._norms:
            norm.momentum = 1.0
        try:
            with torch.random.fork_rng([device] if device.type == "cuda" else []):
                yield
        finally:
            for norm, momentum in zip(self._norms, momenta, strict=True):
                norm.momentum = momentum
            self._model.train(was_training)


def _statistics_of(norm: torch.nn.BatchNorm1d) -> tuple[Tensor, Tensor]:
    mean, variance = norm.running_mean, norm.running_var
    assert mean is not None
    assert variance is not None
    return mean, variance


def _drawn(store: GraphStore, size: int, count: int, seed: int) -> Sequence[Ids]:
    """Draw whole batches of training graphs; one of all where there are fewer than make one."""
    ids = store.split_ids("train").cpu()
    ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))]
    whole = max(len(ids) // size, 1)
    return ids.split(size)[: min(count, whole)]
