"""Node orders on a GPU in two launches: pack the sort keys, then rank by comparing all pairs.

Graphs are small, and a sort would take twenty launches.
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
MOST_PAIRS = 1 << 26
"""Most pairs of nodes to compare; beyond that, sorting is faster."""


def join_words(
    policy: OrderPolicy, topology: Topology, score: NodeKey | None, samples: int, layers: range
) -> Int[Tensor, "lines nodes"]:
    """Pack group, score and noise of each token into one word, into which they must fit.

    Args:
        policy: A policy without noise on scores and without clusters.
        topology: The graphs.
        score: The key of `permutation.node_key`; None if the policy has no score.
        samples: Lines of a layer.
        layers: Numbers of the layers.
    """
    lines, nodes = len(layers) * samples, topology.batch.shape[0]
    words = torch.empty(lines, nodes, dtype=torch.int64, device=topology.batch.device)
    # What is not there is not read: anything can stand for it.
    key = topology.columns.get("graph_key")
    seed, keys = (words if each is None else each for each in (topology.seed, key))
    values, number = score or (words, 1)
    if words.numel():
        with torch.cuda.device_of(words):
            word_kernel[(ceil_div(words.numel(), WORD_BLOCK),)](
                *(words, topology.batch, topology.starts(), seed, keys, values),
                *(nodes, topology.num_graphs, samples, layers.start, lines, number),
                BINS=policy.bins,
                HAS_KEY=key is not None,
                HAS_SCORE=score is not None,
                HAS_NOISE=policy.noise == "tie_breaking",
                HAS_RANDOM_BINS=policy.bins > 1 and policy.bin_assignment == "random",
                BLOCK=WORD_BLOCK,
            )
    return words


def is_ranked(lines: int, topology: Topology) -> bool:
    """Whether to rank by comparing all pairs; decided without the sizes of the graphs."""
    nodes = topology.batch.shape[0]
    return lines * nodes * nodes // max(topology.num_graphs, 1) <= MOST_PAIRS


def rank_words(
    words: Int[Tensor, "lines nodes"], topology: Topology, tokens: int
) -> tuple[Int[Tensor, " all_tokens"], Int[Tensor, " all_tokens"]]:
    """Index of each token in its layer of `tokens` tokens, and the sorted words.

    Args:
        words: Packed sort keys; line and graph must be the most significant.
        topology: The graphs.
        tokens: Tokens of a layer.
    """
    words = words.contiguous()
    lines, nodes = words.shape
    order, ascending = torch.empty_like(words), torch.empty_like(words)
    if words.numel():
        blocks = ceil_div(nodes, ROWS)
        with torch.cuda.device_of(words):
            rank_kernel[(lines * blocks,)](
                *(words, topology.batch, topology.starts(), order, ascending),
                *(nodes, tokens, blocks),
                ROWS=ROWS,
                TILE=TILE,
                num_warps=WARPS,
            )
    return order.flatten(), ascending.flatten()


def find_boundaries(
    ascending: Int[Tensor, " all_tokens"], groups: int, rest: int, layers: int, width: int
) -> Int32[Tensor, "layers width"]:
    """First token of each group in its layer; the rest of a row is filled with its end.

    Args:
        ascending: Sorted words, whose most significant key is the group.
        groups: Groups of all layers.
        rest: Words of a group.
        layers: How many layers there are.
        width: Boundaries of a row, one more than groups at least.
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
