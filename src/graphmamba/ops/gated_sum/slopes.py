"""What the gradients of the gated sum need to know of a norm that its edges went through."""

from dataclasses import dataclass
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.batch_norm.drop import site_key

Channels = Float[Tensor, " channels"]


@dataclass(frozen=True)
class Slopes:
    """The norm of a batch with activation and dropout, and the sums of its backward pass."""

    kept: Float[Tensor, "2 channels"]
    """Mean and 1 / deviation."""
    weight: Channels
    bias: Channels
    d_weight: Channels
    d_bias: Channels
    seed: Int[Tensor, ""] | None
    count: Int[Tensor, ""] | None
    """Real edges, all if None."""
    activation: str
    rate: float
    site: int

    @property
    def fields(self) -> tuple[Any, ...]:
        """All of it, in order."""
        return *self.channels, self.seed, self.count, self.activation, self.rate, self.site

    @property
    def channels(self) -> tuple[Tensor, ...]:
        """What each channel has."""
        return self.kept, self.weight, self.bias, self.d_weight, self.d_bias

    def places(self, other: Tensor) -> tuple[Tensor, Tensor]:
        """Seed and number of real edges; `other`, which is not read, where there are none."""
        seed = other if self.seed is None else self.seed
        return seed, other if self.count is None else self.count

    @property
    def key(self) -> int:
        """The site of the dropout as kernels take it."""
        return site_key(self.site)

    @property
    def constants(self) -> dict[str, Any]:
        """What the kernel is compiled for."""
        return {
            "HAS_GHOSTS": self.count is not None, "ACTIVATION": self.activation,
            "THRESHOLD": round(self.rate * 2**32), "SCALE": 1 / (1 - self.rate),
        }  # fmt: skip
