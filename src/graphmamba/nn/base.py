"""What a layer is made of: the two kinds of parts and how each is called."""

from typing import ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.data.batch import Topology
from graphmamba.errors import UserError

Nodes = Float[Tensor, "nodes channels"]
Edges = Float[Tensor, "edges channels"]
"""Node embeddings and edge embeddings."""


def required_edges(e: Edges | None, reader: str) -> Edges:
    """Return the edge embeddings; a model that reads them cannot do without."""
    if e is None:
        raise UserError(f"e must hold a row for each edge for {reader}, got None")
    return e


class LocalModel(nn.Module):
    """Message passing along the edges: `local(x, e, topology) -> (x, e)`.

    `e` holds one row per edge, or is None for models that read no edge embeddings.
    """

    has_residual: ClassVar[bool] = False
    """Whether the output already contains the input, so that a layer must not add it again."""

    def forward(self, x: Nodes, e: Edges | None, topology: Topology) -> tuple[Nodes, Edges | None]:
        """Return new node embeddings, and new edge embeddings if the model has them."""
        raise NotImplementedError


class GlobalModel(nn.Module):
    """Exchange among all nodes of a graph: `global_model(x, topology) -> x`, without residual."""

    def forward(self, x: Nodes, topology: Topology) -> Nodes:
        """Return what each node takes from the others."""
        raise NotImplementedError
