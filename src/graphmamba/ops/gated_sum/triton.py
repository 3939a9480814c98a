"""Launches the Triton kernels of the gated sum."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.dropout import site_key
from graphmamba.ops.gated_sum.reference import EPSILON
from graphmamba.ops.gated_sum.triton_kernels import (
    gated_sum_by_source_kernel,
    gated_sum_by_target_kernel,
    gated_sum_fwd_kernel,
)
from graphmamba.ops.registration import either
from graphmamba.ops.segments.triton import Tile, partition

TILE = Tile()


class NormAfter(NamedTuple):
    """The BatchNorm, activation and dropout of e_hat, for a fused backward pass."""

    kept: Float[Tensor, "2 channels"]  # mean, 1 / std
    weight: Float[Tensor, " channels"]
    bias: Float[Tensor, " channels"]
    d_weight: Float[Tensor, " channels"]
    d_bias: Float[Tensor, " channels"]
    seed: Int[Tensor, ""] | None
    real: Int[Tensor, ""] | None  # number of edges without those of a padding graph
    activation: str
    rate: float
    site: int


def forward(
    nodes: Float[Tensor, "nodes four_channels"],
    edges: Float[Tensor, "edges channels"],
    scale: Float[Tensor, " edges"] | None,
    edge_index: Int[Tensor, "2 edges"],
    target_ptr: Int[Tensor, " boundaries"],
    target_order: Int[Tensor, " edges"] | None,
    source_ptr: Int[Tensor, " boundaries"],  # noqa: ARG001
    source_order: Int[Tensor, " edges"],  # noqa: ARG001
) -> tuple[Tensor, Tensor, Tensor]:
    """Return x_hat, e_hat, and for each node 1 / sum of its gates and the weighted mean."""
    count, channels = nodes.shape[0], edges.shape[1]
    x_hat, e_hat = nodes.new_empty((count, channels)), edges.new_empty(edges.shape)
    kept = nodes.new_empty((2, count, channels), dtype=torch.float32)
    grid = partition(count, edges.shape[0], channels, TILE)
    if count > 0:
        gated_sum_fwd_kernel[(grid.programs,)](
            nodes, edges, either(scale, edges), edge_index, target_ptr,
            either(target_order, edge_index), x_hat, e_hat, *kept, count, EPSILON=EPSILON,
            NODES_STRIDE=nodes.stride(0), EDGES_STRIDE=edges.stride(0),
            HAS_SCALE=scale is not None, HAS_ORDER=target_order is not None, **grid.constants,
        )  # fmt: skip
    return x_hat, e_hat, kept


def backward(
    d_x_hat: Float[Tensor, "nodes channels"],
    d_e_hat: Float[Tensor, "edges channels"] | None,
    e_hat: Float[Tensor, "edges channels"],
    kept: Float[Tensor, "2 nodes channels"],
    sent: Float[Tensor, "nodes channels"],
    scale: Float[Tensor, " edges"] | None,
    edge_index: Int[Tensor, "2 edges"],
    target_ptr: Int[Tensor, " boundaries"],
    target_order: Int[Tensor, " edges"] | None,
    source_ptr: Int[Tensor, " boundaries"],
    source_order: Int[Tensor, " edges"],
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of nodes, edges and scale; shape (0,) for None."""
    d_nodes, d_edges, d_scale, share = backward_by_target(
        d_x_hat, d_e_hat, e_hat, kept, sent, scale, edge_index, target_ptr, target_order
    )
    backward_by_source(d_nodes, e_hat, d_edges, share, scale, edge_index, source_ptr, source_order)
    return d_nodes, d_edges, d_scale


def backward_by_target(
    d_x_hat: Float[Tensor, "nodes channels"],
    d_e_hat: Float[Tensor, "edges channels"] | None,
    e_hat: Float[Tensor, "edges channels"],
    kept: Float[Tensor, "2 nodes channels"],
    sent: Float[Tensor, "nodes channels"],
    scale: Float[Tensor, " edges"] | None,
    edge_index: Int[Tensor, "2 edges"],
    target_ptr: Int[Tensor, " boundaries"],
    target_order: Int[Tensor, " edges"] | None,
    norm: NormAfter | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of nodes, edges and scale, and the `share` of `backward_by_source`.

    That function writes the gradients of b and e of the nodes. With `norm`, `d_e_hat` is the
    gradient of e_hat after the norm in training.
    """
    (count, channels), edges = sent.shape, e_hat.shape[0]
    d_nodes, d_edges = sent.new_empty((count, 4 * channels)), e_hat.new_empty(e_hat.shape)
    share = torch.empty_like(kept[0])
    # placeholders if there is no norm
    after = norm or NormAfter(kept, kept, kept, kept, kept, None, None, "none", 0.0, 0)
    grid = partition(count, edges, channels, TILE)
    parts = kept.new_empty((grid.constants["BLOCKS"] if scale is not None else 0, edges))
    if count > 0:
        gated_sum_by_target_kernel[(grid.programs,)](
            d_x_hat, either(d_e_hat, e_hat), *kept, sent, e_hat, either(scale, e_hat), edge_index,
            target_ptr, either(target_order, edge_index), *after[:5],
            either(after.seed, edge_index), either(after.real, edge_index), d_nodes, d_edges, share,
            parts, count, edges, site_key(after.site), SENT_STRIDE=sent.stride(0),
            DX_STRIDE=d_x_hat.stride(0), DE_STRIDE=0 if d_e_hat is None else d_e_hat.stride(0),
            HAS_SCALE=scale is not None, HAS_ORDER=target_order is not None,
            HAS_DE=d_e_hat is not None, HAS_NORM=norm is not None,
            HAS_GHOSTS=after.real is not None, ACTIVATION=after.activation,
            THRESHOLD=round(after.rate * 2**32), SCALE=1 / (1 - after.rate), **grid.constants,
        )  # fmt: skip
    d_scale = parts.sum(0) if scale is not None else kept.new_empty(0)
    return d_nodes, d_edges, d_scale, share


def backward_by_source(
    d_nodes: Float[Tensor, "nodes four_channels"],
    e_hat: Float[Tensor, "edges channels"],
    d_edges: Float[Tensor, "edges channels"],
    share: Float[Tensor, "nodes channels"],
    scale: Float[Tensor, " edges"] | None,
    edge_index: Int[Tensor, "2 edges"],
    source_ptr: Int[Tensor, " boundaries"],
    source_order: Int[Tensor, " edges"],
) -> None:
    """Write the gradients of b and e to `d_nodes`."""
    (count, channels), edges = share.shape, e_hat.shape[0]
    grid = partition(count, edges, channels, TILE)
    if count > 0:
        gated_sum_by_source_kernel[(grid.programs,)](
            e_hat, d_edges, share, either(scale, e_hat), edge_index[1], source_ptr, source_order,
            d_nodes, count, HAS_SCALE=scale is not None, **grid.constants,
        )  # fmt: skip
