"""The inner loops of the selective scan's gradients: a block is walked again, then back."""

from typing import no_type_check

from graphmamba.ops.compiled import helper
from graphmamba.ops.lanes import fma, load, splat, stay_apart, store, zeros
from graphmamba.ops.selective_scan.cpu_tile import (
    DECAY,
    DECAYED,
    DRIVE,
    DT,
    GRAD,
    GRAD_DRIVE,
    GRAD_DT,
    HELD,
    PAIR,
    Y,
)
from graphmamba.ops.vector_math import exp2, hold, hold_slope, to_base_two


@helper
@no_type_check
def add_to(array, index, value):
    """Add lanes in place."""
    store(array, index, load(array, index) + value)


@helper
@no_type_check
def walk_again(tile, states, row, n, rate0, rate1, weights, count, channel):
    """Walk the block for two states, keeping all decays and decayed states."""
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
def walk_back(tile, weights, lane_sums, grad_h, grad_A, A, states, here):
    """Walk the block back by Euler's rule, two states at a time."""
    stay_apart()
    group, row, count, channel = here
    for n in range(0, A.shape[0], PAIR):
        A0, A1 = load(A, (n, channel)), load(A, (n + 1, channel))
        rate0, rate1 = to_base_two(A0), to_base_two(A1)
        walk_again(tile, states, row, n, rate0, rate1, weights, count, channel)
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
def walk_back_held(tile, weights, lane_sums, grad_h, grad_A, A, states, here):
    """Walk the block again and back by zero-order hold."""
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
