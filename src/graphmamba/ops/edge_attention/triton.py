"""Launches the Triton kernels of attention along edges."""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.edge_attention.reference import EPSILON, SCORE_LIMIT
from graphmamba.ops.edge_attention.triton_kernels import (
    attend_by_source_kernel,
    attend_by_target_kernel,
    attend_fwd_kernel,
)
from graphmamba.ops.segments.triton import Grid, Tile, partition
from graphmamba.ops.triton_launch import power_of_two

NUMBERS = 1024  # entries of a tile: edges times channels of a head
MANY_SHARED = 8  # shared features above which registers only suffice for half as many entries


def forward(
    nodes: Float[Tensor, "nodes three_channels"],
    features: Float[Tensor, "features channels"],
    edge_index: Int[Tensor, "2 edges"],
    feature: Int[Tensor, " edges"],
    target_ptr: Int[Tensor, " boundaries"],
    source_ptr: Int[Tensor, " boundaries"],  # noqa: ARG001
    source_order: Int[Tensor, " edges"],  # noqa: ARG001
    shared: int,  # noqa: ARG001
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, the scores of the edges, and 1 / sum of weights of each node."""
    (count, _), channels, edges = nodes.shape, features.shape[1], edge_index.shape[1]
    out = nodes.new_empty((count, channels))
    scores = nodes.new_empty((heads, edges), dtype=torch.float32)
    share = nodes.new_empty((heads, count), dtype=torch.float32)
    grid = _partition(count, edges, channels, heads)
    if count > 0:
        attend_fwd_kernel[(grid.programs,)](
            nodes, features, edge_index[0], feature, target_ptr, out, scores, share, count, edges,
            EPSILON=EPSILON, NODES_STRIDE=nodes.stride(0), FEATURES_STRIDE=features.stride(0),
            **grid.constants,
        )  # fmt: skip
    return out, scores, share


def backward(
    grad: Float[Tensor, "nodes channels"],
    out: Float[Tensor, "nodes channels"],
    scores: Float[Tensor, "heads edges"],
    share: Float[Tensor, "heads nodes"],
    nodes: Float[Tensor, "nodes three_channels"],
    features: Float[Tensor, "features channels"],
    edge_index: Int[Tensor, "2 edges"],
    feature: Int[Tensor, " edges"],
    target_ptr: Int[Tensor, " boundaries"],
    source_ptr: Int[Tensor, " boundaries"],
    source_order: Int[Tensor, " edges"],
    shared: int,
    heads: int,
) -> tuple[Tensor, Tensor]:
    """Return the gradients of nodes and features."""
    count, edges, (rows, channels) = nodes.shape[0], edge_index.shape[1], features.shape
    d_nodes, d_features = nodes.new_empty(nodes.shape), features.new_empty(features.shape)
    slopes = torch.empty_like(scores)
    grid = _partition(count, edges, channels, heads)
    numbers = NUMBERS // 2 if shared > MANY_SHARED else NUMBERS
    target_grid = _partition(count, edges, channels, heads, numbers)
    partial = scores.new_empty((target_grid.programs // heads, shared, channels))
    strides = {
        "GRAD_STRIDE": grad.stride(0), "NODES_STRIDE": nodes.stride(0),
        "FEATURES_STRIDE": features.stride(0),
    }  # fmt: skip
    if count > 0:
        attend_by_target_kernel[(target_grid.programs,)](
            grad, out, share, nodes, features, edge_index[0], feature, target_ptr, scores, slopes,
            d_nodes, d_features, partial, count, edges, rows - shared, SHARED=shared, **strides,
            **target_grid.constants,
        )  # fmt: skip
        attend_by_source_kernel[(grid.programs,)](
            grad, share, nodes, features, edge_index[1], feature, source_ptr, source_order, scores,
            slopes, d_nodes, count, edges, **strides, **grid.constants,
        )  # fmt: skip
    d_features[rows - shared :] = partial.sum(0)
    return d_nodes, d_features


def _partition(nodes: int, edges: int, channels: int, heads: int, numbers: int = NUMBERS) -> Grid:
    """Grid in which a program has one head of some nodes."""
    width = channels // heads
    block = max(power_of_two(width), 16)
    tile = Tile(edges=max(numbers // block, 4), channels=block)
    grid = partition(nodes, edges, heads * block, tile)
    constants: dict[str, Any] = {
        "CHANNELS": channels, "WIDTH": width, "SCALE": width**-0.5, "LIMIT": SCORE_LIMIT,
    }  # fmt: skip
    return Grid(grid.programs, grid.constants | constants)
