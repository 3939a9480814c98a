"""Processes and devices of a run: starting them, and communication between them."""

import atexit
import gc
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, distributed, nn

from graphmamba.data.store import GraphStore
from graphmamba.environment import resolve_device
from graphmamba.errors import ElsewhereError, UserError
from graphmamba.training.experiment import RunOptions

CPU = torch.device("cpu")


@dataclass(frozen=True)
class ProcessGroup:
    """The processes of a run; a single process needs no communication."""

    rank: int = 0
    world: int = 1
    device: torch.device = CPU

    @property
    def is_first(self) -> bool:
        """Whether this process reports and writes files."""
        return self.rank == 0

    def gather(self, tensor: Tensor) -> list[Tensor]:
        """Tensors of all processes, by rank; they may differ in their number of rows."""
        if self.world == 1:
            return [tensor]
        own = tensor.detach().to(self.device).contiguous()
        rows = self._gather_alike(torch.tensor([len(own)], device=self.device))
        counts = [int(each) for each in rows]
        padded = own.new_zeros(max(counts), *own.shape[1:])
        padded[: len(own)] = own
        found = self._gather_alike(padded)
        return [each[:count] for each, count in zip(found, counts, strict=True)]

    def _gather_alike(self, tensor: Tensor) -> list[Tensor]:
        found = [torch.empty_like(tensor) for _ in range(self.world)]
        distributed.all_gather(found, tensor)
        return found

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over all processes; on a GPU nobody waits for it."""
        if self.world == 1:
            return tensor
        total = tensor.detach().to(self.device, copy=True)
        distributed.all_reduce(total)
        return total

    def agree(self, votes: Sequence[bool]) -> list[bool]:
        """Logical or of the votes of all processes; all have to call it."""
        if self.world == 1:
            return list(votes)
        total = self.sum(torch.tensor(votes, dtype=torch.int64, device=self.device))
        return [bool(count) for count in total.tolist()]

    def rank_zero_first(self, do: Callable[[], None]) -> None:
        """Run a function in the first process while the others wait; if it raises, all do.

        All processes have to call it.
        """
        error: Exception | None = None
        if self.is_first:
            try:
                do()
            # whatever it is: the others wait for a word about it, and would wait for long
            except Exception as found:
                error = found
        (has_failed,) = self.agree([error is not None])
        if error is not None:
            raise error
        if has_failed:
            raise ElsewhereError("the first process failed")

    def share(self, module: nn.Module) -> None:
        """Broadcast parameters and buffers of the first process, at the start of a run."""
        if self.world > 1:
            with torch.no_grad():
                for parameter in module.parameters():
                    distributed.broadcast(parameter, src=0)
            self.share_buffers(module)

    def share_buffers(self, module: nn.Module) -> None:
        """Broadcast the running statistics of the first process, so that all evaluate alike."""
        if self.world > 1:
            for buffer in module.buffers():
                distributed.broadcast(buffer, src=0)


def start_processes(options: RunOptions) -> ProcessGroup:
    """Start the processes of a run by Lightning Fabric; those of torchrun are used as they are.

    A process group created here is destroyed at the end of the program; one that existed before is
    left alone. A single process does not import Fabric, which takes seconds.
    """
    device = resolve_device(options.device)
    devices, nodes = options.devices, options.nodes
    if "TORCHELASTIC_RUN_ID" in os.environ:  # torchrun has decided both
        devices = int(os.environ["LOCAL_WORLD_SIZE"])
        nodes = int(os.environ["WORLD_SIZE"]) // devices
    is_cuda = device.type == "cuda"
    available = torch.cuda.device_count() if is_cuda else os.cpu_count() or 1
    if devices > available:
        what = "GPUs" if is_cuda else "cores"
        raise UserError(f"devices must be at most the {available} {what} here, got {devices}")
    if devices * nodes == 1:
        return ProcessGroup(device=torch.device("cuda", device.index or 0) if is_cuda else device)
    from lightning.fabric import Fabric

    for each in ("fabric", "pytorch"):
        # its hints are about what our options decide
        logging.getLogger(f"lightning.{each}").setLevel(logging.WARNING)
    # its processes alone: gradients are summed up by the step
    fabric = Fabric(accelerator=device.type, devices=devices, num_nodes=nodes, strategy="ddp")
    had_process_group = _has_process_group()
    fabric.launch()
    if _has_process_group() and not had_process_group:
        # Not as soon as the run is over: others may follow with the same processes. And not around
        # it either: ending waits for what is under way, and an error has to be reported before.
        atexit.register(end_processes)
    return ProcessGroup(fabric.global_rank, fabric.world_size, fabric.device)


@contextmanager
def allow_tf32(device: torch.device, tf32: bool | None) -> Iterator[None]:
    """Allow TF32 in matrix products on a GPU, or not; the setting is restored on exit.

    Args:
        device: Device; a CPU has no TF32.
        tf32: Whether TF32 is allowed; None keeps the setting.
    """
    if device.type != "cuda" or tf32 is None:
        yield
        return
    products, before = torch.backends.cuda.matmul, torch.backends.cuda.matmul.fp32_precision
    products.fp32_precision = "tf32" if tf32 else "ieee"
    try:
        yield
    finally:
        products.fp32_precision = before


def end_processes() -> None:
    """Destroy the process group of `start_processes`; no run can follow in this program.

    Done automatically at exit. Threads of the group that outlive the interpreter could abort the
    process.
    """
    if _has_process_group():
        # The traceback of an error can hold the model, and the model the group.
        gc.collect()
        distributed.destroy_process_group()


ROOM = 0.5
"""Share of the free memory that the graphs, or a step on a single graph, may take."""


def move_store(store: GraphStore, device: torch.device) -> GraphStore:
    """Move all graphs to the device; if too large, they stay and batches are copied."""
    if device.type == "cuda" and store.nbytes > ROOM * free_memory(device):
        return store.streamed(device)
    return store.to(device)


def free_memory(device: torch.device) -> int:
    """Free memory in bytes: of the GPU, or of this machine."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    told = Path("/proc/meminfo")
    if told.exists():
        (line,) = (line for line in told.read_text().splitlines() if "MemAvailable" in line)
        return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _has_process_group() -> bool:
    return distributed.is_available() and distributed.is_initialized()
