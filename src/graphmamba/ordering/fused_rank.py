"""Steps in order without a sort, on a GPU: graphs are small, and a sort takes twenty launches."""

import torch
import triton
from jaxtyping import Int, Int32
from torch import Tensor

from graphmamba.data.topology import Topology
from graphmamba.ordering.fused_rank_kernels import boundary_kernel, rank_kernel

ROWS, TILE, BLOCK = 32, 64, 128
WARPS = 4
MOST_PAIRS = 1 << 26
"""Pairs of nodes that may be compared: more, of graphs of even size, take as long as a sort."""


def is_ranked(lines: int, topology: Topology) -> bool:
    """Whether comparing all nodes of a graph is worth it; the sizes of the graphs are not known."""
    nodes = topology.batch.shape[0]
    return lines * nodes * nodes // max(topology.num_graphs, 1) <= MOST_PAIRS


def rank_words(
    words: Int[Tensor, "lines nodes"], topology: Topology, steps: int
) -> tuple[Int[Tensor, " all_steps"], Int[Tensor, " all_steps"]]:
    """Slot of each step in its layer of `steps` steps, and the words in order.

    Args:
        words: What is sorted by; the line, then the graph must be its first digits.
        topology: The graphs.
        steps: Steps of a layer.
    """
    words = words.contiguous()
    lines, nodes = words.shape
    order, ascending = torch.empty_like(words), torch.empty_like(words)
    if words.numel():
        blocks = triton.cdiv(nodes, ROWS)
        with torch.cuda.device_of(words):
            rank_kernel[(lines * blocks,)](
                *(words, topology.batch, topology.starts(), order, ascending),
                *(nodes, steps, blocks),
                ROWS=ROWS,
                TILE=TILE,
                num_warps=WARPS,
            )
    return order.flatten(), ascending.flatten()


def find_boundaries(
    ascending: Int[Tensor, " all_steps"], groups: int, rest: int, layers: int, width: int
) -> Int32[Tensor, "layers width"]:
    """First step of each group, counted in its layer; what is left of a row is its end.

    Args:
        ascending: Words in order, their first digit the group.
        groups: Groups of all layers.
        rest: Words of a group.
        layers: How many layers there are.
        width: Boundaries of a row, one more than groups at least.
    """
    total, device = ascending.shape[0], ascending.device
    found = torch.empty(layers, width, dtype=torch.int32, device=device)
    with torch.cuda.device_of(ascending):
        boundary_kernel[(triton.cdiv(found.numel(), BLOCK),)](
            *(ascending, found, found.numel(), width, groups, groups // layers, rest),
            *(total // layers, total, total.bit_length()),
            BLOCK=BLOCK,
        )
    return found
