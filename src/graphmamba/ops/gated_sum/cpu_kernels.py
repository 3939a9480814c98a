"""Numba kernels of the gated sum and its gradients, one vector register of channels at a time.

Rows of nodes are a, b (SENT), d (TO_TARGET) and e (TO_SOURCE), concatenated. `order` is empty where
edges are sorted by target, `scale` where all factors are 1.
"""

from typing import no_type_check

from numba import types

from graphmamba.ops.cpu_arrays import REGISTER_BYTES
from graphmamba.ops.cpu_compile import helper, kernel
from graphmamba.ops.cpu_vectors import fma, load_part, sigmoid, splat, store_part, total, zeros

SENT, TO_TARGET, TO_SOURCE = 1, 2, 3
ONE, EPSILON = 0, 1  # indices in `constants`


@no_type_check
def _types(real):
    """Types of rows, dense rows, numbers per edge, and indices."""
    line = types.Array(real, 1, "C")
    return types.Array(real, 2, "A"), types.Array(real, 2, "C"), line, types.int64[::1]


@no_type_check
def forward_signature(real):
    """Types of the arguments of `sum_forward`."""
    rows, table, line, numbers = _types(real)
    return types.void(
        *(types.int64, types.int64, rows, rows, line, numbers, numbers, numbers, line),
        *(table, table, table, table),
    )


@no_type_check
def target_signature(real):
    """Types of the arguments of `sum_by_target`."""
    rows, table, line, numbers = _types(real)
    return types.void(
        *(types.int64, types.int64, rows, rows, table, table, rows, rows, line, numbers, numbers),
        *(numbers, line, table, table, table, line),
    )


@no_type_check
def source_signature(real):
    """Types of the arguments of `sum_by_source`."""
    rows, table, line, numbers = _types(real)
    return types.void(
        *(types.int64, types.int64, rows, table, table, line, numbers, numbers, numbers, table)
    )


@helper
@no_type_check
def edge_at(order, place):
    """Edge at a position of the order."""
    return order[place] if len(order) else place


@kernel(forward_signature)
@no_type_check
def sum_forward(
    first, last, nodes, edges, scale, source, bounds, order, constants, x_hat, e_hat, weight, mean
):
    """Write x_hat of the nodes `first` to `last`, and e_hat of their incoming edges.

    `weight` is 1 / (sum of gates + epsilon), `mean` the weighted mean.
    """
    channels, lanes = edges.shape[1], REGISTER_BYTES // edges.itemsize
    one, epsilon = splat(constants, ONE), splat(constants, EPSILON)
    for node in range(first, last):
        for channel in range(0, channels, lanes):
            rest = channels - channel
            received, opened = zeros(edges), zeros(edges)
            to_target = load_part(nodes, (node, TO_TARGET * channels + channel), rest)
            for place in range(bounds[node], bounds[node + 1]):
                edge = edge_at(order, place)
                other = source[edge]
                to_source = load_part(nodes, (other, TO_SOURCE * channels + channel), rest)
                value = to_target + to_source + load_part(edges, (edge, channel), rest)
                store_part(e_hat, (edge, channel), value, rest)
                gate = sigmoid(value)
                if len(scale):
                    gate = gate * splat(scale, edge)
                sent = load_part(nodes, (other, SENT * channels + channel), rest)
                received, opened = fma(gate, sent, received), opened + gate
            share = one / (opened + epsilon)
            quotient = received * share
            own = load_part(nodes, (node, channel), rest)
            store_part(x_hat, (node, channel), own + quotient, rest)
            store_part(weight, (node, channel), share, rest)
            store_part(mean, (node, channel), quotient, rest)


@kernel(target_signature)
@no_type_check
def sum_by_target(
    first, last, d_x_hat, d_e_hat, weight, mean, sent_rows, e_hat, scale, source, bounds, order,
    constants, d_nodes, d_edges, share, d_scale,
):  # fmt: skip
    """Write the gradients of the incoming edges of the nodes `first` to `last`, and of a and d.

    `share` is the gradient of x_hat divided by the sum of gates; `d_e_hat` is empty if it is 0.
    """
    channels, lanes = e_hat.shape[1], REGISTER_BYTES // e_hat.itemsize
    one, has_edges = splat(constants, ONE), d_e_hat.shape[0] > 0
    for node in range(first, last):
        for channel in range(0, channels, lanes):
            rest, added = channels - channel, zeros(e_hat)
            d_own = load_part(d_x_hat, (node, channel), rest)
            d_mean = d_own * load_part(weight, (node, channel), rest)
            quotient = load_part(mean, (node, channel), rest)
            for place in range(bounds[node], bounds[node + 1]):
                edge = edge_at(order, place)
                gate = sigmoid(load_part(e_hat, (edge, channel), rest))
                sent = load_part(sent_rows, (source[edge], channel), rest)
                d_gate = d_mean * (sent - quotient)
                if len(scale):
                    d_scale[edge] += total(d_gate * gate)
                    d_gate = d_gate * splat(scale, edge)
                d_edge = d_gate * gate * (one - gate)
                if has_edges:
                    d_edge = d_edge + load_part(d_e_hat, (edge, channel), rest)
                store_part(d_edges, (edge, channel), d_edge, rest)
                added = added + d_edge
            store_part(share, (node, channel), d_mean, rest)
            store_part(d_nodes, (node, channel), d_own, rest)
            store_part(d_nodes, (node, TO_TARGET * channels + channel), added, rest)


@kernel(source_signature)
@no_type_check
def sum_by_source(first, last, e_hat, d_edges, share, scale, target, bounds, order, d_nodes):
    """Write the gradients of b and e of the nodes `first` to `last`."""
    channels, lanes = e_hat.shape[1], REGISTER_BYTES // e_hat.itemsize
    for node in range(first, last):
        for channel in range(0, channels, lanes):
            rest, d_sent, added = channels - channel, zeros(e_hat), zeros(e_hat)
            for place in range(bounds[node], bounds[node + 1]):
                edge = order[place]
                gate = sigmoid(load_part(e_hat, (edge, channel), rest))
                if len(scale):
                    gate = gate * splat(scale, edge)
                d_sent = fma(gate, load_part(share, (target[edge], channel), rest), d_sent)
                added = added + load_part(d_edges, (edge, channel), rest)
            store_part(d_nodes, (node, SENT * channels + channel), d_sent, rest)
            store_part(d_nodes, (node, TO_SOURCE * channels + channel), added, rest)
