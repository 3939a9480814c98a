"""Gradients of the selective scan: each block is walked again from its kept state, then back.

Sums over channels stay apart lane by lane until a block is done, sums over steps group by group:
each sum has one order, whoever computes it.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from numba import types

from graphmamba.ops.arrays import REGISTER_BYTES
from graphmamba.ops.compiled import helper
from graphmamba.ops.cpu_compiled import kernel
from graphmamba.ops.lanes import fma, load, load_part, splat, store, store_part, total, zeros
from graphmamba.ops.pieces import ENTERS, HIGH, LEAVES, LOW
from graphmamba.ops.selective_scan.cpu_tile import (
    DT,
    FIELDS,
    GRAD,
    GRAD_DRIVE,
    GRAD_DT,
    INTERVAL,
    Inputs,
    Y,
    add_dt,
    aligned,
    argument_types,
    block_of,
    count_blocks,
    fill_tile,
    fill_weights,
    piece_types,
    set_state,
)
from graphmamba.ops.selective_scan.cpu_walk_back_kernels import add_to, walk_back, walk_back_held
from graphmamba.ops.vector_math import exp2, silu, silu_slope, softplus_slope, to_base_two


class Gradients(NamedTuple):
    """What the backward pass writes: rows step by step, parameters group by group."""

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
    return types.void(*piece_types(), inputs, how, rows, cube, cube)


@no_type_check
def backward_signature(real):
    """Types of the arguments of `scan_backward`."""
    inputs, how = argument_types(real)
    rows, table = types.Array(real, 2, "A"), types.Array(real, 2, "C")
    cube = types.Array(real, 3, "C")
    gradients = types.NamedTuple([table] * 5 + [cube, table, table], Gradients)
    return types.void(*piece_types(), inputs, how, rows, cube, cube, gradients)


@helper
@no_type_check
def fill_gradient(tile, grad, x, how, origin, step, count, channel, width):
    """Put the gradient before the gate in the tile, and clear what it gathers."""
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
    """Turn what the tile gathered into the gradients of u, delta, z, and of D and the bias."""
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
    """Add up the lanes to the gradients of B and C."""
    for k in range(count):
        for n in range(d.B.shape[1]):
            d.B[origin + step * k, n] = total(load(lane_sums, (n, k, 0, 0)))
            d.C[origin + step * k, n] = total(load(lane_sums, (n, k, 1, 0)))


@kernel(summary_signature)
@no_type_check
def summarize_backward(first, last, pieces, groups, arrays, how, grad, ends, sums):
    """For each piece that a state enters, its gradient if none came from the steps after it."""
    x = Inputs(*arrays)
    width, lanes = x.u.shape[1], REGISTER_BYTES // x.u.itemsize
    grad_h = aligned(x.A, (1, x.A.shape[0], x.A.shape[1]))
    tile = aligned(x.A, (INTERVAL, FIELDS, lanes))
    weights = np.zeros((2, x.A.shape[0], INTERVAL), x.A.dtype)
    step = -1 if how.reverse else 1
    for piece in range(groups[first], groups[last]):
        low, high, row = pieces[piece, LOW], pieces[piece, HIGH], pieces[piece, ENTERS]
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
def scan_backward(first, last, pieces, groups, arrays, how, grad, states, entering, d):
    """Fill the gradients of the groups `first` to `last`.

    `entering` are the gradients of the states that pieces hand on; the last rows of `states` are
    those states.
    """
    x = Inputs(*arrays)
    width, lanes = x.u.shape[1], REGISTER_BYTES // x.u.itemsize
    grad_h = aligned(x.A, (1, x.A.shape[0], x.A.shape[1]))
    tile = aligned(x.A, (INTERVAL, FIELDS, lanes))
    # One step too many, lest neighbouring states lie a page apart: caches take those for one.
    lane_sums = aligned(x.A, (x.A.shape[0], INTERVAL + 1, 2, lanes))
    weights = np.zeros((2, x.A.shape[0], INTERVAL), x.A.dtype)
    handed_on = (x.u.shape[0] + INTERVAL - 1) // INTERVAL
    step = -1 if how.reverse else 1
    for group in range(first, last):
        for piece in range(groups[group], groups[group + 1]):
            low, high = pieces[piece, LOW], pieces[piece, HIGH]
            set_state(grad_h, 0, entering, pieces[piece, LEAVES])
            for index in range(count_blocks(low, high) - 1, -1, -1):
                row, start, end = block_of(low, high, index, how.reverse)
                if index == 0:
                    enters = pieces[piece, ENTERS]
                    row = handed_on + enters if enters >= 0 else -1
                origin, count = end - 1 if how.reverse else start, end - start
                fill_weights(weights, x, origin, step, count)
                clear(lane_sums, count)
                for channel in range(0, width, lanes):
                    rest = width - channel
                    fill_tile(tile, x, how, origin, step, count, channel, rest)
                    fill_gradient(tile, grad, x, how, origin, step, count, channel, rest)
                    here = (group, row, count, channel)
                    if how.zoh:
                        walk_back_held(tile, weights, lane_sums, grad_h, d.A, x.A, states, here)
                    else:
                        walk_back(tile, weights, lane_sums, grad_h, d.A, x.A, states, here)
                    drain_gradients(
                        d, tile, grad, group, x, how, origin, step, count, channel, rest
                    )
                drain_weights(d, lane_sums, origin, step, count)
