"""BatchNorm statistics recomputed before each evaluation (`train.recalibrate_batch_norm`)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.sampler import Ids
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize, StaticSizes
from graphmamba.data.store import GraphStore
from graphmamba.nn.model import GraphMamba
from graphmamba.nn.norm import norms_of
from graphmamba.training.cuda_graph import CapturedBatches
from graphmamba.training.evaluate import labelled_batch
from graphmamba.training.experiment import Experiment, Precision


class BatchNormRecalibration:
    """Sets the statistics of all BatchNorms to their mean over some training batches.

    Running statistics follow the last few batches, whose weights change from step to step. If some
    batches have far larger embeddings than others, as with unnormalised inputs, scores fluctuate
    from epoch to epoch.

    The batches are the same at each call and run in training mode, with dropout. Channels whose
    statistics are not finite in a batch skip that batch; if they never are, the old statistics
    stay. Counters and random generators are restored, so training is not affected.

    Args:
        model: On the store's device.
        store: Graphs with the columns that the model reads.
        experiment: Batch size and number of batches, at least one.
        seed: Random seed of the batches.
        precision: `bf16-mixed` for autocast to bfloat16.
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
        self._level = experiment.dataset_info.task.level
        self._is_mixed = precision == "bf16-mixed"
        self._norms = norms_of(model)
        self._taken = [_Taken(norm) for norm in self._norms]
        self._counters = [each for each in model.buffers() if not each.is_floating_point()]
        self.batches = _drawn(
            store, experiment.train.batch_size, experiment.train.recalibrate_batch_norm, seed
        )
        self._captured = self._capture() if is_captured else None

    @torch.no_grad()
    def take(self) -> None:
        """Run all batches and set the statistics."""
        counters = [each.clone() for each in self._counters]
        for each in self._taken:
            each.begin()
        with self._seen_as_in_training():
            for number, ids in enumerate(self.batches):
                if self._captured:
                    self._captured.run(ids)
                else:
                    self._see(labelled_batch(self._store, ids, self._level, (number,))[0])
        for each in self._taken:
            each.end()
        torch._foreach_copy_(self._counters, counters)

    def dry_run(self) -> None:
        """Run once per captured batch size, for `collected_kernels`; the statistics are lost."""
        if self._captured:
            with self._seen_as_in_training():
                self._captured.dry_run()

    def _capture(self) -> CapturedBatches:
        gather, sizes = (
            StaticGather(self._store),
            StaticSizes.for_batches(self._store, self.batches),
        )

        def see(ids: Int[Tensor, " slots"], size: StaticSize, _: Tensor) -> None:
            self._see(gather.batch(ids, size, by_source=True))

        return CapturedBatches(see, sizes, torch.cuda.Stream(self._store.device))

    @torch.no_grad()
    def _see(self, graphs: object) -> None:
        for each in self._taken:
            each.mark()
        kind = self._store.device.type
        with torch.autocast(kind, torch.bfloat16, self._is_mixed, cache_enabled=False):
            self._model(graphs)
        for each in self._taken:
            each.add()

    @contextmanager
    def _seen_as_in_training(self) -> Iterator[None]:
        """Training mode with momentum 1: running statistics are those of the last batch."""
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


class _Taken:
    """Sum of the batch statistics of one norm, per channel.

    A norm does not update a channel whose batch statistics are not finite. To detect this, its
    variance is changed slightly before each batch: too little to matter for a batch of one row,
    which is normalised with it, but to a value that no batch has by chance.
    """

    def __init__(self, norm: torch.nn.BatchNorm1d) -> None:
        mean, variance = norm.running_mean, norm.running_var
        assert mean is not None
        assert variance is not None
        self._own = mean, variance
        self._kept = torch.zeros_like(mean), torch.zeros_like(variance)
        self._sums = torch.zeros_like(mean), torch.zeros_like(variance)
        self._mark, self._count = torch.zeros_like(variance), torch.zeros_like(variance)

    def begin(self) -> None:
        for own, kept, total in zip(self._own, self._kept, self._sums, strict=True):
            # 0 times NaN would be NaN.
            kept.copy_(own.nan_to_num(0.0, 0.0, 0.0))
            total.zero_()
        self._mark.copy_((self._kept[1] * (1 + 1e-6) + 1e-12).nan_to_num())
        self._count.zero_()

    def mark(self) -> None:
        self._own[0].copy_(self._kept[0])
        self._own[1].copy_(self._mark)

    def add(self) -> None:
        is_seen = self._own[1] != self._mark
        for own, total in zip(self._own, self._sums, strict=True):
            total.add_(torch.where(is_seen, own, 0.0))
        self._count += is_seen

    def end(self) -> None:
        for own, kept, total in zip(self._own, self._kept, self._sums, strict=True):
            own.copy_(torch.where(self._count > 0, total / self._count, kept))


def _drawn(store: GraphStore, size: int, count: int, seed: int) -> Sequence[Ids]:
    """Sample full batches of training graphs; one smaller batch if there are too few graphs."""
    ids = store.split_ids("train").cpu()
    ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(seed))]
    whole = max(len(ids) // size, 1)
    return ids.split(size)[: min(count, whole)]
