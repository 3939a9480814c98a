"""The gated sum and the norm of its edges: two operations, whose gradients kernels find as one."""

from typing import NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_choice, check_fraction
from graphmamba.data.edge_layout import EdgeLayout
from graphmamba.encode.activation import Activation
from graphmamba.encode.batch_norm import check_rows, is_fused
from graphmamba.encode.norm import BatchNorm
from graphmamba.scan.backends import choose_backend
from graphmamba.scan.options import Backend
from graphmamba.stack.edge_update.operators import EdgeNorm, Link, LinkedSum
from graphmamba.stack.gated_sum import checks, gated_sum_and_mean

__all__ = ["Gated", "gate_edges", "norm_edges"]

Nodes = Float[Tensor, "nodes channels"]
Edges = Float[Tensor, "edges channels"]


class Gated(NamedTuple):
    """What the gated sum makes of nodes and edges."""

    x_hat: Nodes
    e_hat: Edges
    """For `norm_edges` and nobody else: another reader would disturb its gradient."""
    mean: Nodes | None
    """What x_hat has beyond a, if it is known; no gradient passes through it."""
    link: Link | None
    """What the norm tells the sum in the backward pass; None where each is by itself."""


def gate_edges(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Edges,
    layout: EdgeLayout,
    norm: BatchNorm,
    scale: Float[Tensor, " edges"] | None = None,
    *,
    backend: Backend = "auto",
) -> Gated:
    r"""Gate and sum as `gated_sum`, for edges that pass on through a norm.

    .. math::
        \hat x, \hat e = \mathrm{gated\_sum}(\ldots), \quad
        e' = a + \mathrm{drop}(\sigma(\mathrm{BN}(\hat e)))

    In training on a GPU the gradient of :math:`\hat e` is nowhere written: the kernel that reads it
    makes it, of that of :math:`e'`. Everywhere else one operation follows the other.

    Args:
        nodes: As for `gated_sum`.
        edges: As for `gated_sum`.
        layout: As for `gated_sum`.
        norm: The norm that `norm_edges` will be called with.
        scale: As for `gated_sum`.
        backend: What runs the gated sum; `auto` is `fused` on a GPU and `cpu` elsewhere.
    """
    if not _is_joint(backend, norm, edges):
        return Gated(*gated_sum_and_mean(nodes, edges, layout, scale, backend=backend), None)
    checks.check_rows("fused", nodes, edges, scale)
    checks.check_layout(layout, nodes, edges)
    link = Link()
    x_hat, e_hat, kept = LinkedSum.apply(
        *(link, nodes, edges, None if scale is None else scale.float()),
        *(layout.edge_index, layout.target_ptr, layout.target_order),
        *(layout.source_ptr, layout.source_order),
    )  # type: ignore[no-untyped-call]
    return Gated(x_hat, e_hat, kept[1], link)


def norm_edges(
    gated: Gated,
    norm: BatchNorm,
    count: Int[Tensor, ""] | None = None,
    *,
    after: Edges | None = None,
    activation: Activation = "none",
    rate_after: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
) -> Edges:
    """Return the edges behind their norm.

    Args:
        gated: What `gate_edges` returned, asked with the same norm.
        norm: The norm, whose own backend says what runs it.
        count: Edges that are real, all if None; the others, which come last, do not count.
        after: a, added at the end; nothing if None.
        activation: After the norm.
        rate_after: Rate of dropout after the activation, in training.
        seed: What the dropout follows; drawn from PyTorch's generator if None.
    """
    e_hat = gated.e_hat
    if gated.link is None:
        return norm(
            e_hat, count, after=after, activation=activation, rate_after=rate_after, seed=seed
        )
    check_rows(e_hat, after=after)
    check_choice("activation", activation, get_args(Activation))
    check_fraction("rate_after", rate_after)
    running, drop = norm.running(), norm.drop_after(rate_after, seed, e_hat)
    out: Edges = EdgeNorm.apply(
        *(gated.link, e_hat, norm.weight, norm.bias, after, drop and drop.seed, count),
        *(running.mean, running.variance, running.batches),
        *(activation, drop.rate if drop else 0.0, drop.site if drop else 0),
        *(running.momentum, norm.eps),
    )  # type: ignore[no-untyped-call]
    return out


def _is_joint(backend: Backend, norm: BatchNorm, edges: Edges) -> bool:
    """Tell whether gradients are found as one: where kernels find each, and a batch is normalised.

    Compilers, which fuse what they see, get to see both.
    """
    if not norm.training or torch.compiler.is_compiling():
        return False
    is_fit = choose_backend(backend, edges.device) == "fused"
    return is_fit and is_fused(norm.backend, norm.is_synced, edges)
