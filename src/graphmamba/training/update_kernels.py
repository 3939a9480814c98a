"""Triton kernels of the weight update: all parameters of a model in two launches.

Parameters are divided into blocks. A table has one row per block: the addresses of its weights and
both moments, the offset of its gradients in the flat buffer, and its size.
"""

from typing import no_type_check

import triton
import triton.language as tl

FIELDS = tl.constexpr(5)


@no_type_check
@triton.jit(do_not_specialize=["numbers"])
def squares_kernel(flat_ptr, squares_ptr, numbers, BLOCK: tl.constexpr):
    """Sum the squares of a block of gradients, divided by the number of labels (the last entry)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    labels = tl.maximum(tl.load(flat_ptr + numbers), 1.0)
    gradient = tl.load(flat_ptr + at, mask=at < numbers, other=0.0) / labels
    tl.store(squares_ptr + tl.program_id(0), tl.sum(gradient * gradient, axis=0))


@no_type_check
@triton.jit
def block_at(line, field):
    """Return the address in a field of the table as a pointer."""
    return tl.load(line + field).to(tl.pointer_type(tl.float32))


@no_type_check
@triton.jit(do_not_specialize=["numbers", "sums"])
def update_kernel(
    table_ptr, flat_ptr, squares_ptr, rate_ptr, step_ptr, own_ptr, loss_ptr, numbers, sums,
    CLIP: tl.constexpr, DECAY: tl.constexpr, IS_DECOUPLED: tl.constexpr, BETA_1: tl.constexpr,
    BETA_2: tl.constexpr, LOG_1: tl.constexpr, LOG_2: tl.constexpr, EPSILON: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Divide by the labels and clip a block of gradients, and update its moments and weights.

    The first program writes the mean loss, or NaN if the gradient norm is not finite.
    """
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, sums, BLOCK):
        total += tl.load(squares_ptr + first + lane, mask=first + lane < sums, other=0.0)
    norm = tl.sqrt(tl.sum(total, axis=0))
    if tl.program_id(0) == 0:
        loss = tl.load(own_ptr) / tl.maximum(tl.load(own_ptr + 1), 1.0)
        tl.store(loss_ptr, tl.where(norm < float("inf"), loss, float("nan")))
    scale = 1.0
    if CLIP > 0:
        # NaN must stay NaN: the run has to stop
        scale = CLIP / (norm + 1e-6)
        scale = tl.where(scale > 1.0, 1.0, scale)

    line = table_ptr + tl.program_id(0) * FIELDS
    weights_ptr, first_ptr, second_ptr = block_at(line, 0), block_at(line, 1), block_at(line, 2)
    inside = lane < tl.load(line + 4)
    labels = tl.maximum(tl.load(flat_ptr + numbers), 1.0)
    gradient = tl.load(flat_ptr + tl.load(line + 3) + lane, mask=inside, other=0.0)
    gradient = gradient / labels * scale
    weights = tl.load(weights_ptr + lane, mask=inside, other=0.0)
    rate = tl.load(rate_ptr).to(tl.float32)
    if IS_DECOUPLED:
        weights -= rate * DECAY * weights
    else:
        gradient += DECAY * weights
    mean = BETA_1 * tl.load(first_ptr + lane, mask=inside, other=0.0) + (1 - BETA_1) * gradient
    square = tl.load(second_ptr + lane, mask=inside, other=0.0)
    square = BETA_2 * square + (1 - BETA_2) * gradient * gradient
    # early on these are small differences of numbers near 1
    step = tl.load(step_ptr).to(tl.float64)
    start_1 = (1.0 - tl.exp2(step * LOG_1)).to(tl.float32)
    start_2 = (1.0 - tl.exp2(step * LOG_2)).to(tl.float32)
    weights -= (rate / start_1) * mean / (tl.sqrt(square) / tl.sqrt(start_2) + EPSILON)
    tl.store(weights_ptr + lane, weights, mask=inside)
    tl.store(first_ptr + lane, mean, mask=inside)
    tl.store(second_ptr + lane, square, mask=inside)
