"""The columns of a PyG batch by name, and the topology that they make up."""

from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.topology import Topology
from graphmamba.errors import UserError


def column(graphs: Data, name: str) -> Tensor | None:
    """Return a column, None where the batch has none of that name."""
    return getattr(graphs, name, None)


def required(graphs: Data, name: str, why: str) -> Tensor:
    """Return a column that must be there."""
    found = column(graphs, name)
    if found is None:
        raise UserError(f"graphs.{name} must be given {why}, got None")
    return found


def count_up_to(last: Int[Tensor, ""]) -> int:
    """Return the number of graphs up to the last one, for which a GPU has to be waited for."""
    if not torch.compiler.is_exporting():
        return int(last) + 1
    # Not `int()`, which would ask an exporter for the number itself.
    number = cast("int", last.item())
    torch._check(number >= 0)
    return number + 1


def membership_of(
    graphs: Data, nodes: int, device: torch.device
) -> tuple[Int[Tensor, " nodes"], Int[Tensor, " boundaries"] | None, int]:
    """Read off `batch`, `ptr` and the number of graphs; without `batch` all nodes are of one graph.

    `ptr`, which every PyG batch has, spares a wait for the GPU: its length tells the number of
    graphs.
    """
    batch, ptr = column(graphs, "batch"), column(graphs, "ptr")
    if batch is None:
        return torch.zeros(nodes, dtype=torch.int64, device=device), None, 1
    if ptr is not None:
        return batch, ptr, ptr.shape[0] - 1
    return batch, None, count_up_to(batch.max()) if batch.numel() else 0


def topology_of(graphs: Data) -> Topology:
    """Read off who belongs to which graph and who is joined to whom."""
    x = required(graphs, "x", "as node features")
    edge_index = required(graphs, "edge_index", "as pairs of nodes")
    batch, ptr, num_graphs = membership_of(graphs, x.shape[0], x.device)
    return Topology(
        edge_index=edge_index,
        batch=batch,
        num_graphs=num_graphs,
        graph_key=column(graphs, "graph_key"),
        centrality=column(graphs, "centrality"),
        laplacian_vectors=column(graphs, "laplacian_vectors"),
        laplacian_values=column(graphs, "laplacian_values"),
        random_walk=column(graphs, "random_walk"),
        cluster=column(graphs, "cluster"),
        expander_index=column(graphs, "expander_index"),
        num_real_nodes=column(graphs, "num_real_nodes"),
        num_real_edges=column(graphs, "num_real_edges"),
        source_order=column(graphs, "source_order"),
        source_ptr=column(graphs, "source_ptr"),
        target_ptr=column(graphs, "target_ptr"),
        ptr=ptr,
        dense_blocks=getattr(graphs, "dense_blocks", None),
    )
