"""Numba kernels of the selective scan and its gradients, one vector register of channels at a time.

The steps of a block are copied to a tile in scan order, so that inner loops need no direction,
order of rows or remainder of channels. The backward pass recomputes each block from its saved
state, then runs it backwards. Sums over channels are kept per lane until the end of a block, sums
over steps per group, so the order of summation does not depend on the number of threads.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from numba import types

from graphmamba.ops.cpu_arrays import REGISTER_BYTES
from graphmamba.ops.cpu_compile import helper, kernel
from graphmamba.ops.cpu_vectors import (
    exp2,
    fma,
    hold,
    hold_slope,
    load,
    load_part,
    silu,
    silu_slope,
    softplus,
    softplus_slope,
    splat,
    stay_apart,
    store,
    store_part,
    to_base_two,
    total,
    zeros,
)

# Columns of the table of parts: a part is steps LOW to HIGH; ENTERS and LEAVES are the indices of
# its initial and final state among those at cuts, -1 where a sequence starts or ends.
LOW, HIGH, ENTERS, LEAVES = range(4)
INTERVAL = 32  # steps of a block, so that its tile fits into the L1 cache
PAIR = 2  # states per inner loop; the number of states is padded to a multiple

# Fields of a tile for each step; the last three have an entry for each of two states.
DT, DRIVE, Y, GRAD, GRAD_DT, GRAD_DRIVE, DECAYED, DECAY, HELD = 0, 1, 2, 3, 4, 5, 6, 8, 10
FIELDS = 12


class Inputs(NamedTuple):
    """Inputs of both passes; parameters are padded with 0 in channels and states."""

    u: np.ndarray
    delta: np.ndarray
    A: np.ndarray
    B: np.ndarray
    C: np.ndarray
    D: np.ndarray
    z: np.ndarray
    delta_bias: np.ndarray
    gate_rows: np.ndarray
    out_rows: np.ndarray


class How(NamedTuple):
    """Options of both passes."""

    softplus: bool
    zoh: bool
    reverse: bool
    has_skip: bool
    has_gate: bool


@no_type_check
def argument_types(real):
    """Numba's types of `Inputs` and `How`."""
    rows, table = types.Array(real, 2, "A"), types.Array(real, 2, "C")
    line, numbers = types.Array(real, 1, "C"), types.Array(types.int64, 1, "C")
    fields = [rows, rows, table, rows, rows, line, rows, line, numbers, numbers]
    return types.Tuple(fields), types.NamedUniTuple(types.boolean, 5, How)


@no_type_check
def part_types():
    """Numba's types of first and last group, table of parts and groups."""
    table, numbers = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")
    return types.int64, types.int64, table, numbers


