"""Attention along given edges in plain PyTorch."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.segments import sum_at

EPSILON = 1e-6  # keeps the quotient of a node without incoming edges finite
SCORE_LIMIT = 5.0


@dataclass(frozen=True)
class AttentionGraph:
    """Directed edges, each with a row of a table of features.

    The last `shared` rows of the table may belong to any number of edges, each of the others
    belongs to exactly one. If laid out for kernels, edges are sorted by target: `target_ptr[n]` to
    `target_ptr[n + 1]` are the edges to node `n`, and
    `source_order[source_ptr[n] : source_ptr[n + 1]]` those from it.
    """

    edge_index: Int[Tensor, "2 edges"]  # nodes in row 1 attend to nodes in row 0
    feature: Int[Tensor, " edges"]  # row of the table of features
    nodes: int
    shared: int
    target_ptr: Int[Tensor, " boundaries"] | None = None
    source_ptr: Int[Tensor, " boundaries"] | None = None
    source_order: Int[Tensor, " edges"] | None = None

    @property
    def is_laid_out(self) -> bool:
        """Whether the edges are sorted for kernels."""
        return self.target_ptr is not None


def attend(
    nodes: Float[Tensor, "nodes three_channels"],
    features: Float[Tensor, "features channels"],
    graph: AttentionGraph,
    heads: int,
) -> Float[Tensor, "nodes channels"]:
    """Reference of `graphmamba.ops.edge_attention.attend`."""
    source, target = graph.edge_index
    query, key, value = nodes.unflatten(-1, (3, heads, -1)).unbind(1)
    # Not features[...], whose backward pass is slow for repeated indices.
    edge = features.index_select(0, graph.feature).unflatten(-1, (heads, -1))
    product = key[source] * query[target] * edge
    score = product.sum(dim=-1, keepdim=True) * query.shape[-1] ** -0.5
    weight = torch.exp(score.clamp(-SCORE_LIMIT, SCORE_LIMIT))  # [edges, heads, 1]
    taken = sum_at(weight * value[source], target, nodes.shape[0])
    return (taken / (sum_at(weight, target, nodes.shape[0]) + EPSILON)).flatten(1)
