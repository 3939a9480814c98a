"""Attention along edges as an operator that PyTorch differentiates and traces."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphmamba.ops.operators import add_gradients, add_operator, as_dense, refuse_twice

WIRES = (
    "Tensor edge_index, Tensor feature, Tensor target_ptr, Tensor source_ptr, "
    "Tensor source_order, int shared, int heads"
)
ARGUMENTS = 9
"""Nodes, features and the wires."""


def register() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Define the operator and that of its gradients; return the former.

    It returns what nodes take, the scores of the wires and 1 / sum of the weights of each node; the
    backward pass starts from them.
    """
    forward = add_operator(
        f"attend_fused(Tensor nodes, Tensor features, {WIRES}) -> (Tensor, Tensor, Tensor)",
        _forward,
        _fake_forward,
    )
    backward = add_operator(
        "attend_fused_backward(Tensor grad, Tensor out, Tensor scores, Tensor share, "
        f"Tensor nodes, Tensor features, {WIRES}) -> (Tensor, Tensor)",
        _backward,
        _fake_backward,
    )
    _differentiate(forward, backward)
    return forward


def _forward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.ops.edge_attention import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.forward(*as_dense(arguments))


def _backward(*arguments: Any) -> tuple[Tensor, Tensor]:
    from graphmamba.ops.edge_attention import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.backward(*as_dense(arguments))


def _fake_forward(nodes: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    edge_index, heads = rest[1], rest[-1]
    rows = nodes.shape[0]
    scores = nodes.new_empty((heads, edge_index.shape[1]), dtype=torch.float32)
    share = nodes.new_empty((heads, rows), dtype=torch.float32)
    return nodes.new_empty((rows, nodes.shape[1] // 3)), scores, share


def _fake_backward(*arguments: Any) -> tuple[Tensor, Tensor]:
    nodes, features = arguments[4:6]
    return nodes.new_empty(nodes.shape), features.new_empty(features.shape)


def _differentiate(forward: torch._ops.OpOverload, backward: torch._ops.OpOverload) -> None:
    def set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        *tensors, ctx.shared, ctx.heads = inputs
        out, *kept = output
        ctx.mark_non_differentiable(*kept)
        # Else zeros would be made for what has no gradient.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(out, *kept, *tensors)

    def differentiate(ctx: Any, grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if grad is None:
            return (None,) * ARGUMENTS
        found = backward(grad, *ctx.saved_tensors, ctx.shared, ctx.heads)
        return *found, *(None,) * (ARGUMENTS - len(found))

    add_gradients(forward, differentiate, set_up)
    refuse_twice(forward, backward)
