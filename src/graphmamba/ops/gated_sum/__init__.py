"""The gated sum over the edges of each node, the core of GatedGCN."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops.backends import TRITON_TYPES, Backend, choose_backend
from graphmamba.ops.edge_layout import EdgeLayout
from graphmamba.ops.gated_sum import reference
from graphmamba.ops.registration import (
    Operator,
    add_gradients,
    add_operator,
    launcher,
    reject_second_derivative,
    reject_tangents,
)

_LAYOUT = (
    "Tensor edge_index, Tensor target_ptr, Tensor? target_order, Tensor source_ptr, "
    "Tensor source_order"
)


def gated_sum(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Float[Tensor, "edges channels"],
    layout: EdgeLayout,
    scale: Float[Tensor, " edges"] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"]]:
    r"""Mean over incoming edges, weighted by a gate per edge and channel.

    .. math::
        \hat e_{ij} = d_i + e_j + c_{ij}, \quad g_{ij} = s_{ij}\,\sigma(\hat e_{ij}), \quad
        \hat x_i = a_i + \frac{\sum_j g_{ij} \odot b_j}{\sum_j g_{ij} + 10^{-6}}

    over the edges j -> i. Output and gradients are bitwise reproducible.

    Args:
        nodes: a, b, d and e of each node, concatenated; float32, bfloat16 or float16, on the CPU
            also float64.
        edges: c of each edge, in the same type.
        layout: Edges, by `graphmamba.ops.edge_layout.lay_out_edges`.
        scale: Factor s of each edge; 1 if None.
        backend: `auto` is `triton` for tensors on a GPU and `cpu` for the others.

    Returns:
        x_hat of the nodes and e_hat of the edges.

    Raises:
        ValueError: The backend does not support the device or the type.
        ImportError: The backend needs a package that is not installed.
    """
    name = choose_backend(backend, nodes.device)
    if name == "triton" and nodes.dtype not in TRITON_TYPES:
        raise UserError(f"backend must be 'reference' for {nodes.dtype} on a GPU, got {backend!r}")
    if name == "reference":
        return reference.gated_sum(nodes, edges, layout, scale)
    reject_tangents("gated_sum", nodes, edges, scale)
    if scale is not None:
        scale = scale.to(torch.promote_types(nodes.dtype, torch.float32))
    x_hat, e_hat, _ = _OPERATORS[name](
        nodes, edges, scale, layout.edge_index, layout.target_ptr, layout.target_order,
        layout.source_ptr, layout.source_order,
    )  # fmt: skip
    return x_hat, e_hat


def _register(backend: str) -> Operator:
    """Define the forward and backward operators of a backend; return the forward one."""
    name = f"gated_sum_{backend}"
    forward = add_operator(
        f"{name}(Tensor nodes, Tensor edges, Tensor? scale, {_LAYOUT}) -> (Tensor, Tensor, Tensor)",
        launcher(f"gated_sum.{backend}", "forward"),
        _fake_forward,
    )
    backward = add_operator(
        f"{name}_backward(Tensor d_x_hat, Tensor? d_e_hat, Tensor e_hat, Tensor kept, "
        f"Tensor sent, Tensor? scale, {_LAYOUT}) -> (Tensor, Tensor, Tensor)",
        launcher(f"gated_sum.{backend}", "backward"),
        _fake_backward,
    )

    def set_up(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
        nodes, _, scale, *layout = inputs
        _, e_hat, kept = output
        ctx.mark_non_differentiable(kept)
        # Else autograd would allocate zeros for outputs without a gradient.
        ctx.set_materialize_grads(False)
        # e_hat replaces the input edges, and of the nodes only b is needed.
        channels = nodes.shape[1] // 4
        sent = nodes.narrow(1, channels, channels)
        ctx.save_for_backward(e_hat, kept, sent, scale, *layout)

    def differentiate(
        ctx: Any, d_x_hat: Tensor | None, d_e_hat: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        e_hat, kept, sent, scale, *layout = ctx.saved_tensors
        if d_x_hat is None and d_e_hat is None:
            return (None,) * (3 + len(layout))
        if d_x_hat is None:
            d_x_hat = sent.new_zeros(sent.shape)
        d_nodes, d_edges, d_scale = backward(d_x_hat, d_e_hat, e_hat, kept, sent, scale, *layout)
        return d_nodes, d_edges, None if scale is None else d_scale, *(None for _ in layout)

    add_gradients(forward, differentiate, set_up)
    reject_second_derivative(forward, backward)
    return forward


def _fake_forward(nodes: Tensor, edges: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    rows, channels = nodes.shape[0], edges.shape[1]
    kept = nodes.new_empty(
        (2, rows, channels), dtype=torch.promote_types(nodes.dtype, torch.float32)
    )
    return nodes.new_empty((rows, channels)), edges.new_empty(edges.shape), kept


def _fake_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    e_hat, kept, sent, scale = arguments[2:6]
    rows, channels = sent.shape
    d_scale = kept.new_empty(0 if scale is None else scale.shape)
    return sent.new_empty((rows, 4 * channels)), e_hat.new_empty(e_hat.shape), d_scale


_OPERATORS = {backend: _register(backend) for backend in ("cpu", "triton")}
