"""One way to score a split, for a run and for whoever wants to have the run's scores again."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from graphmamba.data.sampler import Ids
from graphmamba.data.store import GraphStore
from graphmamba.environment import resolve_device
from graphmamba.nn.model import GraphMamba
from graphmamba.training.compile import compile_parts, is_captured
from graphmamba.training.cuda_graph import CapturedForward
from graphmamba.training.distributed import Team, rounded_products
from graphmamba.training.evaluate import evaluate
from graphmamba.training.experiment import Experiment, Precision
from graphmamba.training.trained import Trained


@dataclass
class Scorer:
    """Scores splits of a store: same weights, same device and same batches give the same bits.

    Line-ups follow the seed in the model's weights and the number of each graph, and batches the
    order of the split, so that nothing is drawn from torch's generators.
    """

    model: GraphMamba
    """On the store's device."""
    store: GraphStore
    """Graphs with the columns that the model reads."""
    experiment: Experiment
    """Loss and batch size."""
    precision: Precision = "32-true"
    is_captured: bool = False
    """Whether batches run as CUDA graphs, whose padded shapes round otherwise."""
    team: Team | None = None
    """All processes; None for this one."""
    tf32: bool | None = None
    """Whether products on a GPU round to TF32; None as they do wherever it is asked to score."""
    _forwards: dict[str, CapturedForward] = field(default_factory=dict, init=False, repr=False)
    _stream: torch.cuda.Stream | None = field(default=None, init=False, repr=False)

    def score(
        self, split: str | Ids, on_batch: Callable[[int, int], None] | None = None
    ) -> dict[str, float]:
        """Return `loss`, then the task's metrics, the one to choose by first.

        Args:
            split: `train`, `validation` or `test`, or the graphs themselves.
            on_batch: Told how many batches are done, and of how many.
        """
        with rounded_products(self.store.device, self.tf32):
            forward = self._forward(split) if self.is_captured else None
            return evaluate(
                self.model,
                self.store,
                split,
                batch_size=self.experiment.recipe.batch_size,
                loss=self.experiment.loss,
                precision=self.precision,
                team=self.team,
                on_batch=on_batch,
                predict=forward.predict if forward else None,
            )

    def _forward(self, split: str | Ids) -> CapturedForward:
        """Capture a split once; graphs that have no name are captured anew."""
        if isinstance(split, str) and split in self._forwards:
            return self._forwards[split]
        ids = self.store.split_ids(split) if isinstance(split, str) else split
        size = self.experiment.recipe.batch_size
        self._stream = self._stream or torch.cuda.Stream(self.store.device)
        forward = CapturedForward(self.model, self.store, ids, size, self.precision, self._stream)
        if isinstance(split, str):
            self._forwards[split] = forward
        return forward


def scorer_of(
    trained: Trained,
    store: GraphStore,
    device: torch.device,
    *,
    batch_size: int | None = None,
    precision: Precision | None = None,
) -> Scorer:
    """Make a scorer that computes as the run of a trained model did.

    Whatever the graphs are, the model's own task and recipe say how it is scored.

    Args:
        trained: The model, which is moved to the device.
        store: Graphs with the columns that it reads.
        device: Where to compute.
        batch_size: Graphs at a time; None for that of training.
        precision: None for that of training.
    """
    experiment, options = trained.experiment, trained.options
    if batch_size is not None:
        recipe = replace(experiment.recipe, batch_size=batch_size)
        experiment = replace(experiment, recipe=recipe)
    if options.compile == "on" and device.type == resolve_device(options.device).type:
        compile_parts(trained.model)
    return Scorer(
        trained.model.to(device),
        store.to(device),
        experiment,
        precision or options.precision,
        is_captured(options, device, options.devices * options.nodes),
        tf32=options.tf32,
    )
