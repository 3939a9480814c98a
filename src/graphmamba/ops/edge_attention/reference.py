"""Attention along given edges in plain PyTorch."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.segments import sum_at

EPSILON = 1e-6
"""Keeps the quotient of a node that attends to nobody finite."""
SCORE_LIMIT = 5.0


@dataclass(frozen=True)
class AttentionGraph:
    """Directed edges between nodes, each with a row of a table of features.

    The last `shared` rows of the table are those of any number of edges; each of the others is that
    of exactly one.
    """

    edge_index: Int[Tensor, "2 edges"]
    """Row 0 is attended to by row 1; in the order of row 1 where they are laid out."""
    feature: Int[Tensor, " edges"]
    """Row of each edge."""
    nodes: int
    shared: int
    target_ptr: Int[Tensor, " boundaries"] | None = None
    """The edges to node `n` are `target_ptr[n]` to `target_ptr[n + 1]`; None if not laid out."""
    source_ptr: Int[Tensor, " boundaries"] | None = None
    source_order: Int[Tensor, " edges"] | None = None
    """Likewise `source_order[source_ptr[n] : source_ptr[n + 1]]` are those from node `n`."""

    @property
    def is_laid_out(self) -> bool:
        """Whether the edges are sorted, so that kernels can read them."""
        return self.target_ptr is not None


def attend(
    nodes: Float[Tensor, "nodes three_channels"],
    features: Float[Tensor, "features channels"],
    graph: AttentionGraph,
    heads: int,
) -> Float[Tensor, "nodes channels"]:
    """Define `graphmamba.ops.edge_attention.attend`; the kernels are judged by this one."""
    source, target = graph.edge_index
    query, key, value = nodes.unflatten(-1, (3, heads, -1)).unbind(1)
    # Not by brackets: their gradient adds up the rows of a place one after another.
    edge = features.index_select(0, graph.feature).unflatten(-1, (heads, -1))
    product = key[source] * query[target] * edge
    score = product.sum(dim=-1, keepdim=True) * query.shape[-1] ** -0.5
    weight = torch.exp(score.clamp(-SCORE_LIMIT, SCORE_LIMIT))  # [edges, heads, 1]
    taken = sum_at(weight * value[source], target, nodes.shape[0])
    return (taken / (sum_at(weight, target, nodes.shape[0]) + EPSILON)).flatten(1)
