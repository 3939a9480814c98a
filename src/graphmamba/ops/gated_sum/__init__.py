"""The gated sum over the edges of each node: the door, and the operators behind it."""

import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.ops.backends import choose_backend
from graphmamba.ops.edge_layout import EdgeLayout
from graphmamba.ops.gated_sum import checks, reference
from graphmamba.ops.gated_sum.operators import register, sent_rows
from graphmamba.ops.options import Backend

__all__ = ["gated_sum", "gated_sum_and_mean", "sent_rows"]


def gated_sum(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Float[Tensor, "edges channels"],
    layout: EdgeLayout,
    scale: Float[Tensor, " edges"] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"]]:
    r"""Gate each channel of each edge, and average by these gates what is sent to a node.

    .. math::
        \hat e_{ij} = d_i + e_j + c_{ij}, \quad g_{ij} = s_{ij}\,\sigma(\hat e_{ij}), \quad
        \hat x_i = a_i + \frac{\sum_j g_{ij} \odot b_j}{\sum_j g_{ij} + 10^{-6}}

    over the edges j -> i. Output and gradients are the same to the last bit whenever they are
    computed again.

    Args:
        nodes: The rows a, b, d and e of each node, side by side; float32, bfloat16 or float16, on
            the CPU float64 too.
        edges: The row c of each edge, in the same type.
        layout: Which edges meet at each node, by `graphmamba.ops.edge_layout.lay_out_edges`.
        scale: The factor s of each edge; 1 if None.
        backend: `auto` is `fused` for tensors on a GPU and `cpu` for the others.

    Returns:
        The rows x_hat of the nodes and e_hat of the edges.

    Raises:
        ValueError: An argument breaks a rule; the message names it, the rule and the value.
        ImportError: The backend needs a package that is not installed.
    """
    x_hat, e_hat, _ = gated_sum_and_mean(nodes, edges, layout, scale, backend=backend)
    return x_hat, e_hat


def gated_sum_and_mean(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Float[Tensor, "edges channels"],
    layout: EdgeLayout,
    scale: Float[Tensor, " edges"] | None = None,
    *,
    backend: Backend = "auto",
) -> tuple[
    Float[Tensor, "nodes channels"],
    Float[Tensor, "edges channels"],
    Float[Tensor, "nodes channels"] | None,
]:
    """`gated_sum`, and the quotient in it: what x_hat has beyond a; None from the reference.

    The quotient is kept for the backward pass in any case. No gradient passes through it.
    """
    name = choose_backend(backend, nodes.device)
    checks.check_rows(name, nodes, edges, scale)
    checks.check_layout(layout, nodes, edges)
    if name == "reference":
        return *reference.gated_sum(nodes, edges, layout, scale), None
    if scale is not None:
        scale = scale.to(torch.promote_types(nodes.dtype, torch.float32))
    x_hat, e_hat, kept = _OPERATORS[name](
        *(nodes, edges, scale, layout.edge_index, layout.target_ptr, layout.target_order),
        *(layout.source_ptr, layout.source_order),
    )
    return x_hat, e_hat, kept[1]


_OPERATORS = {backend: register(backend) for backend in ("cpu", "fused")}
