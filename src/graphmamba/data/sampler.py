"""Batch sampler: shuffles, divides graphs among processes, resumes within an epoch."""

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.checks import check_choice, check_least
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits

Ids = Int[Tensor, " _"]  # indices of graphs


class BatchSampler:
    """Assigns graphs to batches; every graph is in exactly one batch of an epoch.

    The batches of an epoch depend only on the arguments and the number of the epoch. All processes
    make the same number of steps. In a single process all batches except the last have the same
    size; with several, sizes differ by at most one.

    Iteration continues where it stopped, to the end of the epoch; then the next epoch begins.

    Args:
        ids: Graphs to assign, such as `store.split_ids("train")`.
        size: Graphs per batch in each process.
        seed: Random seed of shuffling, together with the epoch.
        is_shuffled: Whether to shuffle in every epoch.
        rank: Rank of this process.
        world: Number of processes.
    """

    def __init__(
        self,
        ids: Ids,
        size: int = 128,
        seed: int = 0,
        is_shuffled: bool = True,
        *,
        rank: int = 0,
        world: int = 1,
    ) -> None:
        check_least("size", size, 1)
        check_least("world", world, 1)
        check_choice("rank", rank, range(world))
        check_least("graphs", len(ids), world)
        self.ids, self.size, self.seed, self.is_shuffled = ids.cpu(), size, seed, is_shuffled
        self.rank, self.world = rank, world
        self.epoch, self.step = 0, 0
        self._planned: tuple[int, list[Ids]] | None = None

    def __len__(self) -> int:
        """Number of steps of the epoch, including those already taken."""
        return len(self._batches())

    def __iter__(self) -> Iterator[Ids]:
        batches = self._batches()
        for number in range(self.step, len(batches)):
            # Counted before it is given out: whoever saves the state has assigned with it.
            self.step = number + 1
            if self.step == len(batches):
                self.set_epoch(self.epoch + 1)
            yield batches[number]

    def set_epoch(self, epoch: int) -> None:
        """Go to the start of an epoch."""
        check_least("epoch", epoch, 0)
        self.epoch, self.step = epoch, 0

    def state_dict(self) -> dict[str, int]:
        """Position of the sampler, and its settings."""
        return {"epoch": self.epoch, "step": self.step, **self._settings()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Restore the position of a sampler with the same settings."""
        for name, value in self._settings().items():
            if state.get(name) != value:
                raise UserError(
                    f"{name} must be the same as in the saved state, {state.get(name)}, got {value}"
                )
        self.set_epoch(state["epoch"])
        check_choice("step", state["step"], range(len(self)))
        self.step = state["step"]

    def _settings(self) -> dict[str, int]:
        return {
            "graphs": len(self.ids),
            "size": self.size,
            "seed": self.seed,
            "is_shuffled": int(self.is_shuffled),
            "world": self.world,
        }

    def _batches(self) -> list[Ids]:
        """Batches of this process in the present epoch."""
        if self._planned is None or self._planned[0] != self.epoch:
            order = self.ids
            if self.is_shuffled:
                stream = draw_bits(torch.tensor(self.seed), self.epoch)
                order = order[draw_bits(stream, torch.arange(len(order))).argsort(stable=True)]
            self._planned = (self.epoch, self._assign(order)[self.rank :: self.world])
        return self._planned[1]

    def _assign(self, order: Ids) -> list[Ids]:
        """Graphs of the batches of all processes."""
        if self.world == 1:
            return list(order.split(self.size))
        steps = -(-len(order) // (self.size * self.world))
        if steps * self.world > len(order):
            # Only where batches are to hold one graph each: rather two than none.
            steps -= 1
        return list(order.tensor_split(steps * self.world))


def batches_by_cost(ids: Ids, costs: Ids, budget: int) -> list[Ids]:
    """Divide graphs into batches of bounded cost, in their order.

    A graph that costs more than the budget is a batch by itself.
    """
    ends = costs.cumsum(0)
    cuts, begin = [], 0
    while begin < len(ids):
        spent = int(ends[begin - 1]) if begin else 0
        fitting = int(torch.searchsorted(ends, spent + budget, right=True))
        begin = max(fitting, begin + 1)
        cuts.append(begin)
    return list(ids.tensor_split(cuts[:-1]))
