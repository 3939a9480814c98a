"""The selective scan as it is done without packing: every sequence padded to the longest one."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence


def selective_scan(
    u: Float[Tensor, "steps inner"],
    delta: Float[Tensor, "steps inner"],
    A: Float[Tensor, "inner state"],
    B: Float[Tensor, "steps state"],
    C: Float[Tensor, "steps state"],
    D: Float[Tensor, " inner"],
    z: Float[Tensor, "steps inner"],
    delta_bias: Float[Tensor, " inner"],
    *,
    cu_seqlens: Int[Tensor, " boundaries"],
) -> Float[Tensor, "steps inner"]:
    """Step through all sequences at once in plain PyTorch: the loop that packed forms must beat."""
    lengths = cu_seqlens.diff().tolist()
    dt = functional.softplus(delta + delta_bias)
    # Time comes first, so that each step reads one contiguous slice.
    dt, x, B, C = (pad_sequence(rows.split(lengths)) for rows in (dt, u, B, C))
    decay = torch.exp(dt[..., None] * A)  # [longest, sequences, inner, state]
    drive = (dt * x)[..., None] * B[:, :, None]  # [longest, sequences, inner, state]

    h = torch.zeros_like(drive[0])
    y = []
    for decay_t, drive_t, C_t in zip(decay, drive, C, strict=True):
        h = decay_t * h + drive_t
        y.append((h @ C_t[..., None])[..., 0])
    padded = torch.stack(y, dim=1)  # [sequences, longest, inner]

    out = torch.cat([rows[:length] for rows, length in zip(padded, lengths, strict=True)])
    return (out + D * u) * functional.silu(z)
