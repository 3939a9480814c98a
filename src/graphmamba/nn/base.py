"""Base classes of the two parts of a layer: `LocalModel` and `GlobalModel`."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.data.batch import Topology
from graphmamba.errors import UserError

Nodes = Float[Tensor, "nodes channels"]
Edges = Float[Tensor, "edges channels"]
"""Node embeddings and edge embeddings."""


def required_edges(e: Edges | None, reader: str) -> Edges:
    """Return the edge embeddings; raises if there are none."""
    if e is None:
        raise UserError(f"e must hold a row for each edge for {reader}, got None")
    return e


def one_per_edge(e: Float[Tensor, "edge_rows channels"], edges: int) -> Edges:
    """Return a row for each edge, where `e` may hold one for all."""
    return e if e.shape[0] == edges else e.expand(edges, -1).contiguous()


class LocalModel(nn.Module):
    """Message passing along the edges: `local(x, e, topology) -> (x, e)`.

    `e` holds one row per edge, or is None for models that read no edge embeddings.
    """

    has_residual: ClassVar[bool] = False
    """Whether the output includes a residual connection, which a layer must then not add."""

    def forward(self, x: Nodes, e: Edges | None, topology: Topology) -> tuple[Nodes, Edges | None]:
        """Return new node embeddings, and new edge embeddings if the model has them."""
        raise NotImplementedError


class GlobalModel(nn.Module):
    """Model over all nodes of a graph: `global_model(x, topology) -> x`, without residual."""

    def forward(self, x: Nodes, topology: Topology) -> Nodes:
        """Return new node embeddings."""
        raise NotImplementedError
