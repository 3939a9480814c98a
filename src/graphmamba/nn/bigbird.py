"""Block-sparse attention: a window, a few random blocks, and two global blocks per graph."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_divides, check_least
from graphmamba.data.batch import Topology
from graphmamba.nn.base import GlobalModel, Nodes
from graphmamba.nn.norm import Dropout, number_dropouts
from graphmamba.ops.random import draw_bits, take_bits
from graphmamba.ops.segments import softmax_at, sum_at


class BigBird(GlobalModel):
    """One encoder layer of BigBird over the nodes as the data set lists them.

    Nodes are divided into blocks. A block attends to itself, its neighbours, some random ones, and
    the first and last block of its graph; these two attend to the whole graph. Residuals, norms and
    a small feed-forward network are included: https://arxiv.org/abs/2007.14062.

    Args:
        channels: Width of the node embeddings.
        heads: Attention heads; must divide the channels.
        dropout: Rate on both residual branches; as published, attention weights are not dropped.
        block: Nodes in a block.
        random_blocks: Random blocks that each block attends to, different per head, fixed over
            calls.
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

    def forward(self, x: Nodes, topology: Topology) -> Nodes:
        mixed = self._attend(x, topology) if x.shape[0] else x
        seed = topology.dropout_seed
        hidden = self.attention_norm(x + self.attention_dropout(self.out_proj(mixed), seed))
        wide = functional.relu(self.first(hidden))
        return self.norm(hidden + self.dropout(self.second(wide), seed))

    def _attend(self, x: Nodes, topology: Topology) -> Nodes:
        """Attend to the listed blocks; the first and last block of a graph to all of it."""
        batch, graphs = topology.batch, topology.num_graphs
        pattern = BlockPattern.of(topology, self.block, self.random_blocks, self.heads)
        query, key, value = self.in_proj(x).unflatten(-1, (3, self.heads, -1)).unbind(1)
        queries, *others = (
            pattern.to_blocks(rows).transpose(1, 2) for rows in (query, key, value)
        )  # [blocks, heads, block, width]
        head = torch.arange(self.heads, device=x.device)
        listed = (pattern.key_blocks * self.heads + head[:, None]).flatten()
        shape = (*pattern.key_blocks.shape[:2], -1, key.shape[-1])  # [blocks, heads, keys, width]
        keys, values = (rows.flatten(0, 1)[listed].reshape(shape) for rows in others)
        is_seen: Bool[Tensor, "blocks heads 1 keys"] = pattern.is_key[:, :, None, :]
        # Spare blocks behind a graph without nodes see nothing, of which no softmax can be taken.
        is_seen = is_seen | ~is_seen.any(dim=-1, keepdim=True)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, is_seen)
        near = mixed.transpose(1, 2).flatten(0, 1)[pattern.slot]  # [nodes, heads, width]

        askers: Int[Tensor, "graphs both"] = pattern.global_slots
        asking = pattern.to_blocks(query).flatten(0, 1)[askers]  # [graphs, both, heads, width]
        score = torch.einsum("nqhc,nhc->nqh", asking[batch], key) * query.shape[-1] ** -0.5
        weight = softmax_at(score, batch, graphs)
        far = sum_at(weight[..., None] * value[:, None], batch, graphs)[batch, pattern.global_place]
        return torch.where(pattern.is_global[:, None, None], far, near).flatten(1)


DRAW_BITS = 31
NOWHERE = 1 << 40
"""Position of a block that is in no graph: behind all others."""


