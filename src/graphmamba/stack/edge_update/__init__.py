"""The gated sum with the norm of its edges: as one operation where kernels run both."""

from typing import Any, NamedTuple, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_choice, check_fraction
from graphmamba.data.edge_layout import EdgeLayout
from graphmamba.encode.activation import Activation
from graphmamba.encode.batch_norm import check_rows, is_fused
from graphmamba.encode.linear import Linear, linear_through
from graphmamba.encode.norm import BatchNorm
from graphmamba.fusing import is_fused_single, may_round
from graphmamba.scan.backends import choose_backend
from graphmamba.scan.options import Backend
from graphmamba.stack.edge_update.operators import EdgeUpdate, MappedEdgeUpdate
from graphmamba.stack.gated_sum import checks, gated_sum_and_mean

__all__ = ["Updated", "map_edges", "update_edges"]

MOST_MAPPED = 64
"""Channels of a map that one of several programs holds."""
ARE_EDGES_MAPPED = False
"""Whether the map of the edges is part of it."""

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
    check_rows(edges, after=after)
    given = nodes, edges, layout, norm, scale, activation, rate_after, seed, real_edges, real_nodes
    rows, others = _operands(*given)
    x_hat, out, kept, sums = EdgeUpdate.apply(*rows, after, *others)  # type: ignore[no-untyped-call]
    return Updated(x_hat, out, kept[1], sums[1])


def map_edges(
    nodes: Float[Tensor, "nodes four_channels"],
    e: Edges,
    layout: EdgeLayout,
    maps: Linear,
    norm: BatchNorm,
    scale: Float[Tensor, " edges"] | None = None,
    *,
    activation: Activation = "none",
    rate_after: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    real_edges: Int[Tensor, ""] | None = None,
    real_nodes: Int[Tensor, ""] | None = None,
    backend: Backend = "auto",
    is_one: bool | None = None,
) -> Updated:
    r"""Map the edges, `update_edges`, and add the edges before the map at the end.

    .. math:: c = C e, \quad a = e

    Where kernels do all at once, c is nowhere written: they map a tile of edges, add what both ends
    of each edge say, and leave :math:`\hat e` for the sums over the edges of each node.

    Args:
        nodes: As for `update_edges`.
        e: The edges before the map.
        layout: As for `update_edges`.
        maps: The map C, whose own backend says what runs it.
        norm: As for `update_edges`.
        scale: As for `update_edges`.
        activation: As for `update_edges`.
        rate_after: As for `update_edges`.
        seed: As for `update_edges`.
        real_edges: As for `update_edges`.
        real_nodes: As for `update_edges`.
        backend: As for `update_edges`.
        is_one: Whether kernels do all at once where they can; None as it pays.
    """
    is_one = ARE_EDGES_MAPPED if is_one is None else is_one
    follow: dict[str, Any] = {
        "activation": activation, "rate_after": rate_after, "seed": seed, "real_edges": real_edges,
        "real_nodes": real_nodes,
    }  # fmt: skip
    if not (is_one and _is_mapped(maps, e) and _is_joint(backend, norm, e)):
        edges, e = linear_through(e, maps.weight, maps.bias, backend=maps.backend)
        return update_edges(nodes, edges, layout, norm, scale, after=e, backend=backend, **follow)
    rows, others = _operands(nodes, e, layout, norm, scale, **follow)
    found = MappedEdgeUpdate.apply(maps.weight, maps.bias, *rows, *others)  # type: ignore[no-untyped-call]
    x_hat, out, kept, sums = found
    return Updated(x_hat, out, kept[1], sums[1])


def _operands(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Edges,
    layout: EdgeLayout,
    norm: BatchNorm,
    scale: Float[Tensor, " edges"] | None,
    activation: Activation,
    rate_after: float,
    seed: Int[Tensor, ""] | None,
    real_edges: Int[Tensor, ""] | None,
    real_nodes: Int[Tensor, ""] | None,
) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Check them, and return those of the operator before and behind `after`."""
    checks.check_rows("fused", nodes, edges, scale)
    checks.check_layout(layout, nodes, edges)
    check_choice("activation", activation, get_args(Activation))
    check_fraction("rate_after", rate_after)
    running, drop = norm.running(), norm.drop_after(rate_after, seed, edges)
    rows = nodes, edges, None if scale is None else scale.float()
    orders = layout.target_order, layout.source_ptr, layout.source_order
    return (*rows, layout.edge_index, layout.target_ptr, *orders), (
        *(norm.weight, norm.bias, drop and drop.seed, real_edges, real_nodes),
        *(running.mean, running.variance, running.batches),
        *(activation, drop.rate if drop else 0.0, drop.site if drop else 0),
        *(running.momentum, norm.eps),
    )


def _is_joint(backend: Backend, norm: BatchNorm, edges: Edges) -> bool:
    """Tell whether kernels do both at once: where they would do each, and a batch is normalised.

    Compilers, which fuse what they see, get to see both.
    """
    if not norm.training or torch.compiler.is_compiling():
        return False
    is_fit = choose_backend(backend, edges.device) == "fused"
    return is_fit and is_fused(norm.backend, edges, norm.is_synced)


def _is_mapped(maps: Linear, e: Edges) -> bool:
    """Tell whether a program can hold the map, and may round what it multiplies."""
    fits = max(maps.weight.shape) <= MOST_MAPPED and may_round(e)
    return fits and is_fused_single(maps.backend, e, maps.weight)
