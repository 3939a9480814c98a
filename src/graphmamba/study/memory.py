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
"""What the peak is, by the kind of device. On a CPU it is the bytes of all tensors alive at the
same time, model and batch included: the same on every machine, but blind to what an operator takes
for itself while it runs."""
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


class OverCapError(MemoryError):
    """More live tensors than the cap allows, on a device that does not enforce it by itself."""


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
    """Have a GPU refuse to allocate more than the cap; on a CPU `peak_bytes` looks after it."""
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
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()


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
        resident: Tensors that are there before the step and stay; a GPU knows them by itself.
        cap: Bytes beyond which a step on a CPU is stopped.

    Raises:
        OverCapError: The step went over the cap on a CPU.
        torch.OutOfMemoryError: The GPU had no more, or its own cap was reached (see `capped`).
    """
    if device.type == "cuda":
        release(device)
        torch.cuda.reset_peak_memory_stats(device)
        step()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device)
    live = LiveStorage(cap)
    for tensor in resident:
        live.follow(tensor)
    with live:
        step()
    return live.peak


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
        key, size = storage._cdata, storage.nbytes()
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
