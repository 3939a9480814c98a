"""Which block of nodes attends to which: the pattern of BigBird, graph by graph."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphmamba.data.random_bits import draw_bits, take_bits
from graphmamba.data.topology import Topology

DRAW_BITS = 31


@dataclass(frozen=True)
class BlockPattern:
    """Nodes cut into blocks, each graph starting a new one; no shape depends on the data."""

    slot: Int[Tensor, " nodes"]
    """Place of each node among the rows of all blocks."""
    block: int
    """Rows in a block."""
    key_blocks: Int[Tensor, "blocks listed"]
    """Blocks that each block attends to."""
    is_key: Bool[Tensor, "blocks keys"]
    """Which of their rows count: those of nodes, in blocks not listed before."""
    is_global: Bool[Tensor, " nodes"]
    """Whether a node is in the first or the last block of its graph."""
    global_slots: Int[Tensor, "graphs both"]
    """Rows of the first and the last block of each graph."""
    global_place: Int[Tensor, " nodes"]
    """Place of a global node among those; 0 for the others."""

    @classmethod
    def of(cls, topology: Topology, block: int, random_blocks: int) -> "BlockPattern":
        """Cut the graphs of a batch."""
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
        listed, is_listed = _list_blocks(first, last, blocks, random_blocks)
        is_node = torch.zeros(blocks * block, dtype=torch.bool, device=device)
        is_node = is_node.index_fill(0, slot, True).view(blocks, block)
        is_key = (is_node[listed] & is_listed[:, :, None]).flatten(1)
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
    first: Int[Tensor, " graphs"], last: Int[Tensor, " graphs"], blocks: int, random_blocks: int
) -> tuple[Int[Tensor, "blocks listed"], Bool[Tensor, "blocks listed"]]:
    """List for each block the global, neighbouring and random ones, and which of them count."""
    own = torch.arange(blocks, device=first.device)
    # A block belongs to the first graph that ends behind it; spare blocks go to the last graph.
    graph = torch.searchsorted(last, own).clamp(max=max(last.shape[0] - 1, 0))
    low, high = first[graph], last[graph]
    count = high - low + 1
    drawn = [_draw_block(own - low, draw, count) + low for draw in range(random_blocks)]
    listed = torch.stack([low, high, own - 1, own, own + 1, *drawn], dim=1)
    is_inside = (listed >= low[:, None]) & (listed <= high[:, None])
    same = listed[:, :, None] == listed[:, None, :]
    is_repeated = same.tril(diagonal=-1).any(dim=2)
    return listed.clamp(0, max(blocks - 1, 0)), is_inside & ~is_repeated


def _draw_block(
    place: Int[Tensor, " blocks"], draw: int, count: Int[Tensor, " blocks"]
) -> Int[Tensor, " blocks"]:
    """One of `count` blocks, which only the block's place in its graph and the draw decide."""
    stream = draw_bits(torch.zeros_like(place), draw)
    return (take_bits(draw_bits(stream, place), 0, DRAW_BITS) * count) >> DRAW_BITS
