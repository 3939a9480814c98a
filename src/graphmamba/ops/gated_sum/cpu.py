"""The gated sum on the CPU, in Numba."""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.cpu_arrays import as_indices, as_rows, real_type, share_out
from graphmamba.ops.gated_sum.cpu_kernels import sum_by_source, sum_by_target, sum_forward
from graphmamba.ops.gated_sum.reference import EPSILON


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
    real, (count, channels) = real_type(nodes), (nodes.shape[0], edges.shape[1])
    x_hat = torch.empty((count, channels), dtype=real)
    e_hat = torch.empty(edges.shape, dtype=real)
    kept = torch.empty((2, count, channels), dtype=real)
    share_out(
        sum_forward(x_hat.numpy().dtype),
        count,
        *(as_rows(nodes, real), as_rows(edges, real), _numbers(scale, real)),
        *(as_indices(edge_index[0]), as_indices(target_ptr), as_indices(target_order)),
        *(_constants(real), x_hat.numpy(), e_hat.numpy(), *kept.numpy()),
    )
    return x_hat.to(nodes.dtype), e_hat.to(edges.dtype), kept


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
    real, (count, channels) = real_type(sent), sent.shape
    d_nodes = torch.empty((count, 4 * channels), dtype=real)
    d_edges = torch.empty(e_hat.shape, dtype=real)
    share = torch.empty(kept.shape[1:], dtype=real)
    d_scale = torch.zeros(0 if scale is None else len(scale), dtype=real)
    opened, factors = as_rows(e_hat, real), _numbers(scale, real)
    by_edge = np.empty((0, 0), opened.dtype) if d_e_hat is None else as_rows(d_e_hat, real)
    source, target = map(as_indices, edge_index)
    share_out(
        sum_by_target(opened.dtype),
        count,
        *(as_rows(d_x_hat, real), by_edge, *kept.numpy(), as_rows(sent, real), opened, factors),
        *(source, as_indices(target_ptr), as_indices(target_order), _constants(real)),
        *(d_nodes.numpy(), d_edges.numpy(), share.numpy(), d_scale.numpy()),
    )
    share_out(
        sum_by_source(opened.dtype),
        count,
        *(opened, d_edges.numpy(), share.numpy(), factors, target),
        *(as_indices(source_ptr), as_indices(source_order), d_nodes.numpy()),
    )
    return d_nodes.to(sent.dtype), d_edges.to(e_hat.dtype), d_scale


def _constants(real: torch.dtype) -> Float[np.ndarray, " constants"]:
    return torch.tensor([1.0, EPSILON], dtype=real).numpy()


def _numbers(values: Float[Tensor, " edges"] | None, real: torch.dtype) -> Float[np.ndarray, " _"]:
    if values is None:
        return torch.empty(0, dtype=real).numpy()
    return values.detach().to(real).contiguous().numpy()
