"""What steps are sorted by, on a GPU by one launch."""

import torch
import triton
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.topology import Topology
from graphmamba.ordering.fused_words_kernels import word_kernel
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.ordering.scores import NodeKey

BLOCK = 256


def join_words(
    policy: OrderPolicy, topology: Topology, score: NodeKey | None, samples: int, layers: range
) -> Int[Tensor, "lines nodes"]:
    """Write group, score and noise of each step as one number, into which they must fit.

    Args:
        policy: One that adds no noise to scores and reads no clusters.
        topology: The graphs.
        score: What `scores.node_key` says of them; None if the policy has no score.
        samples: Lines of a layer.
        layers: Numbers of the layers.
    """
    lines, nodes = len(layers) * samples, topology.batch.shape[0]
    words = torch.empty(lines, nodes, dtype=torch.int64, device=topology.batch.device)
    # What is not there is not read: anything can stand for it.
    seed, key = (words if each is None else each for each in (topology.seed, topology.graph_key))
    values, number = score or (words, 1)
    if words.numel():
        with torch.cuda.device_of(words):
            word_kernel[(triton.cdiv(words.numel(), BLOCK),)](
                *(words, topology.batch, topology.starts(), seed, key, values),
                *(nodes, topology.num_graphs, samples, layers.start, lines, number),
                BINS=policy.bins,
                HAS_KEY=topology.graph_key is not None,
                HAS_SCORE=score is not None,
                HAS_NOISE=policy.noise == "ties",
                IS_DEALT=policy.bins > 1 and policy.deal == "random",
                BLOCK=BLOCK,
            )
    return words
