"""The network over frequencies on a GPU: which kernels run, on what tiles."""

from typing import Any

import torch
import triton
from jaxtyping import Float
from torch import Tensor

from graphmamba.encode.deep_set.fused_kernels import deep_set_bwd_kernel, deep_set_fwd_kernel
from graphmamba.fusing import may_round
from graphmamba.kernel_sizes import block_of
from graphmamba.line_sums import add_lines, share

BLOCK_NODES = 32
MOST_PROGRAMS = 660
"""That share a backward pass, five for each of an H200's processors."""
FORWARD_WARPS, BACKWARD_WARPS = 4, 2

Entries = Float[Tensor, "nodes frequencies"]
Signs = Float[Tensor, " frequencies"]
First = Float[Tensor, "hidden 2"]
Hidden = Float[Tensor, " hidden"]
Last = Float[Tensor, "channels hidden"]
Channels = Float[Tensor, " channels"]
Rows = Float[Tensor, "nodes channels"]


def forward(
    vectors: Entries, values: Entries, signs: Signs | None,
    first: First, first_bias: Hidden, last: Last, last_bias: Channels,
) -> Rows:  # fmt: skip
    """Sum over the frequencies of each node."""
    nodes, out = vectors.shape[0], vectors.new_empty(vectors.shape[0], last.shape[0])
    if nodes:
        deep_set_fwd_kernel[(triton.cdiv(nodes, BLOCK_NODES),)](
            *(vectors, values, vectors if signs is None else signs),
            *(first.contiguous(), first_bias, last.contiguous(), last_bias, out, nodes),
            num_warps=FORWARD_WARPS,
            **_constants(vectors, values, signs, last),
        )
    return out


def backward(
    grad: Rows, vectors: Entries, values: Entries, signs: Signs | None,
    first: First, first_bias: Hidden, last: Last, last_bias: Channels,
) -> tuple[First, Hidden, Last, Channels]:  # fmt: skip
    """Gradients of both maps."""
    make = torch.empty_like if grad.numel() else torch.zeros_like
    found = tuple(make(each.contiguous()) for each in (first, first_bias, last, last_bias))
    if grad.numel():
        line = sum(each.numel() for each in found)
        tiles, programs = share(grad.shape[0], BLOCK_NODES, MOST_PROGRAMS, line)
        lines = grad.new_empty(programs, line)
        deep_set_bwd_kernel[(programs,)](
            *(vectors, values, vectors if signs is None else signs),
            *(first.contiguous(), first_bias, last.contiguous(), last_bias),
            *(grad, lines, grad.shape[0], tiles),
            GRAD_STRIDE=grad.stride(0),
            num_warps=BACKWARD_WARPS,
            **_constants(vectors, values, signs, last),
        )
        add_lines(lines, *found)
    return found[0], found[1], found[2], found[3]


def _constants(
    vectors: Entries, values: Entries, signs: Signs | None, last: Last
) -> dict[str, Any]:
    channels, hidden = last.shape
    return {
        "FREQUENCIES": vectors.shape[1], "VECTOR_STRIDE": vectors.stride(0),
        "VALUE_STRIDE": values.stride(0), "HAS_SIGNS": signs is not None,
        "HIDDEN": hidden, "CHANNELS": channels,
        "H": block_of(hidden), "C": block_of(channels),
        "T": BLOCK_NODES, "PRECISION": "tf32" if may_round(last) else "ieee",
    }  # fmt: skip
