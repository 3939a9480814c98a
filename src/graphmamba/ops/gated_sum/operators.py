"""The gated sum as operators that PyTorch differentiates, traces and exports."""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from graphmamba.ops.operators import add_gradients, add_operator, as_dense, refuse_twice

LAYOUT = (
    "Tensor edge_index, Tensor target_ptr, Tensor? target_order, Tensor source_ptr, "
    "Tensor source_order"
)


def register(backend: str) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    """Define the operator of a backend and that of its gradients; return the former.

    It returns x_hat, e_hat and what the backward pass starts from.
    """

    def compute(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        with torch.cuda.device_of(arguments[0]):
            # The forward pass has no use for the order of the sources.
            return _module(backend).forward(*as_dense(arguments[:-2]))

    def compute_gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        with torch.cuda.device_of(arguments[0]):
            return _module(backend).backward(*as_dense(arguments))

    name = f"gated_sum_{backend}"
    forward = add_operator(
        f"{name}(Tensor nodes, Tensor edges, Tensor? scale, {LAYOUT}) -> (Tensor, Tensor, Tensor)",
        compute,
        _fake_forward,
    )
    backward = add_operator(
        f"{name}_backward(Tensor d_x_hat, Tensor? d_e_hat, Tensor e_hat, Tensor kept, "
        f"Tensor sent, Tensor? scale, {LAYOUT}) -> (Tensor, Tensor, Tensor)",
        compute_gradients,
        _fake_backward,
    )
    _differentiate(forward, backward)
    return forward


def sent_rows(nodes: Tensor) -> Tensor:
    """The rows b of all nodes, which they send along their edges."""
    channels = nodes.shape[1] // 4
    return nodes.narrow(1, channels, channels)


def _fake_forward(nodes: Tensor, edges: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows, channels = nodes.shape[0], edges.shape[1]
    kept = nodes.new_empty((2, rows, channels), dtype=_exact(nodes))
    return nodes.new_empty((rows, channels)), edges.new_empty(edges.shape), kept


def _fake_backward(
    d_x_hat: Tensor,  # noqa: ARG001 - gradients look like what they belong to
    d_e_hat: Tensor | None,  # noqa: ARG001
    e_hat: Tensor,
    kept: Tensor,
    sent: Tensor,
    scale: Tensor | None,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, channels = sent.shape
    d_scale = kept.new_empty(0 if scale is None else scale.shape)
    return sent.new_empty((rows, 4 * channels)), e_hat.new_empty(e_hat.shape), d_scale


def _differentiate(forward: torch._ops.OpOverload, backward: torch._ops.OpOverload) -> None:
    def set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        nodes, _, scale, *layout = inputs
        _, e_hat, kept = output
        ctx.mark_non_differentiable(kept)
        # Else rows of zeros would be made for an output that nobody reads.
        ctx.set_materialize_grads(False)
        # The rows of the edges are not kept: what the gates need of them is in e_hat. Of those of
        # the nodes only what is sent matters.
        ctx.save_for_backward(e_hat, kept, sent_rows(nodes), scale, *layout)

    def differentiate(
        ctx: Any, d_x_hat: Tensor | None, d_e_hat: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        e_hat, kept, sent, scale, *layout = ctx.saved_tensors
        if d_x_hat is None and d_e_hat is None:
            return (None,) * (3 + len(layout))
        if d_x_hat is None:
            d_x_hat = sent.new_zeros(sent.shape)
        found = backward(d_x_hat, d_e_hat, e_hat, kept, sent, scale, *layout)
        d_nodes, d_edges, d_scale = found
        return d_nodes, d_edges, None if scale is None else d_scale, *(None for _ in layout)

    add_gradients(forward, differentiate, set_up)
    refuse_twice(forward, backward)


def _exact(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)


def _module(backend: str) -> ModuleType:
    # Here and not at the top, so that only the backend that runs has to be installed.
    return import_module(f"graphmamba.ops.gated_sum.{backend}")
