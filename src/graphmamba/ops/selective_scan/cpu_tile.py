"""The scratch that all kernels of the selective scan work on: the steps of a block, lane by lane.

A block is copied to its tile in walking order, so that the inner loops know no direction, no order
of rows and no remainder of channels.
"""

from typing import NamedTuple, no_type_check

import numpy as np
from numba import types

from graphmamba.ops.arrays import REGISTER_BYTES
from graphmamba.ops.compiled import helper
from graphmamba.ops.lanes import load, load_part, store, zeros
from graphmamba.ops.vector_math import softplus

INTERVAL = 32
"""Steps of a block: as many as keep its tile in the fastest cache of common machines."""

PAIR = 2
"""States that an inner loop walks at once; the number of states is filled up to a multiple."""

# What a tile holds for each step; the last three for two states each.
DT, DRIVE, Y, GRAD, GRAD_DT, GRAD_DRIVE, DECAYED, DECAY, HELD = 0, 1, 2, 3, 4, 5, 6, 8, 10
FIELDS = 12


class Inputs(NamedTuple):
    """What forward and backward read; channels and states of parameters are filled up with 0."""

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
    """What forward and backward have to know beside the inputs."""

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
def piece_types():
    """Numba's types of a range of groups, the table of pieces and the groups."""
    table, numbers = types.Array(types.int64, 2, "C"), types.Array(types.int64, 1, "C")
    return types.int64, types.int64, table, numbers


@helper
@no_type_check
def aligned(like, shape):
    """Scratch that starts at the start of a register."""
    size = 1
    for extent in shape:
        size *= extent
    raw = np.empty(size + REGISTER_BYTES // like.itemsize, like.dtype)
    skipped = (-raw.ctypes.data % REGISTER_BYTES) // like.itemsize
    return raw[skipped : skipped + size].reshape(shape)


@helper
@no_type_check
def block_of(low, high, index, reverse):
    """The `index`-th block of a piece on the walk, and its steps within the piece."""
    block = (high - 1) // INTERVAL - index if reverse else low // INTERVAL + index
    return block, max(low, block * INTERVAL), min(high, (block + 1) * INTERVAL)


@helper
@no_type_check
def count_blocks(low, high):
    """Blocks that a piece touches."""
    return (high - 1) // INTERVAL - low // INTERVAL + 1


@helper
@no_type_check
def set_state(target, row, source, source_row):
    """Copy one state to another, or 0 where `source_row` is negative."""
    for n in range(target.shape[1]):
        for channel in range(0, target.shape[2], REGISTER_BYTES // target.itemsize):
            value = zeros(target)
            if source_row >= 0:
                value = load(source, (source_row, n, channel))
            store(target, (row, n, channel), value)


@helper
@no_type_check
def fill_weights(weights, x, origin, step, count):
    """Turn the block's rows of B and C into columns, in walking order."""
    for k in range(count):
        for n in range(x.B.shape[1]):
            weights[0, n, k] = x.B[origin + step * k, n]
            weights[1, n, k] = x.C[origin + step * k, n]


@helper
@no_type_check
def fill_tile(tile, x, how, origin, step, count, channel, width):
    """Put dt, dt u and D u of the block in the tile."""
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
    """Add the tile's dt to a sum; what rounding cuts off is kept beside it."""
    whole, excess = load(sums, (row, 0, channel)), load(sums, (row, 1, channel))
    for k in range(count):
        dt = load(tile, (k, DT, 0)) - excess
        raised = whole + dt
        excess = (raised - whole) - dt
        whole = raised
    store(sums, (row, 0, channel), whole)
    store(sums, (row, 1, channel), excess)
