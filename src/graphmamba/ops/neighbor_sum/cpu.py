"""The sum over neighbours on the CPU, compiled by Numba."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.cpu_arrays import as_indices, as_rows, real_type, share_out
from graphmamba.ops.neighbor_sum.cpu_kernels import sum_neighbors


def forward(
    rows: Float[Tensor, "nodes channels"],
    others: Int[Tensor, " edges"],
    ptr: Int[Tensor, " boundaries"],
    order: Int[Tensor, " edges"] | None,
) -> Float[Tensor, "nodes channels"]:
    """Return for each node the sum of the rows at the other ends of its edges."""
    real, nodes = real_type(rows), ptr.shape[0] - 1
    out = torch.empty((nodes, rows.shape[1]), dtype=real)
    indices = as_indices(others), as_indices(ptr), as_indices(order)
    arrays = as_rows(rows.contiguous(), real), *indices, out.numpy()
    share_out(sum_neighbors(out.numpy().dtype), nodes, *arrays)
    return out.to(rows.dtype)
