"""Where the programs of the gated sum leave statistics of its rows."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

ENDS = 2
"""What has statistics: edges, then nodes."""


@dataclass(frozen=True)
class Lines:
    """One line for each program, edges before nodes."""

    parts: Float[Tensor, "2 programs 2 channels"]
    """Mean and squared deviations of the rows of a program."""
    sizes: Float[Tensor, "2 programs"]
    """How many rows these are."""
    real_edges: Int[Tensor, ""] | None
    """Rows that count, all if None; the others come last."""
    real_nodes: Int[Tensor, ""] | None