@helper
@no_type_check
def aligned(like, shape):
    """Empty array that is aligned to vector registers."""
    size = 1
    for extent in shape:
        size *= extent
    raw = np.empty(size + REGISTER_BYTES // like.itemsize, like.dtype)
    skipped = (-raw.ctypes.data % REGISTER_BYTES) // like.itemsize
    return raw[skipped : skipped + size].reshape(shape)


@helper
@no_type_check
def block_of(low, high, index, reverse):
    """The `index`-th block of a part in scan order, and the range of its steps in the part."""
    block = (high - 1) // INTERVAL - index if reverse else low // INTERVAL + index
    return block, max(low, block * INTERVAL), min(high, (block + 1) * INTERVAL)


@helper
@no_type_check
def count_blocks(low, high):
    """Number of blocks that overlap a part."""
    return (high - 1) // INTERVAL - low // INTERVAL + 1


@helper
@no_type_check
def set_state(target, row, source, source_row):
    """Copy a state, or set it to 0 if `source_row` is negative."""
    for n in range(target.shape[1]):
        for channel in range(0, target.shape[2], REGISTER_BYTES // target.itemsize):
            value = zeros(target)
            if source_row >= 0:
                value = load(source, (source_row, n, channel))
            store(target, (row, n, channel), value)


@helper
@no_type_check
def fill_weights(weights, x, origin, step, count):
    """Transpose the block's rows of B and C, in scan order."""
    for k in range(count):
        for n in range(x.B.shape[1]):
            weights[0, n, k] = x.B[origin + step * k, n]
            weights[1, n, k] = x.C[origin + step * k, n]


@helper
@no_type_check
def fill_tile(tile, x, how, origin, step, count, channel, width):
    """Write dt, dt u and D u of the block to the tile."""
    bias, skip = load(x.delta_bias, channel), load(x.D, channel)
    for k in range(count):
        t = origin + step * k
        dt = load_part(x.delta, (t, channel), width) + bias
        if how.softplus:
            dt = softplus(dt)
        u = load_part(x.u, (t, channel), width)
        y = zeros(tile)
        if how.has_skip:
            y = skip * u
        store(tile, (k, DT, 0), dt)
        store(tile, (k, DRIVE, 0), dt * u)
        store(tile, (k, Y, 0), y)


@helper
@no_type_check
def add_dt(sums, row, tile, count, channel):
    """Kahan-sum the dt of the tile."""
    whole, excess = load(sums, (row, 0, channel)), load(sums, (row, 1, channel))
    for k in range(count):
        dt = load(tile, (k, DT, 0)) - excess
        raised = whole + dt
        excess = (raised - whole) - dt
        whole = raised
    store(sums, (row, 0, channel), whole)
    store(sums, (row, 1, channel), excess)


@no_type_check
def forward_signature(real):
    """Types of the arguments of `scan_forward`."""
    inputs, how = argument_types(real)
    cube, table = types.Array(real, 3, "C"), types.Array(real, 2, "C")
    return types.void(*part_types(), inputs, how, cube, cube, table, cube, cube)


@helper
@no_type_check
def forward_euler(tile, h, A, weights, count, channel):
    """Run the block by Euler's rule, two states at a time."""
    stay_apart()
    for n in range(0, h.shape[1], PAIR):
        rate0 = to_base_two(load(A, (n, channel)))
        rate1 = to_base_two(load(A, (n + 1, channel)))
        h0, h1 = load(h, (0, n, channel)), load(h, (0, n + 1, channel))
        for k in range(count):
            dt, drive = load(tile, (k, DT, 0)), load(tile, (k, DRIVE, 0))
            # Rounded as in the backward pass, which recomputes these states.
            h0 = fma(drive, splat(weights, (0, n, k)), exp2(dt * rate0) * h0)
            h1 = fma(drive, splat(weights, (0, n + 1, k)), exp2(dt * rate1) * h1)
            # Two states are summed first, which halves the roundings of y.
            y = fma(h0, splat(weights, (1, n, k)), h1 * splat(weights, (1, n + 1, k)))
            store(tile, (k, Y, 0), load(tile, (k, Y, 0)) + y)
        store(h, (0, n, channel), h0)
        store(h, (0, n + 1, channel), h1)


@helper
@no_type_check
def forward_zoh(tile, h, A, weights, count, channel):
    """Run the block by zero-order hold."""
    stay_apart()
    for n in range(h.shape[1]):
        rate, state = load(A, (n, channel)), load(h, (0, n, channel))
        for k in range(count):
            decay, held = hold(load(tile, (k, DT, 0)) * rate)
            drive = load(tile, (k, DRIVE, 0)) * splat(weights, (0, n, k))
            state = fma(drive, held, decay * state)
            y = fma(state, splat(weights, (1, n, k)), load(tile, (k, Y, 0)))
            store(tile, (k, Y, 0), y)
        store(h, (0, n, channel), state)


@helper
@no_type_check
def drain_tile(out, tile, x, how, origin, step, count, channel, width):
    """Gate the tile's y, and write it to the output."""
    for k in range(count):
        t = origin + step * k
        y = load(tile, (k, Y, 0))
        if how.has_gate:
            z = load_part(x.z, (x.gate_rows[t], channel), width)
            y = y * silu(z)
        store_part(out, (x.out_rows[t], channel), y, width)


@kernel(forward_signature)
@no_type_check
def scan_forward(first, last, parts, groups, arrays, how, entering, states, out, ends, sums):
    """Scan the groups `first` to `last`; write `out`, and `states` unless it is empty.

    If `ends` is not empty, only summaries are written: for each part that passes on a state, that
    state for an initial state of 0 to `ends`, and the sum of its dt to `sums`.
    """
    x = Inputs(*arrays)
    width, lanes = x.u.shape[1], REGISTER_BYTES // x.u.itemsize
    h = aligned(x.A, (1, x.A.shape[0], x.A.shape[1]))
    tile = aligned(x.A, (INTERVAL, FIELDS, lanes))
    weights = np.zeros((2, x.A.shape[0], INTERVAL), x.A.dtype)
    step, is_summary = -1 if how.reverse else 1, ends.shape[0] > 0
    for part in range(groups[first], groups[last]):
        low, high, leaves = parts[part, LOW], parts[part, HIGH], parts[part, LEAVES]
        if is_summary and leaves < 0:
            continue
        set_state(h, 0, entering, -1 if is_summary else parts[part, ENTERS])
        for index in range(count_blocks(low, high)):
            block, start, end = block_of(low, high, index, how.reverse)
            origin, count = end - 1 if how.reverse else start, end - start
            edge = min(x.u.shape[0], (block + 1) * INTERVAL)
            if states.shape[0] > 0 and (edge == end if how.reverse else start % INTERVAL == 0):
                set_state(states, block, h, 0)
            fill_weights(weights, x, origin, step, count)
            for channel in range(0, width, lanes):
                rest = width - channel
                fill_tile(tile, x, how, origin, step, count, channel, rest)
                if how.zoh:
                    forward_zoh(tile, h, x.A, weights, count, channel)
                else:
                    forward_euler(tile, h, x.A, weights, count, channel)
                if is_summary:
                    add_dt(sums, leaves, tile, count, channel)
                else:
                    drain_tile(out, tile, x, how, origin, step, count, channel, rest)
        if is_summary:
            set_state(ends, leaves, h, 0)


@helper
@no_type_check
def add_to(array, index, value):
    """Add lanes in place."""
    store(array, index, load(array, index) + value)


@helper
@no_type_check
def recompute(tile, states, row, n, rate0, rate1, weights, count, channel):
    """Recompute the block for two states, and save all decays and decayed states."""
    stay_apart()
    h0, h1 = zeros(tile), zeros(tile)
    if row >= 0:
        h0, h1 = load(states, (row, n, channel)), load(states, (row, n + 1, channel))
    for k in range(count):
        dt, drive = load(tile, (k, DT, 0)), load(tile, (k, DRIVE, 0))
        decay0, decay1 = exp2(dt * rate0), exp2(dt * rate1)
        h0, h1 = decay0 * h0, decay1 * h1
        store(tile, (k, DECAY, 0), decay0)
        store(tile, (k, DECAY + 1, 0), decay1)
        store(tile, (k, DECAYED, 0), h0)
        store(tile, (k, DECAYED + 1, 0), h1)
        h0 = fma(drive, splat(weights, (0, n, k)), h0)
        h1 = fma(drive, splat(weights, (0, n + 1, k)), h1)
        y = fma(h0, splat(weights, (1, n, k)), h1 * splat(weights, (1, n + 1, k)))
        add_to(tile, (k, Y, 0), y)


@helper
@no_type_check
def backward_euler(tile, weights, lane_sums, grad_h, grad_A, A, states, here):
    """Backward pass of the block by Euler's rule, two states at a time."""
    stay_apart()
    group, row, count, channel = here
    for n in range(0, A.shape[0], PAIR):
        A0, A1 = load(A, (n, channel)), load(A, (n + 1, channel))
        rate0, rate1 = to_base_two(A0), to_base_two(A1)
        recompute(tile, states, row, n, rate0, rate1, weights, count, channel)
        dh0, dh1 = load(grad_h, (0, n, channel)), load(grad_h, (0, n + 1, channel))
        dA0, dA1 = zeros(tile), zeros(tile)
        for back in range(count):
            k = count - 1 - back
            g, dt = load(tile, (k, GRAD, 0)), load(tile, (k, DT, 0))
            drive = load(tile, (k, DRIVE, 0))
            B0, B1 = splat(weights, (0, n, k)), splat(weights, (0, n + 1, k))
            decayed0, decayed1 = load(tile, (k, DECAYED, 0)), load(tile, (k, DECAYED + 1, 0))
            dh0 = fma(splat(weights, (1, n, k)), g, dh0)
            dh1 = fma(splat(weights, (1, n + 1, k)), g, dh1)
            h0, h1 = fma(drive, B0, decayed0), fma(drive, B1, decayed1)

            at0, at1 = (n, k, 0, 0), (n + 1, k, 0, 0)
            store(lane_sums, at0, fma(dh0, drive, load(lane_sums, at0)))
            store(lane_sums, at1, fma(dh1, drive, load(lane_sums, at1)))
            at0, at1 = (n, k, 1, 0), (n + 1, k, 1, 0)
            store(lane_sums, at0, fma(h0, g, load(lane_sums, at0)))
            store(lane_sums, at1, fma(h1, g, load(lane_sums, at1)))

            add_to(tile, (k, GRAD_DRIVE, 0), fma(dh0, B0, dh1 * B1))
            slope0, slope1 = dh0 * decayed0, dh1 * decayed1
            add_to(tile, (k, GRAD_DT, 0), fma(slope0, A0, slope1 * A1))
            dA0, dA1 = fma(slope0, dt, dA0), fma(slope1, dt, dA1)
            dh0 = dh0 * load(tile, (k, DECAY, 0))
            dh1 = dh1 * load(tile, (k, DECAY + 1, 0))
        store(grad_h, (0, n, channel), dh0)
        store(grad_h, (0, n + 1, channel), dh1)
        add_to(grad_A, (group, n, channel), dA0)
        add_to(grad_A, (group, n + 1, channel), dA1)


@helper
@no_type_check
def backward_zoh(tile, weights, lane_sums, grad_h, grad_A, A, states, here):
    """Recompute the block and run its backward pass, by zero-order hold."""
    stay_apart()
    group, row, count, channel = here
    for n in range(A.shape[0]):
        rate, h = load(A, (n, channel)), zeros(tile)
        if row >= 0:
            h = load(states, (row, n, channel))
        for k in range(count):
            decay, held = hold(load(tile, (k, DT, 0)) * rate)
            h = decay * h
            store(tile, (k, DECAY, 0), decay)
            store(tile, (k, HELD, 0), held)
            store(tile, (k, DECAYED, 0), h)
            h = fma(load(tile, (k, DRIVE, 0)) * splat(weights, (0, n, k)), held, h)
            store(tile, (k, Y, 0), fma(h, splat(weights, (1, n, k)), load(tile, (k, Y, 0))))

        dh, dA = load(grad_h, (0, n, channel)), zeros(tile)
        for back in range(count):
            k = count - 1 - back
            g, dt = load(tile, (k, GRAD, 0)), load(tile, (k, DT, 0))
            drive = load(tile, (k, DRIVE, 0))
            decay, decayed = load(tile, (k, DECAY, 0)), load(tile, (k, DECAYED, 0))
            B, held = splat(weights, (0, n, k)), load(tile, (k, HELD, 0))
            dh = fma(splat(weights, (1, n, k)), g, dh)
            dh_drive, dh_held = dh * drive, dh * held

            d_B = fma(dh_drive, held, load(lane_sums, (n, k, 0, 0)))
            store(lane_sums, (n, k, 0, 0), d_B)
            h = fma(drive * B, held, decayed)
            store(lane_sums, (n, k, 1, 0), fma(h, g, load(lane_sums, (n, k, 1, 0))))

            d_drive = fma(dh_held, B, load(tile, (k, GRAD_DRIVE, 0)))
            store(tile, (k, GRAD_DRIVE, 0), d_drive)
            slope = fma(dh_drive * B, hold_slope(dt * rate, decay, held), dh * decayed)
            store(tile, (k, GRAD_DT, 0), fma(slope, rate, load(tile, (k, GRAD_DT, 0))))
            dA = fma(slope, dt, dA)
            dh = dh * decay
        store(grad_h, (0, n, channel), dh)
        add_to(grad_A, (group, n, channel), dA)


class Gradients(NamedTuple):
    """Outputs of the backward pass: rows per step, gradients of parameters per group."""

    u: np.ndarray
    delta: np.ndarray
    B: np.ndarray
    C: np.ndarray
    z: np.ndarray
    A: np.ndarray
    D: np.ndarray
    delta_bias: np.ndarray


@no_type_check
def summary_signature(real):
    """Types of the arguments of `summarize_backward`."""
    inputs, how = argument_types(real)
    rows, cube = types.Array(real, 2, "A"), types.Array(real, 3, "C")
    return types.void(*part_types(), inputs, how, rows, cube, cube)


@no_type_check
def backward_signature(real):
    """Types of the arguments of `scan_backward`."""
    inputs, how = argument_types(real)
    rows, table = types.Array(real, 2, "A"), types.Array(real, 2, "C")
    cube = types.Array(real, 3, "C")
    gradients = types.NamedTuple([table] * 5 + [cube, table, table], Gradients)
    return types.void(*part_types(), inputs, how, rows, cube, cube, gradients)


@helper
@no_type_check
def fill_gradient(tile, grad, x, how, origin, step, count, channel, width):
    """Write the gradient before the gate to the tile, and clear the tile's sums."""
    for k in range(count):
        t = origin + step * k
        value = load_part(grad, (x.out_rows[t], channel), width)
        if how.has_gate:
            z = load_part(x.z, (x.gate_rows[t], channel), width)
            value = value * silu(z)
        store(tile, (k, GRAD, 0), value)
        store(tile, (k, GRAD_DT, 0), zeros(tile))
        store(tile, (k, GRAD_DRIVE, 0), zeros(tile))


@helper
@no_type_check
def drain_gradients(d, tile, grad, group, x, how, origin, step, count, channel, width):
    """Write the gradients of u, delta and z, and add those of D and the bias."""
    bias, skip = load(x.delta_bias, channel), load(x.D, channel)
    d_skip, d_bias = zeros(tile), zeros(tile)
    for k in range(count):
        t = origin + step * k
        u, dt = load_part(x.u, (t, channel), width), load(tile, (k, DT, 0))
        g, d_drive = load(tile, (k, GRAD, 0)), load(tile, (k, GRAD_DRIVE, 0))
        d_u = d_drive * dt
        if how.has_skip:
            d_u = fma(skip, g, d_u)
            d_skip = fma(g, u, d_skip)
        d_delta = fma(d_drive, u, load(tile, (k, GRAD_DT, 0)))
        if how.softplus:
            slope = softplus_slope(load_part(x.delta, (t, channel), width) + bias)
            d_delta = d_delta * slope
        d_bias = d_bias + d_delta
        store_part(d.u, (t, channel), d_u, width)
        store_part(d.delta, (t, channel), d_delta, width)
        if how.has_gate:
            row = x.out_rows[t]
            z = load_part(x.z, (x.gate_rows[t], channel), width)
            d_gate = load_part(grad, (row, channel), width) * load(tile, (k, Y, 0))
            store_part(d.z, (row, channel), d_gate * silu_slope(z), width)
    add_to(d.D, (group, channel), d_skip)
    add_to(d.delta_bias, (group, channel), d_bias)


@helper
@no_type_check
def clear(lane_sums, count):
    """Set the sums of the first `count` steps to 0."""
    for n in range(lane_sums.shape[0]):
        for k in range(count):
            store(lane_sums, (n, k, 0, 0), zeros(lane_sums))
            store(lane_sums, (n, k, 1, 0), zeros(lane_sums))


@helper
@no_type_check
def drain_weights(d, lane_sums, origin, step, count):
    """Write the gradients of B and C: sums over lanes."""
    for k in range(count):
        for n in range(d.B.shape[1]):
            d.B[origin + step * k, n] = total(load(lane_sums, (n, k, 0, 0)))
            d.C[origin + step * k, n] = total(load(lane_sums, (n, k, 1, 0)))


@kernel(summary_signature)
@no_type_check
def summarize_backward(first, last, parts, groups, arrays, how, grad, ends, sums):
    """For each part with an initial state, its gradient from the outputs of the part alone."""
    x = Inputs(*arrays)
    width, lanes = x.u.shape[1], REGISTER_BYTES // x.u.itemsize
    grad_h = aligned(x.A, (1, x.A.shape[0], x.A.shape[1]))
    tile = aligned(x.A, (INTERVAL, FIELDS, lanes))
    weights = np.zeros((2, x.A.shape[0], INTERVAL), x.A.dtype)
    step = -1 if how.reverse else 1
    for part in range(groups[first], groups[last]):
        low, high, row = parts[part, LOW], parts[part, HIGH], parts[part, ENTERS]
        if row < 0:
            continue
        set_state(grad_h, 0, ends, -1)
        for index in range(count_blocks(low, high) - 1, -1, -1):
            _, start, end = block_of(low, high, index, how.reverse)
            origin, count = end - 1 if how.reverse else start, end - start
            fill_weights(weights, x, origin, step, count)
            for channel in range(0, width, lanes):
                rest = width - channel
                fill_tile(tile, x, how, origin, step, count, channel, rest)
                add_dt(sums, row, tile, count, channel)
                fill_gradient(tile, grad, x, how, origin, step, count, channel, rest)
                for n in range(x.A.shape[0]):
                    rate = to_base_two(load(x.A, (n, channel)))
                    dh = load(grad_h, (0, n, channel))
                    for back in range(count):
                        k = count - 1 - back
                        dh = fma(splat(weights, (1, n, k)), load(tile, (k, GRAD, 0)), dh)
                        dh = dh * exp2(load(tile, (k, DT, 0)) * rate)
                    store(grad_h, (0, n, channel), dh)
        set_state(ends, row, grad_h, 0)


@kernel(backward_signature)
@no_type_check
def scan_backward(first, last, parts, groups, arrays, how, grad, states, entering, d):
    """Write the gradients of the groups `first` to `last`.

    `entering` holds the gradients of the states at cuts; the states are the last rows of `states`.
    """
    x = Inputs(*arrays)
    width, lanes = x.u.shape[1], REGISTER_BYTES // x.u.itemsize
    grad_h = aligned(x.A, (1, x.A.shape[0], x.A.shape[1]))
    tile = aligned(x.A, (INTERVAL, FIELDS, lanes))
    # One extra step: states exactly a page apart would share cache sets.
    lane_sums = aligned(x.A, (x.A.shape[0], INTERVAL + 1, 2, lanes))
    weights = np.zeros((2, x.A.shape[0], INTERVAL), x.A.dtype)
    carried = (x.u.shape[0] + INTERVAL - 1) // INTERVAL
    step = -1 if how.reverse else 1
    for group in range(first, last):
        for part in range(groups[group], groups[group + 1]):
            low, high = parts[part, LOW], parts[part, HIGH]
            set_state(grad_h, 0, entering, parts[part, LEAVES])
            for index in range(count_blocks(low, high) - 1, -1, -1):
                row, start, end = block_of(low, high, index, how.reverse)
                if index == 0:
                    enters = parts[part, ENTERS]
                    row = carried + enters if enters >= 0 else -1
                origin, count = end - 1 if how.reverse else start, end - start
                fill_weights(weights, x, origin, step, count)
                clear(lane_sums, count)
                for channel in range(0, width, lanes):
                    rest = width - channel
                    fill_tile(tile, x, how, origin, step, count, channel, rest)
                    fill_gradient(tile, grad, x, how, origin, step, count, channel, rest)
                    here = (group, row, count, channel)
                    if how.zoh:
                        backward_zoh(tile, weights, lane_sums, grad_h, d.A, x.A, states, here)
                    else:
                        backward_euler(tile, weights, lane_sums, grad_h, d.A, x.A, states, here)
                    drain_gradients(
                        d, tile, grad, group, x, how, origin, step, count, channel, rest
                    )
                drain_weights(d, lane_sums, origin, step, count)
