"""Node orders on a GPU in two kernel launches: pack sort keys, then rank by comparing all pairs.

A sort would take twenty launches, which is slower for small graphs.
"""

import torch
from jaxtyping import Int, Int32
from torch import Tensor

from graphmamba.data.batch import Topology
from graphmamba.ops.triton_launch import ceil_div
from graphmamba.ordering.permutation import NodeKey
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.ordering.triton_kernels import boundary_kernel, rank_kernel, word_kernel

ROWS, TILE = 32, 64
WORD_BLOCK, BOUNDARY_BLOCK = 256, 128
WARPS = 4
MOST_PAIRS = 1 << 26  # of nodes to compare; with more, sorting is faster


def join_words(
    policy: OrderPolicy, topology: Topology, score: NodeKey | None, samples: int, layers: range
) -> Int[Tensor, "lines nodes"]:
    """Pack group, score and noise of each token into one 64-bit word, which must suffice.

    Args:
        policy: A policy without clusters and without noise added to scores.
        topology: The graphs.
        score: Result of `permutation.node_key`; None if the policy has no score.
        samples: Samples per layer.
        layers: Indices of the layers.
    """
    lines, nodes = len(layers) * samples, topology.batch.shape[0]
    words = torch.empty(lines, nodes, dtype=torch.int64, device=topology.batch.device)
    # `words` is a placeholder for absent tensors, which the kernel does not read.
    key = topology.columns.get("graph_key")
    seed, keys = (words if each is None else each for each in (topology.seed, key))
    values, number = score or (words, 1)
    if words.numel():
        with torch.cuda.device_of(words):
            word_kernel[(ceil_div(words.numel(), WORD_BLOCK),)](
                words, topology.batch, topology.starts(), seed, keys, values, nodes,
                topology.num_graphs, samples, layers.start, lines, number, BINS=policy.bins,
                HAS_KEY=key is not None, HAS_SCORE=score is not None,
                HAS_NOISE=policy.noise == "tie_breaking",
                HAS_RANDOM_BINS=policy.bins > 1 and policy.bin_assignment == "random",
                BLOCK=WORD_BLOCK,
            )  # fmt: skip
    return words


def is_ranked(lines: int, topology: Topology) -> bool:
    """Whether to rank by comparing all pairs, decided from the mean size of graphs."""
    nodes = topology.batch.shape[0]
    return lines * nodes * nodes // max(topology.num_graphs, 1) <= MOST_PAIRS


def rank_words(
    words: Int[Tensor, "lines nodes"], topology: Topology, tokens: int
) -> tuple[Int[Tensor, " all_tokens"], Int[Tensor, " all_tokens"]]:
    """Return the order of each layer of `tokens` tokens, and the sorted words.

    Line and graph must be the most significant keys of `words`.
    """
    words = words.contiguous()
    lines, nodes = words.shape
    order, ascending = torch.empty_like(words), torch.empty_like(words)
    if words.numel():
        blocks = ceil_div(nodes, ROWS)
        with torch.cuda.device_of(words):
            rank_kernel[(lines * blocks,)](
                words, topology.batch, topology.starts(), order, ascending, nodes, tokens, blocks,
                ROWS=ROWS, TILE=TILE, num_warps=WARPS,
            )  # fmt: skip
    return order.flatten(), ascending.flatten()


def find_boundaries(
    ascending: Int[Tensor, " all_tokens"], groups: int, rest: int, layers: int, width: int
) -> Int32[Tensor, "layers width"]:
    """First token of each group in its layer.

    Args:
        ascending: Sorted words, whose most significant key is the group.
        groups: Number of groups of all layers.
        rest: Number of different words per group.
        layers: Number of layers.
        width: Length of a row, more than groups per layer; padded with the end of the layer.
    """
    total, device = ascending.shape[0], ascending.device
    found = torch.empty(layers, width, dtype=torch.int32, device=device)
    with torch.cuda.device_of(ascending):
        boundary_kernel[(ceil_div(found.numel(), BOUNDARY_BLOCK),)](
            *(ascending, found, found.numel(), width, groups, groups // layers, rest),
            *(total // layers, total, total.bit_length()),
            BLOCK=BOUNDARY_BLOCK,
        )
    return found
