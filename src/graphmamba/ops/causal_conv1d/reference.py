"""The depthwise causal convolution, one tap after another, in plain PyTorch."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional


def causal_conv1d(
    x: Float[Tensor, "rows inner"],
    weight: Float[Tensor, "inner width"],
    bias: Float[Tensor, " inner"] | None = None,
    *,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None = None,
    permutation: bool = False,  # noqa: ARG001
    activation: bool = True,
    reverse: bool = False,
) -> Float[Tensor, "steps inner"]:
    """Reference of `graphmamba.ops.causal_conv1d`."""
    exact = torch.promote_types(x.dtype, torch.float32)
    rows = x if order is None else x[order % x.shape[0]]
    rows, taps = rows.to(exact), weight.to(exact)
    steps, width = rows.shape[0], weight.shape[1]

    t = torch.arange(steps, device=x.device)
    sequence = torch.searchsorted(cu_seqlens.long(), t, right=True)
    first, last = cu_seqlens.long()[sequence - 1], cu_seqlens.long()[sequence] - 1

    out = torch.zeros_like(rows) if bias is None else bias.to(exact).expand_as(rows)
    for back in range(width):
        source = t + back if reverse else t - back
        inside = (source >= first) & (source <= last)
        taken = rows[source.clamp(0, max(steps - 1, 0))]
        # `where`, since a product with the mask would keep a NaN of another sequence.
        taken = torch.where(inside[:, None], taken, 0)
        out = out + taps[:, width - 1 - back] * taken
    return (functional.silu(out) if activation else out).to(x.dtype)
