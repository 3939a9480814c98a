"""Multi-head attention along given edges."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.backends import TritonBackend, uses_triton
from graphmamba.ops.edge_attention import reference
from graphmamba.ops.edge_attention.reference import AttentionGraph
from graphmamba.ops.edge_layout import lay_out_edges
from graphmamba.ops.registration import (
    add_gradients,
    add_operator,
    launcher,
    reject_second_derivative,
    reject_tangents,
)

__all__ = ["AttentionGraph", "attend", "attention_graph"]

_EDGES = (
    "Tensor edge_index, Tensor feature, Tensor target_ptr, Tensor source_ptr, "
    "Tensor source_order, int shared, int heads"
)


def attention_graph(
    edge_index: Int[Tensor, "2 edges"],
    feature: Int[Tensor, " edges"],
    nodes: int,
    shared: int,
    *,
    backend: TritonBackend = "auto",
) -> AttentionGraph:
    """Build an `AttentionGraph`, sorted by target for kernels, without a GPU synchronisation.

    Args:
        edge_index: Nodes in row 1 attend to nodes in row 0.
        feature: Row of each edge in the table of features.
        nodes: Number of nodes.
        shared: Number of rows at the end of that table that several edges may share.
        backend: `auto` is `triton` on a GPU, and `reference` elsewhere and under `torch.compile`.
    """
    if not uses_triton(backend, edge_index.device):
        return AttentionGraph(edge_index, feature, nodes, shared)
    # int32 sorts in half the time of int64
    order = edge_index[1].int().argsort(stable=True)
    edge_index = edge_index[:, order]
    source_order = edge_index[0].int().argsort(stable=True)
    layout = lay_out_edges(edge_index, nodes, source_order, check=False)
    pointers = layout.target_ptr, layout.source_ptr
    return AttentionGraph(edge_index, feature[order], nodes, shared, *pointers, source_order)


def attend(
    nodes: Float[Tensor, "nodes three_channels"],
    features: Float[Tensor, "features channels"],
    graph: AttentionGraph,
    heads: int,
) -> Float[Tensor, "nodes channels"]:
    r"""Attention of each node to the sources of its incoming edges.

    .. math::
        w_{ij} = \exp \mathrm{clamp}(\langle k_j \odot q_i / \sqrt{c}, e_{ij} \rangle, -5, 5), \quad
        x'_i = \frac{\sum_j w_{ij} v_j}{\sum_j w_{ij} + 10^{-6}}

    for each head of c channels. For a graph sorted for kernels, one kernel computes the output and
    two compute the gradients, bitwise reproducibly.

    Args:
        nodes: q, k and v of each node, concatenated; float32, bfloat16 or float16 for kernels.
        features: Table of edge features e.
        graph: Edges, each with a row of `features`.
        heads: Number of heads; must divide the channels.
    """
    # Autocast may have chosen different types.
    features = features.to(nodes.dtype)
    if not graph.is_laid_out:
        return reference.attend(nodes, features, graph, heads)
    reject_tangents("attend", nodes, features)
    out: Tensor = _OPERATOR(
        nodes, features, graph.edge_index, graph.feature, graph.target_ptr, graph.source_ptr,
        graph.source_order, graph.shared, heads,
    )[0]  # fmt: skip
    return out


def _fake_forward(nodes: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    edge_index, heads = rest[1], rest[-1]
    rows = nodes.shape[0]
    scores = nodes.new_empty((heads, edge_index.shape[1]), dtype=torch.float32)
    share = nodes.new_empty((heads, rows), dtype=torch.float32)
    return nodes.new_empty((rows, nodes.shape[1] // 3)), scores, share


def _fake_backward(*arguments: Any) -> tuple[Tensor, Tensor]:
    nodes, features = arguments[4:6]
    return nodes.new_empty(nodes.shape), features.new_empty(features.shape)


def _set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    *tensors, ctx.shared, ctx.heads = inputs
    ctx.mark_non_differentiable(*output[1:])
    # Else autograd would allocate zeros for outputs without a gradient.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output, *tensors)


def _differentiate(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
    d_nodes = d_features = None
    if grad is not None:
        d_nodes, d_features = _BACKWARD(grad, *ctx.saved_tensors, ctx.shared, ctx.heads)
    return d_nodes, d_features, *(None,) * 7


# Returns the output, and the scores and 1 / sum of weights for the backward pass.
_OPERATOR = add_operator(
    f"attend_triton(Tensor nodes, Tensor features, {_EDGES}) -> (Tensor, Tensor, Tensor)",
    launcher("edge_attention.triton", "forward"),
    _fake_forward,
)
_BACKWARD = add_operator(
    "attend_triton_backward(Tensor grad, Tensor out, Tensor scores, Tensor share, "
    f"Tensor nodes, Tensor features, {_EDGES}) -> (Tensor, Tensor)",
    launcher("edge_attention.triton", "backward"),
    _fake_backward,
)
add_gradients(_OPERATOR, _differentiate, _set_up)
reject_second_derivative(_OPERATOR, _BACKWARD)
