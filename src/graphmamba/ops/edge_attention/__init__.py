"""Attention along given edges, and its operators."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.backends import TritonBackend, uses_triton
from graphmamba.ops.edge_attention import reference
from graphmamba.ops.edge_attention.reference import AttentionGraph
from graphmamba.ops.edge_layout import lay_out_edges
from graphmamba.ops.registration import (
    Operator,
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
_ARGUMENTS = 9
"""Nodes, features and the edges."""


def attention_graph(
    edge_index: Int[Tensor, "2 edges"],
    feature: Int[Tensor, " edges"],
    nodes: int,
    shared: int,
    *,
    backend: TritonBackend = "auto",
) -> AttentionGraph:
    """Join edges and features, sorted where kernels are to attend along them; nothing waits.

    Args:
        edge_index: Row 0 is attended to by row 1.
        feature: Row of each edge in the table of features.
        nodes: Number of nodes.
        shared: Rows at the end of that table which are those of any number of edges.
        backend: `auto` is `triton` on a GPU, but where a graph is compiled, and `reference`
            elsewhere.
    """
    if not uses_triton(backend, edge_index.device):
        return AttentionGraph(edge_index, feature, nodes, shared)
    # Half the bytes are sorted in half the time.
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
    r"""Let each node attend to those that it has an edge from.

    .. math::
        w_{ij} = \exp \mathrm{clamp}(\langle k_j \odot q_i / \sqrt{c}, e_{ij} \rangle, -5, 5), \quad
        x'_i = \frac{\sum_j w_{ij} v_j}{\sum_j w_{ij} + 10^{-6}}

    for each head of c channels. Along edges that are laid out, one kernel computes it and two find
    all gradients, the same to the last bit whenever they run again; PyTorch has others.

    Args:
        nodes: The rows q, k and v of each node, side by side; float32, bfloat16 or float16 for
            kernels.
        features: Rows e in the same type; an edge says which is its own.
        graph: Who attends to whom.
        heads: Attention heads; must divide the channels.
    """
    # Autocast may choose another type for either map.
    features = features.to(nodes.dtype)
    if not graph.is_laid_out:
        return reference.attend(nodes, features, graph, heads)
    reject_tangents("attend", nodes, features)
    out: Tensor = _OPERATOR(
        *(nodes, features, graph.edge_index, graph.feature, graph.target_ptr),
        *(graph.source_ptr, graph.source_order, graph.shared, heads),
    )[0]
    return out


def _register() -> Operator:
    """Define the operator and that of its gradients; return the former.

    It returns what nodes take, the scores of the edges and 1 / sum of the weights of each node; the
    backward pass starts from them.
    """
    forward = add_operator(
        f"attend_triton(Tensor nodes, Tensor features, {_EDGES}) -> (Tensor, Tensor, Tensor)",
        launcher("edge_attention.triton", "forward"),
        _fake_forward,
    )
    backward = add_operator(
        "attend_triton_backward(Tensor grad, Tensor out, Tensor scores, Tensor share, "
        f"Tensor nodes, Tensor features, {_EDGES}) -> (Tensor, Tensor)",
        launcher("edge_attention.triton", "backward"),
        _fake_backward,
    )
    _differentiate(forward, backward)
    return forward


def _fake_forward(nodes: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    edge_index, heads = rest[1], rest[-1]
    rows = nodes.shape[0]
    scores = nodes.new_empty((heads, edge_index.shape[1]), dtype=torch.float32)
    share = nodes.new_empty((heads, rows), dtype=torch.float32)
    return nodes.new_empty((rows, nodes.shape[1] // 3)), scores, share


def _fake_backward(*arguments: Any) -> tuple[Tensor, Tensor]:
    nodes, features = arguments[4:6]
    return nodes.new_empty(nodes.shape), features.new_empty(features.shape)


def _differentiate(forward: Operator, backward: Operator) -> None:
    def set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        *tensors, ctx.shared, ctx.heads = inputs
        out, *kept = output
        ctx.mark_non_differentiable(*kept)
        # Else zeros would be made for what has no gradient.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(out, *kept, *tensors)

    def differentiate(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * _ARGUMENTS
        found = backward(grad, *ctx.saved_tensors, ctx.shared, ctx.heads)
        return *found, *(None,) * (_ARGUMENTS - len(found))

    add_gradients(forward, differentiate, set_up)
    reject_second_derivative(forward, backward)


_OPERATOR = _register()
