"""Who attends to whom, and which row speaks of it."""

from dataclasses import dataclass

from jaxtyping import Int
from torch import Tensor

from graphmamba.ops.edge_layout import lay_out_edges
from graphmamba.ops.fusing import FusedBackend, is_fused


@dataclass(frozen=True)
class Wires:
    """Directed wires between nodes, each with a row of a table of features.

    The last `shared` rows of the table are those of any number of wires; each of the others is that
    of exactly one.
    """

    edge_index: Int[Tensor, "2 wires"]
    """Row 0 is attended to by row 1; in the order of row 1 where they are laid out."""
    feature: Int[Tensor, " wires"]
    """Row of each wire."""
    nodes: int
    shared: int
    target_ptr: Int[Tensor, " boundaries"] | None = None
    """The wires to node `n` are `target_ptr[n]` to `target_ptr[n + 1]`; None if not laid out."""
    source_ptr: Int[Tensor, " boundaries"] | None = None
    source_order: Int[Tensor, " wires"] | None = None
    """Likewise `source_order[source_ptr[n] : source_ptr[n + 1]]` are those from node `n`."""

    @property
    def is_laid_out(self) -> bool:
        """Whether the wires are sorted, so that kernels can walk along them."""
        return self.target_ptr is not None


def wire(
    edge_index: Int[Tensor, "2 wires"],
    feature: Int[Tensor, " wires"],
    nodes: int,
    shared: int,
    *,
    backend: FusedBackend = "auto",
) -> Wires:
    """Make wires, and lay them out where kernels are to attend along them; nothing waits.

    Args:
        edge_index: Row 0 is attended to by row 1.
        feature: Row of each wire in the table of features.
        nodes: Number of nodes.
        shared: Rows at the end of that table which are those of any number of wires.
        backend: `auto` is `fused` on a GPU, but where a graph is compiled, and `reference`
            elsewhere.
    """
    if not is_fused(backend, edge_index, types=None):
        return Wires(edge_index, feature, nodes, shared)
    # Half the bytes are sorted in half the time.
    order = edge_index[1].int().argsort(stable=True)
    edge_index = edge_index[:, order]
    source_order = edge_index[0].int().argsort(stable=True)
    layout = lay_out_edges(edge_index, nodes, source_order, check=False)
    pointers = layout.target_ptr, layout.source_ptr
    return Wires(edge_index, feature[order], nodes, shared, *pointers, source_order)
