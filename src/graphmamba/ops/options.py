"""The choices that both operations share, as types."""

from typing import Literal

Discretization = Literal["euler", "zoh"]
"""How B enters the state: `euler` is dt * B, `zoh` (zero-order hold) the paper's equation 2."""

Backend = Literal["auto", "reference", "cpu", "fused"]
"""`auto` is `fused` (Triton) for tensors on a GPU and `cpu` (Numba) for the others."""
