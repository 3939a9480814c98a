"""What a batch says is right, in the form that losses and metrics read."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.catalog import Level


@dataclass(frozen=True)
class Links:
    """Pairs of nodes with a label, of all graphs of a batch."""

    pairs: Int[Tensor, "2 pairs"]
    label: Float[Tensor, " pairs"]
    """1 for pairs that belong together, 0 for the others."""
    batch: Int[Tensor, " nodes"]
    """Graph of each node, ascending."""
    num_graphs: int


Target = Int[Tensor, " rows"] | Float[Tensor, "rows outputs"] | Links


def target_of(graphs: Data, level: Level, batch: Int[Tensor, " nodes"], num_graphs: int) -> Target:
    """Take the labels out of a batch."""
    if level == "link":
        return Links(graphs.edge_label_index, graphs.edge_label.float(), batch, num_graphs)
    return graphs.y
