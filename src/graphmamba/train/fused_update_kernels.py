"""Triton kernels of the update: all tensors of a model in two launches.

Each has a line of numbers: addresses of weights, gradient, both moments and the step's number, its
size, and the first program that works on it.
"""

from typing import no_type_check

import triton
import triton.language as tl

FIELDS = tl.constexpr(7)
GRADIENT, FIRST, SECOND, STEP = tl.constexpr(1), tl.constexpr(2), tl.constexpr(3), tl.constexpr(4)
SIZE, PROGRAM = tl.constexpr(5), tl.constexpr(6)


@no_type_check
@triton.jit
def line_of(table_ptr, program, tensors, TENSORS: tl.constexpr):
    """Point to the line of the tensor that a program works on."""
    number = tl.arange(0, TENSORS)
    begins = tl.load(table_ptr + number * FIELDS + PROGRAM, mask=number < tensors, other=1 << 40)
    return table_ptr + (tl.sum((begins <= program).to(tl.int32), axis=0) - 1) * FIELDS


@no_type_check
@triton.jit
def numbers_at(line, field):
    """Return the address in a field as a pointer."""
    return tl.load(line + field).to(tl.pointer_type(tl.float32))


@no_type_check
@triton.jit
def squares_kernel(
    table_ptr, squares_ptr, tensors, TENSORS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Sum the squares of a block of a gradient; the first block of a tensor counts its step."""
    program = tl.program_id(0)
    line = line_of(table_ptr, program, tensors, TENSORS)
    begin = program - tl.load(line + PROGRAM).to(tl.int32)
    at = begin * BLOCK + tl.arange(0, BLOCK)
    gradient = tl.load(numbers_at(line, GRADIENT) + at, mask=at < tl.load(line + SIZE), other=0.0)
    tl.store(squares_ptr + program, tl.sum(gradient * gradient, axis=0))
    if begin == 0:
        step_ptr = numbers_at(line, STEP)
        tl.store(step_ptr, tl.load(step_ptr) + 1.0)


@no_type_check
@triton.jit
def update_kernel(
    table_ptr, squares_ptr, rate_ptr, norm_ptr, tensors, programs, CLIP: tl.constexpr,
    DECAY: tl.constexpr, IS_DECOUPLED: tl.constexpr, BETA_1: tl.constexpr, BETA_2: tl.constexpr,
    LOG_1: tl.constexpr, LOG_2: tl.constexpr, EPSILON: tl.constexpr, TENSORS: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Clip a block of the gradient by the norm of all of it, and update moments and weights."""
    program = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for first in range(0, programs, BLOCK):
        at = first + lane
        total += tl.load(squares_ptr + at, mask=at < programs, other=0.0)
    norm = tl.sqrt(tl.sum(total, axis=0))
    tl.store(norm_ptr, norm, mask=program == 0)
    clip = 1.0
    if CLIP > 0:
        # A quotient that is not a number must stay so: the run has to end.
        clip = CLIP / (norm + 1e-6)
        clip = tl.where(clip > 1.0, 1.0, clip)

    line = line_of(table_ptr, program, tensors, TENSORS)
    at = (program - tl.load(line + PROGRAM).to(tl.int32)) * BLOCK + lane
    inside = at < tl.load(line + SIZE)
    weights_ptr, first_ptr, second_ptr = (
        numbers_at(line, 0), numbers_at(line, FIRST), numbers_at(line, SECOND)
    )  # fmt: skip
    weights = tl.load(weights_ptr + at, mask=inside, other=0.0)
    gradient = tl.load(numbers_at(line, GRADIENT) + at, mask=inside, other=0.0) * clip
    rate = tl.load(rate_ptr).to(tl.float32)
    if IS_DECOUPLED:
        weights -= rate * DECAY * weights
    else:
        gradient += DECAY * weights
    mean = BETA_1 * tl.load(first_ptr + at, mask=inside, other=0.0) + (1 - BETA_1) * gradient
    square = tl.load(second_ptr + at, mask=inside, other=0.0)
    square = BETA_2 * square + (1 - BETA_2) * gradient * gradient
    # Early on these are small differences of numbers near 1.
    step = tl.load(numbers_at(line, STEP)).to(tl.float64)
    start_1 = (1.0 - tl.exp2(step * LOG_1)).to(tl.float32)
    start_2 = (1.0 - tl.exp2(step * LOG_2)).to(tl.float32)
    weights -= (rate / start_1) * mean / (tl.sqrt(square) / tl.sqrt(start_2) + EPSILON)
    tl.store(weights_ptr + at, weights, mask=inside)
    tl.store(first_ptr + at, mean, mask=inside)
    tl.store(second_ptr + at, square, mask=inside)
