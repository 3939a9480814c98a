"""Where programs leave the statistics of edges and nodes."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor

ENDS = 2
"""What has statistics: edges, then nodes."""


@dataclass(frozen=True)
class Lines:
    """One line for each program, those of the edges before those of the nodes."""

    parts: Float[Tensor, "programs 2 channels"]
    """Mean and squared deviations of the rows of a program."""
    sizes: Float[Tensor, " programs"]
    """How many rows these are."""
    edges: int
    """Lines of the edges."""
    real_edges: Int[Tensor, ""] | None
    """Rows that count, all if None; the others come last."""
    real_nodes: Int[Tensor, ""] | None

    @property
    def nodes(self) -> int:
        """Lines of the nodes."""
        return len(self.sizes) - self.edges
