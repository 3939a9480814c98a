"""What a batch says is right, in the form that losses and metrics read."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.catalog import Level
from graphmamba.data.columns import column


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


def without_ghosts(
    graphs: Data, level: Level, prediction: Float[Tensor, "all_rows outputs"]
) -> tuple[Float[Tensor, "rows outputs"], Target]:
    """Prediction and labels of the real rows of a batch that a ghost graph pads.

    Losses and most metrics pass over ghosts by themselves, as over anything without a label; a
    ranking, which averages over graphs, does not. A GPU has to be waited for.
    """
    batch, num_graphs = graphs.batch, graphs.ptr.shape[0] - 1
    target = target_of(graphs, level, batch, num_graphs)
    counts = [column(graphs, f"num_real_{kind}") for kind in ("graphs", "nodes")]
    if counts[0] is None or counts[1] is None:
        return prediction, target
    real_graphs, real_nodes = torch.stack([counts[0], counts[1]]).tolist()
    rows = real_graphs if level == "graph" else real_nodes
    if isinstance(target, Links):
        # Pairs of ghosts have no label, and come last.
        pairs = int((~torch.isnan(target.label)).sum())
        real = Links(target.pairs[:, :pairs], target.label[:pairs], batch[:real_nodes], real_graphs)
        return prediction[:rows], real
    return prediction[:rows], target[:rows]
