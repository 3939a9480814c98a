"""The processes of a run: what each holds, brought together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn

from graphmamba.errors import ElsewhereError

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Team:
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

    def let_first(self, do: Callable[[], None]) -> None:
        """Have the first process do something, the others wait; where it cannot, all of them fail.

        All have to call it at the same time.
        """
        mistake: Exception | None = None
        if self.is_first:
            try:
                do()
            # whatever it is: the others wait for a word about it, and would wait for long
            except Exception as found:
                mistake = found
        (has_failed,) = self.agree([mistake is not None])
        if mistake is not None:
            raise mistake
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
