"""Which block of nodes attends to which: the pattern of BigBird, graph by graph."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphmamba.data.topology import Topology
from graphmamba.ops.random import draw_bits, take_bits

DRAW_BITS = 31
NOWHERE = 1 << 40
"""Place of a block that is in no graph: behind all others."""


@dataclass(frozen=True)
class BlockPattern:
    """Nodes cut into blocks, each graph starting a new one; no shape depends on the data."""

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
    """Draw blocks of a graph that are not taken, none twice, for each of the heads.

    Only a block's place in its graph, the size of the graph and the number of the draw decide.
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
