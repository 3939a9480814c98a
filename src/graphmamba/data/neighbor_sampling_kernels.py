"""Numba kernels of neighbour sampling, for edges sorted by target."""

from typing import no_type_check

import numpy as np

from graphmamba.data.cpu_compile import kernel
from graphmamba.ops.cpu_compile import helper


@helper
@no_type_check
def _mixed(bits):
    """The finaliser of SplitMix64, a hash of 64 bits."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@helper
@no_type_check
def _below(stream, number, limit):
    """Draw a number below a limit."""
    bits = _mixed(stream + np.uint64(number + 1) * np.uint64(0x9E3779B97F4A7C15))
    return np.int64(bits >> np.uint64(2)) % limit


@kernel
@no_type_check
def sample(begin, sources, seeds, fanouts, seed):
    """Nodes sampled from the seed nodes, ascending: at most `fanouts[hop]` neighbours of each.

    `sources[begin[v] : begin[v + 1]]` are the in-neighbours of v. Floyd's algorithm samples them
    without replacement.
    """
    seen, found, count = np.zeros(len(begin) - 1, np.bool_), np.empty(len(begin) - 1, np.int64), 0
    for node in seeds:
        if not seen[node]:
            seen[node] = True
            found[count] = node
            count += 1
    first, chosen = 0, np.empty(fanouts.max(), np.int64)
    for hop in range(len(fanouts)):
        last = count
        for place in range(first, last):
            node = found[place]
            degree = begin[node + 1] - begin[node]
            wanted = min(fanouts[hop], degree)
            stream = _mixed(np.uint64(seed) + _mixed(np.uint64(node * len(fanouts) + hop)))
            for number in range(wanted):
                pick = number
                if degree > wanted:
                    top = degree - wanted + number
                    pick = _below(stream, number, top + 1)
                    for earlier in range(number):
                        if chosen[earlier] == pick:
                            pick = top
                            break
                    chosen[number] = pick
                other = sources[begin[node] + pick]
                if not seen[other]:
                    seen[other] = True
                    found[count] = other
                    count += 1
        first = last
    return np.sort(found[:count])


@kernel
@no_type_check
def induce(begin, sources, nodes):
    """Edges of the induced subgraph: their indices, and source and target as positions in `nodes`.

    They stay in the order of their targets.
    """
    place, count = np.full(len(begin) - 1, -1, np.int64), 0
    for row in range(len(nodes)):
        place[nodes[row]] = row
    for node in nodes:
        for edge in range(begin[node], begin[node + 1]):
            count += place[sources[edge]] >= 0
    edges, count = np.empty((3, count), np.int64), 0
    for row in range(len(nodes)):
        for edge in range(begin[nodes[row]], begin[nodes[row] + 1]):
            source = place[sources[edge]]
            if source >= 0:
                edges[0, count], edges[1, count], edges[2, count] = edge, source, row
                count += 1
    return edges
