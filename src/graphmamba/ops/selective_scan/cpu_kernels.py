"""The forward pass of the selective scan, a register of channels at a time."""

from typing import no_type_check

import numpy as np
from numba import types

from graphmamba.ops.arrays import REGISTER_BYTES
from graphmamba.ops.compiled import helper
from graphmamba.ops.cpu_compiled import kernel
from graphmamba.ops.lanes import fma, load, load_part, splat, stay_apart, store, store_part
from graphmamba.ops.pieces import ENTERS, HIGH, LEAVES, LOW
from graphmamba.ops.selective_scan.cpu_tile import (
    DRIVE,
    DT,
    FIELDS,
    INTERVAL,
    PAIR,
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
from graphmamba.ops.vector_math import exp2, hold, silu, to_base_two


@no_type_check
def forward_signature(real):
    """Types of the arguments of `scan_forward`."""
    inputs, how = argument_types(real)
    cube, table = types.Array(real, 3, "C"), types.Array(real, 2, "C")
    return types.void(*piece_types(), inputs, how, cube, cube, table, cube, cube)


@helper
@no_type_check
def recur(tile, h, A, weights, count, channel):
    """Walk the block by Euler's rule, two states at a time."""
    stay_apart()
    for n in range(0, h.shape[1], PAIR):
        rate0 = to_base_two(load(A, (n, channel)))
        rate1 = to_base_two(load(A, (n + 1, channel)))
        h0, h1 = load(h, (0, n, channel)), load(h, (0, n + 1, channel))
        for k in range(count):
            dt, drive = load(tile, (k, DT, 0)), load(tile, (k, DRIVE, 0))
            # Rounded as on the way back, so that it does not matter where the kept states lie.
            h0 = fma(drive, splat(weights, (0, n, k)), exp2(dt * rate0) * h0)
            h1 = fma(drive, splat(weights, (0, n + 1, k)), exp2(dt * rate1) * h1)
            # Both states first: half as many roundings of the sum.
            y = fma(h0, splat(weights, (1, n, k)), h1 * splat(weights, (1, n + 1, k)))
            store(tile, (k, Y, 0), load(tile, (k, Y, 0)) + y)
        store(h, (0, n, channel), h0)
        store(h, (0, n + 1, channel), h1)


@helper
@no_type_check
def recur_held(tile, h, A, weights, count, channel):
    """Walk the block by zero-order hold."""
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
    """Gate the tile's y, and write it to its rows."""
    for k in range(count):
        t = origin + step * k
        y = load(tile, (k, Y, 0))
        if how.has_gate:
            z = load_part(x.z, (x.gate_rows[t], channel), width)
            y = y * silu(z)
        store_part(out, (x.out_rows[t], channel), y, width)


@kernel(forward_signature)
@no_type_check
def scan_forward(first, last, pieces, groups, arrays, how, entering, states, out, ends, sums):
    """Walk the groups `first` to `last`, and write `out`, and `states` if it has room for them.

    If `ends` has room, it gets the last state of each piece that hands one on, had it started from
    0, and `sums` the sum of its dt; nothing else is written then.
    """
    x = Inputs(*arrays)
    width, lanes = x.u.shape[1], REGISTER_BYTES // x.u.itemsize
    h = aligned(x.A, (1, x.A.shape[0], x.A.shape[1]))
    tile = aligned(x.A, (INTERVAL, FIELDS, lanes))
    weights = np.zeros((2, x.A.shape[0], INTERVAL), x.A.dtype)
    step, is_summary = -1 if how.reverse else 1, ends.shape[0] > 0
    for piece in range(groups[first], groups[last]):
        low, high, leaves = pieces[piece, LOW], pieces[piece, HIGH], pieces[piece, LEAVES]
        if is_summary and leaves < 0:
            continue
        set_state(h, 0, entering, -1 if is_summary else pieces[piece, ENTERS])
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
                    recur_held(tile, h, x.A, weights, count, channel)
                else:
                    recur(tile, h, x.A, weights, count, channel)
                if is_summary:
                    add_dt(sums, leaves, tile, count, channel)
                else:
                    drain_tile(out, tile, x, how, origin, step, count, channel, rest)
        if is_summary:
            set_state(ends, leaves, h, 0)
