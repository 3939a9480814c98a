"""Attention along given edges in plain PyTorch."""

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.edge_attention.wires import Wires
from graphmamba.ops.segments import sum_at

EPSILON = 1e-6
"""Keeps the quotient of a node that attends to nobody finite."""
SCORE_LIMIT = 5.0


def attend(
    nodes: Float[Tensor, "nodes three_channels"],
    features: Float[Tensor, "features channels"],
    wires: Wires,
    heads: int,
) -> Float[Tensor, "nodes channels"]:
    """Define `graphmamba.ops.edge_attention.attend`; the kernels are judged by this one."""
    source, target = wires.edge_index
    query, key, value = nodes.unflatten(-1, (3, heads, -1)).unbind(1)
    # Not by brackets: their gradient adds up the rows of a place one after another.
    edge = features.index_select(0, wires.feature).unflatten(-1, (heads, -1))
    product = key[source] * query[target] * edge
    score = product.sum(dim=-1, keepdim=True) * query.shape[-1] ** -0.5
    weight = torch.exp(score.clamp(-SCORE_LIMIT, SCORE_LIMIT))  # [wires, heads, 1]
    taken = sum_at(weight * value[source], target, nodes.shape[0])
    return (taken / (sum_at(weight, target, nodes.shape[0]) + EPSILON)).flatten(1)
