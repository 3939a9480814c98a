"""Padded blocks, one per graph, for models that need them; Graph-Mamba itself never pads."""

from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphmamba.data.topology import Topology

LEAST = 2
"""Rows of a block at the least: some operations refuse none, and exporters have to know whether an
axis has one entry, which is spread over others, or more."""


@dataclass(frozen=True)
class DenseLayout:
    """Where each node's row goes in a block of [graphs, longest] rows."""

    slot: Int[Tensor, " nodes"]
    graphs: int
    longest: int

    @classmethod
    def of(cls, topology: Topology) -> "DenseLayout":
        """Read the sizes of the graphs; the longest one has to be waited for on a GPU."""
        batch = topology.batch
        starts = torch.searchsorted(
            batch, torch.arange(topology.num_graphs + 1, device=batch.device)
        )
        sizes = starts.diff() if topology.num_graphs else starts.new_zeros(1)
        # Not `int()`, which would ask an exporter for the number itself.
        longest = cast("int", sizes.max().clamp(min=LEAST).item())
        torch._check(longest >= LEAST)
        place = torch.arange(batch.shape[0], device=batch.device) - starts[batch]
        return cls(batch * longest + place, topology.num_graphs, longest)

    def pad(self, rows: Float[Tensor, "nodes ..."]) -> Float[Tensor, "graphs longest ..."]:
        """Lay the rows out, zeros behind the last node of each graph."""
        dense = rows.new_zeros(self.graphs * self.longest, *rows.shape[1:])
        return dense.index_copy(0, self.slot, rows).unflatten(0, (self.graphs, self.longest))

    def unpad(self, dense: Float[Tensor, "graphs longest ..."]) -> Float[Tensor, "nodes ..."]:
        """Take the rows of real nodes; undoes `pad`."""
        return dense.flatten(0, 1)[self.slot]

    def mask(self) -> Bool[Tensor, "graphs longest"]:
        """Tell which rows are real nodes."""
        mask = torch.zeros(self.graphs * self.longest, dtype=torch.bool, device=self.slot.device)
        mask[self.slot] = True
        return mask.view(self.graphs, self.longest)
