"""Most memory that a training step holds at once: of the GPU, or of all tensors on a CPU."""

import gc
import re
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from graphmamba.errors import UserError

MEASURES = {
    "cuda": "torch.cuda.max_memory_allocated",
    "cpu": "live tensor storage",
}
"""What the peak is, by the kind of device; model and batch are in it, and nothing else that was
there before the step. On a CPU it is the bytes of all tensors alive at the same time: the same on
every machine, but blind to what an operator takes for itself while it runs."""
MOST_HELD = 256 * 2**20
"""Bytes of a GPU that may be held before a measurement: workspaces of cuBLAS, which stay."""
GRANULE = 512
"""Bytes that PyTorch's allocator of a GPU rounds up to."""
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


class OverCapError(MemoryError):
    """More live tensors than the cap allows, on a device that does not enforce it by itself."""


class HeldMemoryError(RuntimeError):
    """Memory of an earlier measurement is still there, so that running out of it means nothing."""


OUT_OF_MEMORY = (torch.OutOfMemoryError, MemoryError)
"""How running out of memory, or over the cap, looks from outside."""


def parse_bytes(argument: str, text: str) -> int:
    """Read a size such as 24GB or 512MiB."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]+)", text.strip())
    unit = found.group(2).upper() if found else ""
    if found is None or unit not in UNITS or not float(found.group(1)):
        raise UserError(f"{argument} must be a size such as 24GB or 512MiB, got {text!r}")
    return int(float(found.group(1)) * UNITS[unit])


@contextmanager
def capped(device: torch.device, cap: int | None) -> Iterator[None]:
    """Have a GPU reject to allocate more than the cap; on a CPU `peak_bytes` looks after it."""
    if device.type != "cuda" or cap is None:
        yield
        return
    # This function takes no device without a number.
    number = torch.cuda.current_device() if device.index is None else device.index
    whole = torch.cuda.get_device_properties(number).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, cap / whole), number)
    try:
        yield
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, number)


@contextmanager
def settled() -> Iterator[None]:
    """Have the collector pass over what is there already, mostly modules: `release` is quick then.

    A full collection of them takes as long as many steps, and is made before every peak.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def release(device: torch.device) -> None:
    """Give back what nobody refers to any more, as after running out of memory."""
    gc.collect()
    # What a backward pass that broke off had still to do waits in autograd's queue, with its graph,
    # for the next pass on this device, which drops it first.
    torch.zeros((), device=device, requires_grad=True).neg().backward()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


def released_bytes(device: torch.device) -> int:
    """Give back what can be, and return what is held on a GPU all the same; 0 on a CPU.

    Raises:
        HeldMemoryError: It is more than `MOST_HELD`.
    """
    release(device)
    held = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
    if held > MOST_HELD:
        raise HeldMemoryError(
            f"{held:,} bytes are held on {device} before the measurement, and {MOST_HELD:,} may "
            "be: the same command resumes in a new process"
        )
    return held


def peak_bytes(
    step: Callable[[], object],
    device: torch.device,
    resident: Iterable[Tensor] = (),
    cap: int | None = None,
) -> int:
    """Run a step and return the most memory that was held at once, as `MEASURES` says.

    Args:
        step: What is measured.
        device: Where it runs.
        resident: Tensors that are there before the step and stay. What else is there, such as
            other batches, is not in the peak.
        cap: Bytes beyond which a step on a CPU is stopped.

    Raises:
        OverCapError: The step went over the cap on a CPU.
        torch.OutOfMemoryError: The GPU had no more, or its own cap was reached (see `capped`).
    """
    if device.type == "cuda":
        release(device)
        others = torch.cuda.memory_allocated(device) - _allocated(resident)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - max(0, others)
    live = LiveStorage(cap)
    for tensor in resident:
        live.follow(tensor)
    with live:
        step()
    return live.peak


def _allocated(tensors: Iterable[Tensor]) -> int:
    """Bytes of a GPU that tensors take, each storage once."""
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in tensors}
    return sum(-(-each.nbytes() // GRANULE) * GRANULE for each in storages.values())


class LiveStorage(TorchDispatchMode):
    """Follows the bytes of all tensors that operators return, until the last view of them dies.

    Args:
        cap: Bytes beyond which an operator raises; None for no end.
    """

    def __init__(self, cap: int | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now, self.peak, self.cap = 0, 0, cap
        self._known: set[int] = set()

    def follow(self, tensor: Tensor) -> None:
        """Count a tensor's storage, once, as long as it lives."""
        storage = tensor.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if key in self._known or not size:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._forget, key, size)

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator and count what it returns."""
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self.follow(value)
        if self.cap is not None and self.now > self.cap:
            raise OverCapError(f"{self.now:,} bytes are more than the cap of {self.cap:,}")
        return out
