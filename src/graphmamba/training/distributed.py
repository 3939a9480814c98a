"""The processes of a run and their devices: how they start, and what they tell one another."""

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
    """This process among all of a run; a run of one process talks to nobody."""

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

    def first_of(self, number: float) -> float:
        """The first process's number; all of them have to ask at the same time."""
        own = torch.tensor(number if self.is_first else 0.0, dtype=torch.float64)
        return float(self.sum(own))

    def agree(self, votes: Sequence[bool]) -> list[bool]:
        """What any of the processes voted for; all of them have to ask at the same time."""
        if self.world == 1:
            return list(votes)
        total = self.sum(torch.tensor(votes, dtype=torch.int64, device=self.device))
        return [bool(count) for count in total.tolist()]

    def rank_zero_first(self, do: Callable[[], None]) -> None:
        """Have the first process do something, the others wait; where it cannot, all of them fail.

        All have to call it at the same time.
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
        """Give all processes the first one's parameters and buffers, as a run begins."""
        if self.world > 1:
            with torch.no_grad():
                for parameter in module.parameters():
                    distributed.broadcast(parameter, src=0)
            self.share_buffers(module)

    def share_buffers(self, module: nn.Module) -> None:
        """Give all processes the first one's running statistics, so that they score alike."""
        if self.world > 1:
            for buffer in module.buffers():
                distributed.broadcast(buffer, src=0)


def start_processes(options: RunOptions) -> ProcessGroup:
    """Start the processes of a run, by Lightning Fabric; torchrun's own are taken as they are.

    Processes that meet here part at the end of the program; those that had met before are left to
    whoever had them meet. One process alone needs no Fabric, whose import takes seconds.
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
    had_met = _have_met()
    fabric.launch()
    if _have_met() and not had_met:
        # Not as soon as the run is over: others may follow with the same processes. And not around
        # it either: parting waits for what is under way, and an error has to be reported before.
        atexit.register(part_processes)
    return ProcessGroup(fabric.global_rank, fabric.world_size, fabric.device)


@contextmanager
def rounded_products(device: torch.device, tf32: bool | None) -> Iterator[None]:
    """Let matrix products on a GPU round to TF32, or not, and then as they did before.

    Args:
        device: Where they are computed; a CPU always has all digits.
        tf32: Whether they round; None leaves it as it is.
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


def part_processes() -> None:
    """End the processes of `start_processes`, if there are any: no run can follow in this program.

    The end of the program does it by itself. Threads of the group that live on while Python takes
    itself down may abort the process, whatever it had achieved.
    """
    if _have_met():
        # The traceback of an error can hold the model, and the model the group.
        gc.collect()
        distributed.destroy_process_group()


ROOM = 0.5
"""Share of a device's free memory that graphs, or one step on one graph, may take."""


def move_store(store: GraphStore, device: torch.device) -> GraphStore:
    """Put all graphs onto the device; those that would fill a GPU stay, and their batches go."""
    if device.type == "cuda" and store.nbytes > ROOM * free_memory(device):
        return store.streamed(device)
    return store.to(device)


def free_memory(device: torch.device) -> int:
    """Bytes that are free: on the GPU, or for processes here."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    told = Path("/proc/meminfo")
    if told.exists():
        (line,) = (line for line in told.read_text().splitlines() if "MemAvailable" in line)
        return int(line.split()[1]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _have_met() -> bool:
    return distributed.is_available() and distributed.is_initialized()
