"""Full attention within each graph, and the padded blocks that it needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.checks import check_divides, check_fraction
from graphmamba.data.batch import Blocks, Topology
from graphmamba.nn.base import GlobalModel, Nodes

ALIGNED = 16
"""Rows of a head must be a multiple of so many bytes for memory-efficient kernels."""


class Attention(GlobalModel):
    """Multi-head scaled dot-product attention, https://arxiv.org/abs/1706.03762.

    Graphs are laid out in padded blocks, and padding is masked. Dropout uses torch's generator.

    Args:
        channels: Width of the node embeddings.
        heads: Attention heads; must divide the channels.
        dropout: Rate on the attention weights.
    """

    def __init__(self, channels: int, heads: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        check_divides("heads", heads, "channels", channels)
        check_fraction("dropout", dropout)
        self.heads, self.dropout = heads, dropout
        self.in_proj = nn.Linear(channels, 3 * channels)
        self.out_proj = nn.Linear(channels, channels)
        # The initial values of torch.nn.MultiheadAttention, which the published runs used.
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def forward(self, x: Nodes, topology: Topology) -> Nodes:
        layout = DenseLayout.of(topology)
        rows = self.in_proj(x).unflatten(-1, (3, self.heads, -1))
        width = rows.shape[-1]
        # Heads of another width would have all weights written out.
        rest = -width % (ALIGNED // rows.element_size()) if rows.is_cuda else 0
        if rest:
            rows = functional.pad(rows, (0, rest))
        blocks = zip(layout.pad(rows), layout.is_seen, strict=True)
        mixed = [self._attend(dense, is_seen, width) for dense, is_seen in blocks]
        return self.out_proj(layout.unpad(mixed)[..., :width].flatten(1))

    def _attend(
        self,
        dense: Float[Tensor, "graphs longest 3 heads width"],
        is_seen: Bool[Tensor, "graphs longest"],
        width: int,
    ) -> Float[Tensor, "graphs longest heads width"]:
        """Attend within each graph of a block; `width` is the width of a head without padding."""
        query, key, value = dense.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(
            *(query, key, value, is_seen[:, None, None, :]),
            dropout_p=self.dropout if self.training else 0.0,
            scale=width**-0.5,
        )
        return mixed.transpose(1, 2)


LEAST = 2
"""Least number of rows of a block: some operations reject 0, and exporters treat an axis of 1,
which broadcasts, differently."""


@dataclass(frozen=True)
class DenseLayout:
    """Place of each node in padded blocks of [graphs, longest] rows, which lie end to end.

    An ordinary batch is one block, as long as its largest graph. The blocks of a static batch are
    known before, so that nothing waits for the GPU: graphs are assigned to them by size, and all
    nodes of the padding graph to one row behind all blocks.
    """

    slot: Int[Tensor, " nodes"]
    blocks: Blocks
    is_seen: tuple[Bool[Tensor, "_ _"], ...]
    """Mask of rows that may be attended to: nodes, and the first row of an empty graph, since a
    softmax over nothing is NaN."""
    spare: int
    """Rows behind the blocks: 1 for padding graphs, 0 where there are none."""

    @classmethod
    def of(cls, topology: Topology) -> "DenseLayout":
        """Lay out the graphs of a batch, once for all layers."""
        blocks = topology.dense_blocks
        if blocks is None:
            return topology.cached(cls, lambda: cls._found(topology))
        return topology.cached(cls, lambda: cls._known(topology, blocks))

    @classmethod
    def _found(cls, topology: Topology) -> "DenseLayout":
        """One block as long as the largest graph; reading its size waits for a GPU."""
        starts = topology.starts()
        sizes = starts.diff() if topology.num_graphs else starts.new_zeros(1)
        # Not `int()`, which would ask an exporter for the number itself.
        longest = cast("int", sizes.max().clamp(min=LEAST).item())
        torch._check(longest >= LEAST)
        blocks = ((topology.num_graphs, longest),)
        seen = _seen(sizes[: topology.num_graphs], blocks)
        return cls(topology.batch * longest + _places(topology), blocks, seen, spare=0)

    @classmethod
    def _known(cls, topology: Topology, blocks: Blocks) -> "DenseLayout":
        """Assign graphs to the known blocks by size; no shape depends on the data."""
        sizes, batch = topology.starts().diff()[:-1], topology.batch
        ordered, order = sizes.sort(descending=True, stable=True)
        begins, end = [], 0
        for graphs, longest in blocks:
            after = end + graphs * longest
            begins.append(torch.arange(end, after, longest, device=batch.device))
            end = after
        begin = torch.empty_like(order).scatter(0, order, torch.cat(begins))
        own = functional.pad(begin, (0, 1))[batch] + _places(topology)
        slot = torch.where(batch < sizes.shape[0], own, end)
        return cls(slot, blocks, _seen(ordered, blocks), spare=1)

    def pad(self, rows: Float[Tensor, "nodes ..."]) -> list[Float[Tensor, "_ _ ..."]]:
        """Lay the rows out in blocks, zeros behind the last node of each graph."""
        counts = [graphs * longest for graphs, longest in self.blocks]
        dense = rows.new_zeros(sum(counts) + self.spare, *rows.shape[1:])
        parts = dense.index_copy_(0, self.slot, rows).split([*counts, *[1] * self.spare])
        return [part.unflatten(0, block) for part, block in zip(parts, self.blocks, strict=False)]

    def unpad(self, dense: Sequence[Float[Tensor, "_ _ ..."]]) -> Float[Tensor, "nodes ..."]:
        """Undo `pad`: rows of the nodes, zeros for those of padding graphs."""
        parts = [block.flatten(0, 1) for block in dense]
        if self.spare:
            parts.append(parts[0].new_zeros(1, *parts[0].shape[1:]))
        rows = torch.cat(parts) if len(parts) > 1 else parts[0]
        return rows.index_select(0, self.slot)


def _places(topology: Topology) -> Int[Tensor, " nodes"]:
    """Number the nodes of each graph."""
    every = torch.arange(topology.batch.shape[0], device=topology.batch.device)
    return every - topology.starts()[topology.batch]


def _seen(sizes: Int[Tensor, " graphs"], blocks: Blocks) -> tuple[Bool[Tensor, "_ _"], ...]:
    parts = sizes.clamp(min=1)[:, None].split([graphs for graphs, _ in blocks])
    return tuple(
        torch.arange(longest, device=sizes.device) < part
        for part, (_, longest) in zip(parts, blocks, strict=True)
    )
