"""Block-sparse attention: a window, a few random blocks, and two global blocks per graph."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_divides, check_least
from graphmamba.data.topology import Topology
from graphmamba.nn.block_pattern import BlockPattern
from graphmamba.nn.dropout import Dropout, number_dropouts
from graphmamba.nn.parts import GlobalMixer
from graphmamba.ops.segments import softmax_at, sum_at


class BigBird(GlobalMixer):
    """One encoder layer of BigBird over the nodes as the data set lists them.

    Nodes are cut into blocks. A block attends to itself, the blocks beside it, some random ones
    and the first and the last block of its graph; these two attend to the whole graph. Residuals,
    norms and a small feed-forward network are part of it: https://arxiv.org/abs/2007.14062.

    Args:
        channels: Width of the node rows.
        heads: Attention heads; must divide the channels.
        dropout: Rate on both residual branches; as published, attention weights are not dropped.
        block: Nodes in a block.
        random_blocks: Random blocks that each block attends to, others in each head, the same at
            every call.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        dropout: float = 0.0,
        block: int = 3,
        random_blocks: int = 3,
    ) -> None:
        super().__init__()
        check_divides("heads", heads, "channels", channels)
        check_least("block", block, 1)
        check_least("random_blocks", random_blocks, 0)
        self.heads = heads
        self.block, self.random_blocks = block, random_blocks
        self.in_proj = nn.Linear(channels, 3 * channels, bias=False)
        self.out_proj = nn.Linear(channels, channels)
        self.attention_norm = nn.LayerNorm(channels, eps=1e-6)
        self.first = nn.Linear(channels, channels)
        self.second = nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.attention_dropout, self.dropout = Dropout(dropout), Dropout(dropout)
        number_dropouts(self)

    def forward(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        """Run the encoder layer on every graph."""
        mixed = self._attend(x, topology) if x.shape[0] else x
        seed = topology.dropout_seed
        hidden = self.attention_norm(x + self.attention_dropout(self.out_proj(mixed), seed))
        wide = functional.relu(self.first(hidden))
        return self.norm(hidden + self.dropout(self.second(wide), seed))

    def request(self) -> tuple[int, int, int]:
        """Say which pattern it attends by; layers that ask for the same one can share it."""
        return self.block, self.random_blocks, self.heads

    def _attend(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        known = (topology.block_patterns or {}).get(self.request())
        pattern = BlockPattern.of(topology, *self.request()) if known is None else known
        query, key, value = self.in_proj(x).unflatten(-1, (3, self.heads, -1)).unbind(1)
        near = self._attend_sparsely(query, key, value, pattern)
        far = self._attend_globally(query, key, value, pattern, topology)
        return torch.where(pattern.is_global[:, None, None], far, near).flatten(1)

    def _attend_sparsely(
        self,
        query: Float[Tensor, "nodes heads width"],
        key: Float[Tensor, "nodes heads width"],
        value: Float[Tensor, "nodes heads width"],
        pattern: BlockPattern,
    ) -> Float[Tensor, "nodes heads width"]:
        """Attend to the listed blocks, block by block."""
        queries, *others = (
            pattern.to_blocks(rows).transpose(1, 2) for rows in (query, key, value)
        )  # [blocks, heads, block, width]
        head = torch.arange(self.heads, device=query.device)
        listed = (pattern.key_blocks * self.heads + head[:, None]).flatten()
        shape = (*pattern.key_blocks.shape[:2], -1, key.shape[-1])  # [blocks, heads, keys, width]
        keys, values = (rows.flatten(0, 1)[listed].reshape(shape) for rows in others)
        is_seen: Bool[Tensor, "blocks heads 1 keys"] = pattern.is_key[:, :, None, :]
        # Spare blocks behind a graph without nodes see nothing, of which no softmax can be taken.
        is_seen = is_seen | ~is_seen.any(dim=-1, keepdim=True)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_seen)
        return mixed.transpose(1, 2).flatten(0, 1)[pattern.slot]

    def _attend_globally(
        self,
        query: Float[Tensor, "nodes heads width"],
        key: Float[Tensor, "nodes heads width"],
        value: Float[Tensor, "nodes heads width"],
        pattern: BlockPattern,
        topology: Topology,
    ) -> Float[Tensor, "nodes heads width"]:
        """Attend from the first and the last block of each graph to all of its nodes."""
        batch, graphs = topology.batch, topology.num_graphs
        askers: Int[Tensor, "graphs both"] = pattern.global_slots
        asking = pattern.to_blocks(query).flatten(0, 1)[askers]  # [graphs, both, heads, width]
        score = torch.einsum("nqhc,nhc->nqh", asking[batch], key) * query.shape[-1] ** -0.5
        weight = softmax_at(score, batch, graphs)
        answers = sum_at(weight[..., None] * value[:, None], batch, graphs)
        return answers[batch, pattern.global_place]
