"""Numba kernels of the causal convolution and its gradients, one register of channels at a time."""

from typing import no_type_check

from numba import types

from graphmamba.ops.cpu_arrays import REGISTER_BYTES
from graphmamba.ops.cpu_compile import helper, kernel
from graphmamba.ops.cpu_vectors import (
    fma,
    load,
    load_part,
    silu,
    silu_slope,
    store,
    store_part,
    zeros,
)

GROUP = 512  # steps that a thread takes at a time, with one partial sum of each gradient
BLOCK = 8  # steps that are summed before they are added to the partial sum


@no_type_check
def forward_signature(real):
    """Types of the arguments of `conv_forward`."""
    rows, table, line = (types.Array(real, *kind) for kind in ((2, "A"), (2, "C"), (1, "C")))
    numbers = types.Array(types.int64, 1, "C")
    flags = types.boolean, types.boolean
    return types.void(
        types.int64, types.int64, rows, numbers, numbers, table, line, *flags, table, numbers
    )


@no_type_check
def backward_signature(real):
    """Types of the arguments of `conv_backward`."""
    rows, table, line = (types.Array(real, *kind) for kind in ((2, "A"), (2, "C"), (1, "C")))
    numbers, sums = types.Array(types.int64, 1, "C"), types.Array(real, 4, "C")
    flags = types.boolean, types.boolean
    return types.void(
        *(types.int64, types.int64, rows, numbers, numbers, table, line, *flags),
        *(rows, table, sums, sums),
    )


@helper
@no_type_check
def convolve(x, rows, position, weight, bias, step, t, channel):
    """Output of one step before the activation."""
    width = weight.shape[0]
    value = load(bias, channel)
    for back in range(min(width, position[t] + 1)):
        row = load_part(x, (rows[t + step * back], channel), x.shape[1] - channel)
        value = fma(load(weight, (width - 1 - back, channel)), row, value)
    return value


@kernel(forward_signature)
@no_type_check
def conv_forward(first, last, x, rows, position, weight, bias, activation, reverse, out, out_rows):
    """Write the outputs of the groups `first` to `last`.

    `position[t]` is the index of step `t` in its sequence, in the direction of the convolution.
    """
    step, lanes = 1 if reverse else -1, REGISTER_BYTES // x.itemsize
    for t in range(first * GROUP, min(last * GROUP, len(position))):
        for channel in range(0, x.shape[1], lanes):
            value = convolve(x, rows, position, weight, bias, step, t, channel)
            if activation:
                value = silu(value)
            store_part(out, (out_rows[t], channel), value, x.shape[1] - channel)


@helper
@no_type_check
def add_to(sums, group, row, channel, value):
    """Add to the Kahan sum of a group."""
    whole, excess = load(sums, (group, 0, row, channel)), load(sums, (group, 1, row, channel))
    value = value - excess
    raised = whole + value
    store(sums, (group, 0, row, channel), raised)
    store(sums, (group, 1, row, channel), (raised - whole) - value)


@helper
@no_type_check
def add_taps(d_weight, group, d_value, x, rows, position, step, start, end, channel):
    """Add the gradient of each tap over the steps of a block."""
    width, rest = d_weight.shape[2], x.shape[1] - channel
    for back in range(width):
        block_sum = zeros(x)
        for t in range(start, end):
            if position[t] >= back:
                row = load_part(x, (rows[t + step * back], channel), rest)
                block_sum = fma(load_part(d_value, (t, channel), rest), row, block_sum)
        add_to(d_weight, group, width - 1 - back, channel, block_sum)


@kernel(backward_signature)
@no_type_check
def conv_backward(
    first, last, x, rows, position, weight, bias, activation, reverse, grad, d_value, d_weight,
    d_bias,
):  # fmt: skip
    """Write the gradient before the activation, and sum those of taps and bias per group."""
    step, lanes = 1 if reverse else -1, REGISTER_BYTES // x.itemsize
    for group in range(first, last):
        stop = min((group + 1) * GROUP, len(position))
        for start in range(group * GROUP, stop, BLOCK):
            end = min(start + BLOCK, stop)
            for channel in range(0, x.shape[1], lanes):
                rest, block_sum = x.shape[1] - channel, zeros(x)
                for t in range(start, end):
                    value = load_part(grad, (t, channel), rest)
                    if activation:
                        before = convolve(x, rows, position, weight, bias, step, t, channel)
                        value = value * silu_slope(before)
                    store_part(d_value, (t, channel), value, rest)
                    block_sum = block_sum + value
                add_to(d_bias, group, 0, channel, block_sum)
                add_taps(d_weight, group, d_value, x, rows, position, step, start, end, channel)
