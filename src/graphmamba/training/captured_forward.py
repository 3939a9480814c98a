"""Predictions for evaluation as CUDA graphs: a batch in one launch, all its line-ups included."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.sampler import Ids
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize, StaticSizes
from graphmamba.data.store import GraphStore
from graphmamba.nn.model import GraphMamba
from graphmamba.training.capture import CapturedBatches
from graphmamba.training.experiment import Precision
from graphmamba.training.losses import Target


class CapturedForward:
    """Predicts batches of a store; the model has to be in evaluation mode at every call.

    Args:
        model: On the store's device, for graphs or nodes.
        store: Graphs with labels, resident on the GPU.
        ids: Graphs that will be asked for, in batches of `batch_size` in this order.
        batch_size: Graphs at a time.
        precision: `bf16-mixed` computes in bfloat16 what bears it.
        stream: Where they are captured; a stream of their own if None.
    """

    def __init__(
        self,
        model: GraphMamba,
        store: GraphStore,
        ids: Ids,
        batch_size: int,
        precision: Precision = "32-true",
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self._model, self._gather = model, StaticGather(store)
        self._is_mixed = precision == "bf16-mixed"
        sizes = StaticSizes.for_batches(store, ids.split(batch_size))
        self._nodes = sizes.counts[:, 0]
        # One buffer for all sizes, as large as the largest needs it.
        largest = sizes.sizes[-1]
        is_graph = model.task.level == "graph"
        rows = largest.graphs + 1 if is_graph else max(size.nodes for size in sizes.sizes)
        self._prediction = torch.empty(rows, model.task.outputs, device=store.device)
        label = store.tables["graphs" if is_graph else "nodes"].columns["y"]
        self._label = torch.empty(
            (rows, *label.values.shape[1:]), dtype=label.dtype, device=store.device
        )
        self._batches = CapturedBatches(
            self._predict, sizes, stream or torch.cuda.Stream(store.device)
        )

    def predict(self, ids: Ids) -> tuple[Float[Tensor, "rows outputs"], Target]:
        """Return the predictions for these graphs and their labels, in tensors of their own."""
        self._batches.run(ids)
        is_graph = self._model.task.level == "graph"
        rows = len(ids) if is_graph else int(self._nodes[ids.numpy()].sum())
        return self._prediction[:rows].clone(), self._label[:rows].clone()

    def _predict(self, ids: Int[Tensor, " slots"], size: StaticSize, _: Tensor) -> None:
        graphs = self._gather.batch(ids, size, by_source=True)
        with (
            torch.no_grad(),
            torch.autocast("cuda", torch.bfloat16, self._is_mixed, cache_enabled=False),
        ):
            prediction = self._model(graphs)
        rows = prediction.shape[0]
        self._prediction[:rows].copy_(prediction)
        self._label[:rows].copy_(graphs.y)
