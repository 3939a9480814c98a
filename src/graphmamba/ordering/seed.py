"""Random seeds of forward passes, as buffers that work with checkpoints, CUDA graphs and DDP."""

import torch
from jaxtyping import Int
from torch import Tensor, nn

from graphmamba.checks import check_is
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits

LIMIT = 1 << 63


class NoiseSeed(nn.Module):
    """A new seed for every forward pass in training, a fixed one at evaluation.

    Seed and counter are buffers: a resumed run continues the stream, a captured CUDA graph counts
    at every replay, and DDP keeps them equal on all ranks. Node orders also depend on the
    `graph_key`. Dropout depends on the position of a row in its batch, and needs another seed in
    each process.

    Args:
        seed: Random seed of the run.
    """

    seed: Tensor
    passes: Tensor
    process: int = 0  # rank; not a buffer, since DDP broadcasts buffers

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.register_buffer("seed", _checked(seed))
        self.register_buffer("passes", torch.tensor(0, dtype=torch.int64))

    def forward(self) -> Int[Tensor, ""]:
        """Return the seed of this pass; in training, advance the counter."""
        if not self.training:
            return self.seed
        # In a backward pass, the model is called only to recompute activations.
        if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
            raise UserError(
                "a model that draws its node orders must not be checkpointed as a whole, since "
                "they would be others the second time: checkpoint its layers, or give topology.seed"
            )
        self.passes.add_(1)
        return draw_bits(self.seed, self.passes)

    def of_dropouts(self, seed: Int[Tensor, ""], parts: range) -> list[Int[Tensor, ""]]:
        """Return a dropout seed for each part of the model, from the seed of a pass."""
        own = draw_bits(~seed, self.process)  # inverted, to be independent of node orders
        # Separate tensors, since torch.compile traces the base of a view.
        return [draw_bits(own, part) for part in parts]


class DrawnSeed(nn.Module):
    """A seed from torch's generator for every forward pass in training, a fixed one at evaluation.

    As for `torch.nn.Dropout`, `torch.manual_seed` determines it, and activation checkpointing,
    which restores the generator, repeats it.

    Args:
        seed: Seed at evaluation, a buffer; random if None.
    """

    seed: Tensor

    def __init__(self, seed: int | None = None) -> None:
        super().__init__()
        self.register_buffer("seed", _draw("cpu") if seed is None else _checked(seed))

    def forward(self) -> Int[Tensor, ""]:
        """Return the seed of this pass."""
        return _draw(self.seed.device) if self.training else self.seed


def _checked(seed: int) -> Int[Tensor, ""]:
    check_is("seed", seed, int)
    if not -LIMIT <= seed < LIMIT:
        raise UserError(f"seed must be in -2**63 to 2**63 - 1, got {seed!r}")
    return torch.tensor(seed, dtype=torch.int64)


def _draw(device: torch.device | str) -> Int[Tensor, ""]:
    return torch.randint(LIMIT - 1, (), device=device)
