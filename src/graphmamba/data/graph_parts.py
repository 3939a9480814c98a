"""The graphs of a PyG batch one by one, and what was made of each, laid end to end again."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.checks import check_membership
from graphmamba.data.columns import membership_of, required
from graphmamba.data.tables import is_pairs
from graphmamba.errors import UserError

Part = tuple[Int[Tensor, "2 _"], int]
"""Edges of a graph, whose nodes are counted from its own first one, and its number of nodes."""


def parts_of(graphs: Data) -> list[Part]:
    """Take a batch apart into its graphs; without `batch` all nodes are of one graph."""
    edge_index = required(graphs, "edge_index", "as pairs of nodes")
    is_pair = edge_index.dim() == 2 and edge_index.shape[0] == 2  # noqa: PLR2004
    if not is_pair or edge_index.is_floating_point():
        raise UserError(
            "graphs.edge_index must hold integers and have shape [2, edges], "
            f"got {edge_index.dtype} and {list(edge_index.shape)}"
        )
    nodes = int(graphs.num_nodes or 0)
    batch, _, num_graphs = membership_of(graphs, nodes, edge_index.device)
    if batch.shape != (nodes,):
        raise UserError(f"graphs.batch must have shape [{nodes}], got {list(batch.shape)}")
    check_membership(edge_index, batch, num_graphs)
    return _divide(edge_index, batch, num_graphs)


def lay_together(graphs: Data, parts: Sequence[Part], made: Sequence[dict[str, Tensor]]) -> Data:
    """Return a copy of the batch with further columns: those that were made of each graph.

    Pairs of nodes move to where the nodes of their graph lie. PyG can take the copy apart where it
    can do so with the batch.
    """
    done = graphs.clone()
    starts = torch.tensor([0] + [nodes for _, nodes in parts]).cumsum(0)[:-1]
    slices, shifts = {}, {}
    for name in made[0]:
        rows, axis = [each[name] for each in made], int(is_pairs(name))
        shifts[name] = starts * axis
        slices[name] = torch.tensor([0] + [own.shape[axis] for own in rows]).cumsum(0)
        moved = [own + start for own, start in zip(rows, starts, strict=True)] if axis else rows
        done[name] = torch.cat(moved, dim=axis)
    if getattr(graphs, "_slice_dict", None) is not None:
        # a copy shares both tables with what it was copied from
        done._slice_dict = {**graphs._slice_dict, **slices}
        done._inc_dict = {**graphs._inc_dict, **shifts}
    return done


def _divide(
    edge_index: Int[Tensor, "2 edges"], batch: Int[Tensor, " nodes"], num_graphs: int
) -> list[Part]:
    owner = batch[edge_index[0]]
    counts = batch.bincount(minlength=num_graphs)
    starts = counts.cumsum(0) - counts
    order = owner.argsort(stable=True)
    local = (edge_index - starts[owner])[:, order]
    edges = local.split(owner.bincount(minlength=num_graphs).tolist(), dim=1)
    return list(zip(edges, counts.tolist(), strict=True))
