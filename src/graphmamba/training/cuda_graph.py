"""Functions captured as CUDA graphs, one per batch size, and replayed by one launch."""

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.data.sampler import Ids
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize, StaticSizes
from graphmamba.data.store import GraphStore
from graphmamba.nn.model import GraphMamba
from graphmamba.training.experiment import Precision
from graphmamba.training.losses import Target


class CaptureError(RuntimeError):
    """Capturing failed although `cuda_graph` is `on`."""


class CapturedCall:
    """Calls a function, captured as a CUDA graph from the second call on.

    The first call runs eagerly, which compiles kernels and allocates persistent tensors; the second
    is captured and replayed. The function must read and write tensors at fixed addresses, and write
    results to tensors that it does not allocate. If capturing fails, it runs eagerly from then on,
    after one warning.

    Args:
        work: The function.
        stream: CUDA stream of the capture; may be shared with work that does not run concurrently.
        pool: Memory pool, shared by graphs that are not replayed concurrently.
        is_required: Whether a failed capture raises.
    """

    def __init__(
        self,
        work: Callable[[], None],
        stream: torch.cuda.Stream,
        pool: Any = None,
        *,
        is_required: bool = False,
    ) -> None:
        self._work, self._stream, self._is_required = work, stream, is_required
        self._pool = pool or torch.cuda.graph_pool_handle()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._calls = 0
        self.has_failed = False

    def __call__(self) -> None:
        """Call the function, or replay its graph."""
        self._calls += 1
        if self._calls > 1 and self._graph is None and not self.has_failed:
            self._capture()
        if self._graph is None:
            self._run()
        else:
            self._graph.replay()

    def _run(self) -> None:
        """Run eagerly, on the stream of the capture."""
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._work()
        torch.cuda.current_stream().wait_stream(self._stream)
        if self._calls == 1:
            # Nothing else runs on that stream: what its allocator holds back would be lost.
            torch.cuda.empty_cache()

    def _capture(self) -> None:
        graph = torch.cuda.CUDAGraph()
        why: str | None = None
        try:
            with (
                _kept_generator(self._stream.device),
                _without_collection(),
                # Other threads, such as those of the data, may call CUDA meanwhile.
                torch.cuda.graph(
                    graph, self._pool, self._stream, capture_error_mode="thread_local"
                ),
            ):
                self._work()
        except RuntimeError as error:
            why = str(error).partition("\n")[0]
        if why is None:
            self._graph = graph
            return
        # the graph must be gone before anything else is captured, and tracebacks hold it in cycles
        del graph
        gc.collect()
        self.has_failed = True
        if self._is_required:
            raise CaptureError(f"the step could not be captured: {why}")
        warnings.warn(
            f"the step could not be captured as a CUDA graph, and runs without: {why}", stacklevel=2
        )


class CapturedBatches:
    """Calls a function on batches, captured as one CUDA graph per batch size.

    Args:
        work: Called with the indices of the graphs on the GPU, the size of the batch, and the
            further arguments of `run`.
        sizes: Sizes that batches are padded to.
        stream: CUDA stream of the capture; may be shared with work that does not run concurrently.
        numbers: Number of further integer arguments.
        is_required: Whether a failed capture raises.
    """

    def __init__(
        self,
        work: Callable[[Int[Tensor, " slots"], StaticSize, Int[Tensor, " numbers"]], None],
        sizes: StaticSizes,
        stream: torch.cuda.Stream,
        *,
        numbers: int = 0,
        is_required: bool = False,
    ) -> None:
        self._work, self._sizes, self._stream = work, sizes, stream
        self._is_required = is_required
        self._slots = sizes.sizes[0].graphs
        self._inputs = torch.full(
            (self._slots + numbers,), -1, dtype=torch.int64, device=stream.device
        )
        self._calls: dict[StaticSize, CapturedCall] = {}
        self._pool = torch.cuda.graph_pool_handle()

    def run(self, ids: Ids, *numbers: int) -> StaticSize:
        """Call the function on these graphs; returns the size of their batch."""
        size = self._sizes.choose(ids)
        inputs = torch.cat([self._sizes.padded(ids), torch.tensor(numbers, dtype=torch.int64)])
        self._inputs.copy_(inputs.pin_memory(), non_blocking=True)
        if size not in self._calls:
            self._calls[size] = self._call_for(size)
        self._calls[size]()
        return size

    def dry_run(self) -> None:
        """Call the function once per size, on empty batches, for `collected_kernels`."""
        self._inputs.fill_(-1)
        ids, numbers = self._inputs[: self._slots], self._inputs[self._slots :]
        for size in self._sizes.sizes:
            self._work(ids, size, numbers)

    def _call_for(self, size: StaticSize) -> CapturedCall:
        ids, numbers = self._inputs[: self._slots], self._inputs[self._slots :]
        call = CapturedCall(
            lambda: self._work(ids, size, numbers),
            self._stream,
            self._pool,
            is_required=self._is_required,
        )
        # What failed for one size fails for all.
        call.has_failed = any(other.has_failed for other in self._calls.values())
        return call


@contextmanager
def _without_collection() -> Iterator[None]:
    """Disable garbage collection: freeing an old CUDA graph during a capture makes it fail."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _kept_generator(device: torch.device) -> Iterator[None]:
    """Restore the generator of the device if a capture fails, which leaves it unusable."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    generator = torch.cuda.default_generators[index]
    before = generator.get_state()
    try:
        yield
    except RuntimeError:
        torch.cuda.synchronize(device)
        generator.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
        generator.set_state(before)
        raise


class CapturedForward:
    """Predicts batches of a store; the model has to be in evaluation mode at every call.

    Args:
        model: On the store's device, for graphs or nodes.
        store: Graphs with labels, resident on the GPU.
        ids: The graphs, in batches of `batch_size` in this order.
        batch_size: Graphs per batch.
        precision: `bf16-mixed` for autocast to bfloat16.
        stream: CUDA stream of the capture; a new one if None.
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

    def dry_run(self) -> None:
        """Run once per batch size, on empty batches."""
        self._batches.dry_run()

    def predict(self, ids: Ids) -> tuple[Float[Tensor, "rows outputs"], Target]:
        """Return predictions and labels of these graphs, as new tensors."""
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