@dataclass(frozen=True)
class BlockPattern:
    """Nodes divided into blocks, each graph starting a new one; no shape depends on the data."""

    slot: Int[Tensor, " nodes"]
    """Place of each node among the rows of all blocks."""
    block: int
    """Rows in a block."""
    key_blocks: Int[Tensor, "blocks heads listed"]
    """Blocks that each block attends to; the random ones differ from head to head."""
    is_key: Bool[Tensor, "blocks heads keys"]
    """Which of their rows count: those of nodes, in blocks not listed before."""
    is_global: Bool[Tensor, " nodes"]
    """Whether a node is in the first or the last block of its graph."""
    global_slots: Int[Tensor, "graphs both"]
    """Rows of the first and the last block of each graph."""
    global_place: Int[Tensor, " nodes"]
    """Place of a global node among those; 0 for the others."""

    @classmethod
    def of(cls, topology: Topology, block: int, random_blocks: int, heads: int) -> "BlockPattern":
        """Divide the graphs of a batch, once for all layers with the same blocks."""
        key = cls, block, random_blocks, heads
        return topology.cached(key, lambda: cls._found(topology, block, random_blocks, heads))

    @classmethod
    def _found(
        cls, topology: Topology, block: int, random_blocks: int, heads: int
    ) -> "BlockPattern":
        batch, graphs = topology.batch, topology.num_graphs
        device, nodes = batch.device, batch.shape[0]
        starts = torch.searchsorted(batch, torch.arange(graphs + 1, device=device))
        counts = (starts.diff() + block - 1) // block  # [graphs]
        ends = counts.cumsum(0)
        first, last = ends - counts, ends - 1
        place = torch.arange(nodes, device=device) - starts[batch]
        slot = first[batch] * block + place
        # The most blocks that so many nodes in so many graphs can take.
        blocks = (nodes + (block - 1) * graphs) // block
        listed, is_listed = _list_blocks(first, last, blocks, (heads, random_blocks))
        is_node = torch.zeros(blocks * block, dtype=torch.bool, device=device)
        is_node = is_node.index_fill(0, slot, True).view(blocks, block)
        is_key = (is_node[listed] & is_listed[..., None]).flatten(2)
        in_first, in_last = place < block, place // block == counts[batch] - 1
        rows = torch.arange(block, device=device)
        ranges = [first[:, None] * block + rows, last[:, None] * block + rows]
        in_block = place % block
        return cls(
            slot=slot,
            block=block,
            key_blocks=listed,
            is_key=is_key,
            is_global=in_first | in_last,
            global_slots=torch.cat(ranges, dim=1).clamp(0, max(blocks * block - 1, 0)),
            global_place=torch.where(in_first, in_block, (in_block + block) * in_last),
        )

    def to_blocks(self, rows: Float[Tensor, "nodes ..."]) -> Float[Tensor, "blocks block ..."]:
        """Lay the rows out in blocks, with zeros where there is no node."""
        blocks = self.key_blocks.shape[0]
        laid = rows.new_zeros(blocks * self.block, *rows.shape[1:]).index_copy(0, self.slot, rows)
        return laid.unflatten(0, (blocks, self.block))


def _list_blocks(
    first: Int[Tensor, " graphs"], last: Int[Tensor, " graphs"], blocks: int, draws: tuple[int, int]
) -> tuple[Int[Tensor, "blocks heads listed"], Bool[Tensor, "blocks heads listed"]]:
    """List for each block the global, neighbouring and random ones, and which of them count."""
    own = torch.arange(blocks, device=first.device)
    # A block belongs to the first graph that ends behind it; spare blocks go to the last graph.
    graph = torch.searchsorted(last, own).clamp(max=max(last.shape[0] - 1, 0))
    low, high = first[graph], last[graph]
    near = torch.stack([low, high, own - 1, own, own + 1], dim=1)
    is_inside = (near >= low[:, None]) & (near <= high[:, None])
    is_repeated = (near[:, :, None] == near[:, None, :]).tril(diagonal=-1).any(dim=2)
    is_near = is_inside & ~is_repeated
    taken = torch.where(is_near, near - low[:, None], NOWHERE)
    left = high - low + 1 - is_near.sum(dim=1)
    drawn = _draw_blocks(own - low, taken, left, draws) + low[:, None, None]
    is_drawn = torch.arange(draws[1], device=own.device) < left[:, None]
    listed = torch.cat([near[:, None].expand(-1, draws[0], -1), drawn], dim=2)
    is_listed = torch.cat([is_near, is_drawn], dim=1)[:, None].expand_as(listed)
    return listed.clamp(0, max(blocks - 1, 0)), is_listed


def _draw_blocks(
    place: Int[Tensor, " blocks"],
    taken: Int[Tensor, "blocks near"],
    left: Int[Tensor, " blocks"],
    draws: tuple[int, int],
) -> Int[Tensor, "blocks heads random"]:
    """Sample further blocks of a graph without replacement, for each head.

    Depends only on the position of the block, the size of the graph, and the head.
    """
    number = torch.arange(draws[0] * draws[1], device=place.device)
    stream = draw_bits(torch.zeros_like(number), number)
    bits = take_bits(draw_bits(stream[None, :], place[:, None]), 0, DRAW_BITS).unflatten(1, draws)
    taken = taken.sort(dim=1).values[:, None].expand(-1, draws[0], -1)
    drawn = [bits[..., :0]]
    for draw in range(draws[1]):
        rank = (bits[..., draw] * (left - draw).clamp(min=0)[:, None]) >> DRAW_BITS
        # The block of this rank among those left: as many further as taken ones lie before it.
        before = torch.arange(taken.shape[-1], device=place.device)
        found = rank + (taken - before <= rank[..., None]).sum(dim=-1)
        drawn.append(found[..., None])
        taken = torch.cat([taken, drawn[-1]], dim=-1).sort(dim=-1).values
    return torch.cat(drawn, dim=-1)
