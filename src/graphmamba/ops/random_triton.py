"""Random bits on a GPU by one launch; `random_bits` has their definition."""

import torch
import triton
from jaxtyping import Int
from torch import Tensor

from graphmamba.ops.random_kernels import draw_kernel

BLOCK = 256
MOST_AXES = 2


def draw_bits(stream: Int[Tensor, "..."], counter: Int[Tensor, "..."] | int) -> Int[Tensor, "..."]:
    """64 random bits for each pair of a stream and a counter, which are of two axes at most."""
    counters = stream if isinstance(counter, int) else counter
    shape = torch.broadcast_shapes(stream.shape, counters.shape)
    out = torch.empty(shape, dtype=torch.int64, device=stream.device)
    rows, columns = (1,) * (MOST_AXES - len(shape)) + tuple(shape)
    strides = [step for each in (stream, counters) for step in each.expand(rows, columns).stride()]
    if out.numel():
        with torch.cuda.device_of(stream):
            draw_kernel[(triton.cdiv(rows * columns, BLOCK),)](
                *(stream, counters, out, counter if isinstance(counter, int) else 0),
                *(rows * columns, columns, *strides),
                HAS_COUNTERS=not isinstance(counter, int),
                BLOCK=BLOCK,
            )
    return out
