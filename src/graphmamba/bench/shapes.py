"""Batches of the sizes that the benchmarks' graphs have, filled with seeded random rows."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class BatchShape:
    """How many sequences and tokens a packed batch has, and how wide its rows are."""

    name: str
    sequences: int
    tokens: int
    longest: int
    inner: int
    state: int = 16
    spread: float = 0.5
    """Standard deviation of the logarithm of the lengths."""

    def __post_init__(self) -> None:
        rest, others = self.tokens - self.longest, self.sequences - 1
        if not others <= rest <= others * self.longest:
            raise ValueError(
                f"{self.sequences} sequences, the longest of {self.longest}, cannot hold "
                f"exactly {self.tokens} tokens"
            )


BATCHES = {
    "peptides": BatchShape("peptides", 128, 20_926, longest=444, inner=96),
    "voc": BatchShape("voc", 32, 15_227, longest=500, inner=96, spread=0.03),
    "malnet16": BatchShape("malnet16", 16, 28_643, longest=3_966, inner=64, spread=0.6),
    "malnet256": BatchShape("malnet256", 256, 323_314, longest=5_000, inner=64, spread=0.8),
    "million": BatchShape("million", 1, 1_000_000, longest=1_000_000, inner=96),
}
"""The batches that every speed in this project is quoted for, by name."""


@dataclass(frozen=True)
class ScanInputs:
    """What one call of `selective_scan` takes, and the gradient that comes back to its output."""

    leaves: dict[str, Tensor]
    """The differentiable arguments by name, each requiring its gradient."""
    cu_seqlens: Int[Tensor, " boundaries"]
    out_grad: Float[Tensor, "steps inner"]

    @property
    def bytes(self) -> int:
        """Memory that the differentiable arguments fill."""
        return sum(leaf.nbytes for leaf in self.leaves.values())


def draw_lengths(shape: BatchShape, seed: int = 0) -> list[int]:
    """Draw log-normal lengths that add up to exactly `shape.tokens`, one of them the longest."""
    rng = np.random.default_rng(seed)
    rest, others = shape.tokens - shape.longest, shape.sequences - 1
    weights = rng.lognormal(sigma=shape.spread, size=others)
    lengths = (rest * weights / weights.sum()).astype(int).clip(1, shape.longest)
    # Rounding and clipping leave a few tokens over, or take a few too many.
    while missing := rest - int(lengths.sum()):
        has_room = lengths < shape.longest if missing > 0 else lengths > 1
        lengths[np.flatnonzero(has_room)[: abs(missing)]] += np.sign(missing)
    return rng.permutation([shape.longest, *lengths]).tolist()


def scan_inputs(
    shape: BatchShape,
    *,
    device: torch.device,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> ScanInputs:
    """Fill a batch with values as a freshly initialised Mamba block has them.

    Equal seeds give equal lengths everywhere, and equal values on the same kind of device.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.randn(size, generator=generator, device=device)

    boundaries = np.cumsum([0, *draw_lengths(shape, seed)])
    steps, inner, state = shape.tokens, shape.inner, shape.state
    # Step sizes start log-uniform between 0.001 and 0.1; the bias is softplus undone.
    exponent = torch.rand(inner, generator=generator, device=device) * 2 - 3
    values = {
        "u": normal(steps, inner),
        "delta": 0.1 * normal(steps, inner),
        "A": -torch.arange(1.0, state + 1, device=device).repeat(inner, 1),
        "B": normal(steps, state),
        "C": normal(steps, state),
        "D": torch.ones(inner, device=device),
        "z": normal(steps, inner),
        "delta_bias": torch.log(torch.expm1(10**exponent)),
    }
    return ScanInputs(
        leaves={name: value.to(dtype).requires_grad_() for name, value in values.items()},
        cu_seqlens=torch.tensor(boundaries, dtype=torch.int32, device=device),
        out_grad=normal(steps, inner).to(dtype),
    )
