"""Hands tensors to compiled kernels: one real type, dense rows, channels that fill registers."""

import numpy as np
import torch
from jaxtyping import Float
from torch import SymInt, Tensor

REGISTER_BYTES = 64

LANES = REGISTER_BYTES // 4
"""Channels are filled up to a multiple: a register of the shorter real type, two of the longer."""


def fill_up(count: int | SymInt, multiple: int) -> int | SymInt:
    """The next multiple."""
    return (count + multiple - 1) // multiple * multiple


def real_type(tensor: Float[Tensor, "..."]) -> torch.dtype:
    """The type that kernels compute in."""
    return torch.promote_types(tensor.dtype, torch.float32)


def as_rows(
    tensor: Float[Tensor, "rows columns"], real: torch.dtype
) -> Float[np.ndarray, "rows columns"]:
    """An array whose rows are dense; a copy only where type or layout ask for one."""
    tensor = tensor.detach().to(real)
    return (tensor if tensor.stride(1) == 1 else tensor.contiguous()).numpy()


def as_parameter(
    tensor: Float[Tensor, "..."] | None, shape: tuple[int | SymInt, ...], real: torch.dtype
) -> Float[np.ndarray, "..."]:
    """An array of that shape, filled up with 0."""
    filled = torch.zeros(shape, dtype=real)
    if tensor is not None:
        filled[tuple(map(slice, tensor.shape))] = tensor.detach()
    return filled.numpy()


def add_groups(
    partial: Float[np.ndarray, "groups ..."], like: Float[Tensor, "..."] | None
) -> Float[Tensor, "..."]:
    """The sum over groups, in the shape and type of the parameter; without one, shape (0,)."""
    if like is None:
        return torch.empty(0)
    # NumPy adds the groups one after another, on one thread.
    whole = torch.from_numpy(partial.sum(0, dtype=np.float64))
    return whole[tuple(map(slice, like.shape))].to(like.dtype).contiguous()
