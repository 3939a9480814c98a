"""The gated sum with the norm of its edges: as one operation where kernels run both."""

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
from graphmamba.stack.edge_update.operators import EdgeUpdate
from graphmamba.stack.gated_sum import checks, gated_sum_and_mean

__all__ = ["Updated", "update_edges"]

Nodes = Float[Tensor, "nodes channels"]
Edges = Float[Tensor, "edges channels"]


class Updated(NamedTuple):
    """What becomes of nodes and edges."""

    x_hat: Nodes
    edges: Edges
    mean: Nodes | None
    """What x_hat has beyond a, if it is known; no gradient passes through it."""
    sums: Float[Tensor, "2 channels"] | None
    """Mean and squared deviations of the real rows of x_hat, if they are known."""


def update_edges(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Edges,
    layout: EdgeLayout,
    norm: BatchNorm,
    scale: Float[Tensor, " edges"] | None = None,
    *,
    after: Edges | None = None,
    activation: Activation = "none",
    rate_after: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    real_edges: Int[Tensor, ""] | None = None,
    real_nodes: Int[Tensor, ""] | None = None,
    backend: Backend = "auto",
) -> Updated:
    r"""Gate and sum as `gated_sum`, then pass the edges on through their norm.

    .. math::
        \hat x, \hat e = \mathrm{gated\_sum}(\ldots), \quad
        e' = a + \mathrm{drop}(\sigma(\mathrm{BN}(\hat e)))

    In training kernels do both at once: those that make :math:`\hat e` leave its statistics, and
    those that read its gradient make it themselves. Everywhere else one follows the other.

    Args:
        nodes: As for `gated_sum`.
        edges: As for `gated_sum`.
        layout: As for `gated_sum`.
        norm: The norm of the edges, whose own backend says what runs it.
        scale: As for `gated_sum`.
        after: a, added at the end; nothing if None.
        activation: After the norm.
        rate_after: Rate of dropout after the activation, in training.
        seed: What the dropout follows; drawn from PyTorch's generator if None.
        real_edges: Edges that are real, all if None; the others, which come last, do not count.
        real_nodes: Nodes that are real, likewise.
        backend: What runs the gated sum; `auto` is `fused` on a GPU and `cpu` elsewhere.
    """
    if not _is_joint(backend, norm, edges):
        x_hat, e_hat, mean = gated_sum_and_mean(nodes, edges, layout, scale, backend=backend)
        out = norm(
            *(e_hat, real_edges), after=after, activation=activation, rate_after=rate_after,
            seed=seed,
        )  # fmt: skip
        return Updated(x_hat, out, mean, None)
    checks.check_rows("fused", nodes, edges, scale)
    checks.check_layout(layout, nodes, edges)
    check_rows(edges, after=after)
    check_choice("activation", activation, get_args(Activation))
    check_fraction("rate_after", rate_after)
    running, drop = norm.running(), norm.drop_after(rate_after, seed, edges)
    x_hat, out, kept, sums = EdgeUpdate.apply(
        *(nodes, edges, None if scale is None else scale.float()),
        *(layout.edge_index, layout.target_ptr, layout.target_order),
        *(layout.source_ptr, layout.source_order, after, norm.weight, norm.bias),
        *(drop and drop.seed, real_edges, real_nodes),
        *(running.mean, running.variance, running.batches),
        *(activation, drop.rate if drop else 0.0, drop.site if drop else 0),
        *(running.momentum, norm.eps),
    )  # type: ignore[no-untyped-call]
    return Updated(x_hat, out, kept[1], sums[1])


def _is_joint(backend: Backend, norm: BatchNorm, edges: Edges) -> bool:
    """Tell whether kernels do both at once: where they would do each, and a batch is normalised.

    Compilers, which fuse what they see, get to see both.
    """
    if not norm.training or torch.compiler.is_compiling():
        return False
    is_fit = choose_backend(backend, edges.device) == "fused"
    return is_fit and is_fused(norm.backend, edges, norm.is_synced)
