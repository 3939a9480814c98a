"""The selective scan as in the paper: step by step, in plain PyTorch."""

import math
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

# Discretised B: `euler` is dt * B, `zoh` (zero-order hold) is equation 2 of the paper.
Discretization = Literal["euler", "zoh"]
# Series of (exp(x) - 1) / x; for |x| < SMALL the remainder is below the precision of float64.
SMALL = 0.1
SERIES = [1 / math.factorial(power + 1) for power in range(9)]


def selective_scan(
    u: Float[Tensor, "steps inner"],
    delta: Float[Tensor, "steps inner"],
    A: Float[Tensor, "inner state"],
    B: Float[Tensor, "steps state"],
    C: Float[Tensor, "steps state"],
    D: Float[Tensor, " inner"] | None = None,
    z: Float[Tensor, "rows inner"] | None = None,
    delta_bias: Float[Tensor, " inner"] | None = None,
    *,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None = None,
    scatter: bool = False,
    softplus: bool = True,
    discretization: Discretization = "euler",
    reverse: bool = False,
    log_A: bool = False,
) -> Float[Tensor, "steps inner"]:
    """Reference of `graphmamba.ops.selective_scan`."""
    dtype = u.dtype
    exact = torch.promote_types(dtype, torch.float32)
    u, delta, A, B, C = (tensor.to(exact) for tensor in (u, delta, A, B, C))

    A = -torch.exp(A) if log_A else A
    dt = delta if delta_bias is None else delta + delta_bias.to(exact)
    dt = functional.softplus(dt) if softplus else dt
    decay = torch.exp(dt[:, :, None] * A)  # [steps, inner, state]
    dB = _input_weight(dt, A, discretization) * B[:, None, :]  # [steps, inner, state]
    drive = dB * u[:, :, None]  # [steps, inner, state]

    y = [u.new_zeros(u.shape[1])] * u.shape[0]
    for start, end in pairwise(cu_seqlens.tolist()):
        h = torch.zeros_like(A)
        for t in reversed(range(start, end)) if reverse else range(start, end):
            h = decay[t] * h + drive[t]
            y[t] = h @ C[t]
    # Without steps, the empty output still has to depend on the inputs.
    out = torch.stack(y) if y else (decay * drive * C[:, None, :]).sum(dim=-1)

    if D is not None:
        out = out + D.to(exact) * u
    if z is not None:
        gate = z if order is None else z[order % z.shape[0]]
        out = out * functional.silu(gate.to(exact))
    if scatter and order is not None:
        out = torch.zeros_like(out).index_copy(0, order.long(), out)
    return out.to(dtype)


def _input_weight(
    dt: Float[Tensor, "steps inner"], A: Float[Tensor, "inner state"], how: Discretization
) -> Float[Tensor, "steps inner state"]:
    """Weight of B: dt (Euler) or (exp(dt A) - 1) / A (zero-order hold)."""
    if how == "euler":
        return dt[:, :, None].expand(*dt.shape, A.shape[1])
    # dt (exp(x) - 1) / x with x = dt A, by its series near 0, where the quotient cancels. Each
    # branch gets safe values in the entries of the other, which keeps both gradients finite.
    x = dt[:, :, None] * A
    is_small = x.abs() < SMALL
    small, large = torch.where(is_small, x, 0.0), torch.where(is_small, 1.0, x)
    series = torch.zeros_like(x)
    for factor in reversed(SERIES):
        series = series * small + factor
    return dt[:, :, None] * torch.where(is_small, series, torch.expm1(large) / large)
