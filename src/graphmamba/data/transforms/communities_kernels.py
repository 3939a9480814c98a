"""Numba kernels of Louvain's method: merging edges, moving nodes, modularity.

A graph is `(begin, other, weight, loop)`: `other[begin[u] : begin[u + 1]]` are the neighbours of
node u in the order of their first edge, with their weights, and `loop[u]` is the weight of its
self-loop. The order matters: of communities with equal gain, the first one is taken.
"""

from typing import no_type_check

import numpy as np

from graphmamba.data.cpu_compile import kernel
from graphmamba.ops.cpu_compile import helper


@helper
@no_type_check
def _first_named(source, target, nodes):
    """Index of the first pair with the same two nodes, for each pair."""
    key = np.minimum(source, target) * nodes + np.maximum(source, target)
    place = np.argsort(key, kind="mergesort")
    first = np.empty(len(key), np.int64)
    for rank in range(len(key)):
        pair = place[rank]
        is_new = rank == 0 or key[place[rank - 1]] != key[pair]
        first[pair] = pair if is_new else first[place[rank - 1]]
    return first


@kernel
@no_type_check
def join(source, target, weight, nodes):
    """Make the graph of these pairs; weights of repeated ones are added."""
    first = _first_named(source, target, nodes)
    total, loop = np.zeros(len(first)), np.zeros(nodes)
    begin = np.zeros(nodes + 1, np.int64)
    for pair in range(len(first)):
        total[first[pair]] += weight[pair]
        if first[pair] == pair and source[pair] != target[pair]:
            begin[source[pair] + 1] += 1
            begin[target[pair] + 1] += 1
    begin = np.cumsum(begin)
    end = begin[:-1].copy()
    other, joined = np.empty(begin[-1], np.int64), np.empty(begin[-1])
    for pair in range(len(first)):
        if first[pair] != pair:
            continue
        if source[pair] == target[pair]:
            loop[source[pair]] = total[pair]
            continue
        for one, two in ((source[pair], target[pair]), (target[pair], source[pair])):
            other[end[one]], joined[end[one]] = two, total[pair]
            end[one] += 1
    return begin, other, joined, loop


@kernel
@no_type_check
def pairs_of(begin, other, weight, loop, community):
    """Each edge once, as a pair of communities; self-loops come last."""
    nodes = len(loop)
    edges = len(other) // 2
    source, target = np.empty(edges + nodes, np.int64), np.empty(edges + nodes, np.int64)
    weights = np.empty(edges + nodes)
    place = 0
    for node in range(nodes):
        for edge in range(begin[node], begin[node + 1]):
            if other[edge] > node:
                source[place], target[place] = community[node], community[other[edge]]
                weights[place] = weight[edge]
                place += 1
    for node in range(nodes):
        source[place], target[place], weights[place] = community[node], community[node], loop[node]
        place += 1
    return source, target, weights


@helper
@no_type_check
def _degrees(begin, weight, loop):
    degree = 2 * loop
    for node in range(len(loop)):
        for edge in range(begin[node], begin[node + 1]):
            degree[node] += weight[edge]
    return degree


@kernel
@no_type_check
def modularity(begin, other, weight, loop, community):
    """Modularity: share of edges within communities, minus that expected at random."""
    degree = _degrees(begin, weight, loop)
    whole = degree.sum()
    inside, outside = np.zeros(len(loop)), np.zeros(len(loop))
    for node in range(len(loop)):
        own = community[node]
        inside[own] += loop[node]
        outside[own] += degree[node]
        for edge in range(begin[node], begin[node + 1]):
            if other[edge] > node and community[other[edge]] == own:
                inside[own] += weight[edge]
    return (inside / (whole / 2) - outside * outside / (whole * whole)).sum()


@helper
@no_type_check
def _renumbered(community):
    """Renumber communities from 0 without gaps, in the same order."""
    number = np.zeros(len(community) + 1, np.int64)
    for node in range(len(community)):
        number[community[node] + 1] = 1
    number = np.cumsum(number)
    return number[community]


@kernel
@no_type_check
def move_nodes(begin, other, weight, loop, order, size):
    """Move each node in turn to the community with the largest gain, until none gains.

    `size` is the total weight of the edges.
    """
    degree = _degrees(begin, weight, loop)
    community, total = np.arange(len(loop)), degree.copy()
    shared, met = np.zeros(len(loop)), np.empty(len(loop) + 1, np.int64)
    has_moved = True
    while has_moved:
        has_moved = False
        for node in order:
            own, count = community[node], 0
            for edge in range(begin[node], begin[node + 1]):
                there = community[other[edge]]
                if shared[there] == 0.0:
                    met[count] = there
                    count += 1
                shared[there] += weight[edge]
            total[own] -= degree[node]
            leave = -shared[own] / size + total[own] * degree[node] / (2 * size**2)
            best, most = own, 0.0
            if shared[own] == 0.0:
                met[count] = own
                count += 1
            for there in met[:count]:
                gain = leave + shared[there] / size - total[there] * degree[node] / (2 * size**2)
                if gain > most:
                    best, most = there, gain
                shared[there] = 0.0
            total[best] += degree[node]
            if best != own:
                community[node] = best
                has_moved = True
    return _renumbered(community)
