"""CLUSTER and PATTERN, generated from their stochastic block models.

Recipe: Dwivedi et al., Benchmarking Graph Neural Networks (https://arxiv.org/abs/2003.00982). It
permutes the nodes at random; here communities are assigned to nodes at random before edges are
sampled, which is the same distribution and saves permuting matrices.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from graphmamba.checks import check_least
from graphmamba.data.parallel import run_all
from graphmamba.data.tables import GraphColumns, boundaries, concatenate

SMALLEST, LARGEST = 5, 34  # nodes of a community and of a pattern: uniform, both ends included
CLUSTER_COMMUNITIES, CLUSTER_INSIDE, CLUSTER_BETWEEN = 6, 0.55, 0.25
PATTERN_COMMUNITIES, PATTERN_INSIDE, PATTERN_BETWEEN = 5, 0.5, 0.35
PATTERN_EDGE = 0.5  # chance of an edge within a pattern, and of one between a pattern and its host
PATTERNS = 100
SIGNALS = 3
CHUNK = 128  # graphs drawn at once; their matrices then fit in a few dozen megabytes

Sizes = tuple[int, int, int]  # graphs of the training, validation and test split


@dataclass(frozen=True)
class Blocks:
    """Which block each node of some graphs is in; rows are padded to the largest graph."""

    block: Int[Tensor, "graphs nodes"]
    """Block of each node; past a graph's end, the number of blocks."""
    rank: Int[Tensor, "graphs nodes"]  # place of each node within its block
    counts: Int[Tensor, " graphs"]
    uniform: Float[Tensor, "graphs nodes nodes"]
    """Number of each pair, which is joined where it is below the pair's chance."""


def generate_cluster(sizes: Sizes = (10_000, 1_000, 1_000), seed: int = 0) -> GraphColumns:
    """Six communities, one node of each known by its feature; the label is the community."""
    generator = torch.Generator().manual_seed(seed)
    chance = _chances(CLUSTER_COMMUNITIES, CLUSTER_INSIDE, CLUSTER_BETWEEN)

    def draw(numbers: Int[Tensor, " graphs"]) -> Callable[[], GraphColumns]:
        community = _draw_sizes((len(numbers), CLUSTER_COMMUNITIES), generator)
        blocks = assign_blocks(community, generator)

        def make() -> GraphColumns:
            edges = _join(blocks, chance)
            # nodes were assigned at random, so that the first of a community is any of them
            known = torch.where(blocks.rank == 0, blocks.block + 1, 0)
            return _flatten(blocks, edges, known, CLUSTER_COMMUNITIES + 1, blocks.block)

        return make

    return _draw_all(draw, sizes, f"CLUSTER, drawn by its recipe with seed {seed}")


def generate_pattern(sizes: Sizes = (10_000, 2_000, 2_000), seed: int = 0) -> GraphColumns:
    """Five communities and a pattern that many graphs share; the label says who is in it.

    Patterns take turns, so that all splits have all of them.
    """
    generator = torch.Generator().manual_seed(seed)
    known = torch.rand((PATTERNS, LARGEST, LARGEST), generator=generator) < PATTERN_EDGE
    known = known.triu_(1)
    known = known | known.mT  # [patterns, nodes, nodes]
    pattern_sizes = _draw_sizes((PATTERNS,), generator)
    known_signal = torch.randint(SIGNALS, (PATTERNS, LARGEST), generator=generator)
    chance = _chances(PATTERN_COMMUNITIES + 1, PATTERN_INSIDE, PATTERN_BETWEEN)
    chance[PATTERN_COMMUNITIES, :-1] = chance[:-1, PATTERN_COMMUNITIES] = PATTERN_EDGE

    def draw(numbers: Int[Tensor, " graphs"]) -> Callable[[], GraphColumns]:
        which = numbers % PATTERNS
        community = _draw_sizes((len(numbers), PATTERN_COMMUNITIES), generator)
        blocks = assign_blocks(torch.cat([community, pattern_sizes[which, None]], dim=1), generator)
        signal = torch.randint(SIGNALS, tuple(blocks.block.shape), generator=generator)

        def make() -> GraphColumns:
            edges = _join(blocks, chance)
            # edges and signals of the patterns take the place of those drawn for their nodes
            member = blocks.block == PATTERN_COMMUNITIES
            graph, node = member.nonzero(as_tuple=True)
            signal[graph, node] = known_signal[which[graph], blocks.rank[graph, node]]
            graph, i, j = (member[:, :, None] & member[:, None, :]).nonzero(as_tuple=True)
            edges[graph, i, j] = known[which[graph], blocks.rank[graph, i], blocks.rank[graph, j]]
            return _flatten(blocks, edges, signal, SIGNALS, member)

        return make

    return _draw_all(draw, sizes, f"PATTERN, drawn by its recipe with seed {seed}")


def assign_blocks(sizes: Int[Tensor, "graphs blocks"], generator: torch.Generator) -> Blocks:
    """Assign the nodes of each graph to blocks of the given sizes, at random."""
    counts, ends = sizes.sum(dim=1), sizes.cumsum(dim=1)
    place = torch.arange(int(counts.max())).expand(len(sizes), -1)
    past = place >= counts[:, None]
    keys = torch.rand(tuple(place.shape), generator=generator).masked_fill_(past, 2.0)
    # the node at each place of the line of blocks, and its inverse: the place of each node
    place = keys.argsort(dim=1).argsort(dim=1)
    block = torch.searchsorted(ends, place, right=True)
    start = torch.nn.functional.pad(ends, (1, 0)).gather(1, block)
    uniform = torch.rand((*block.shape, block.shape[1]), generator=generator)
    return Blocks(block, place - start, counts, uniform)


def _draw_sizes(shape: tuple[int, ...], generator: torch.Generator) -> Int[Tensor, "*shape"]:
    return torch.randint(SMALLEST, LARGEST + 1, shape, generator=generator)


def _chances(blocks: int, inside: float, between: float) -> Float[Tensor, "kinds kinds"]:
    """Chance of an edge between nodes of two blocks; none past the end of a graph."""
    chance = torch.full((blocks + 1, blocks + 1), between).fill_diagonal_(inside)
    chance[-1], chance[:, -1] = 0.0, 0.0
    return chance


def _join(
    blocks: Blocks, chance: Float[Tensor, "kinds kinds"]
) -> Bool[Tensor, "graphs nodes nodes"]:
    pair = blocks.block[:, :, None] * len(chance) + blocks.block[:, None, :]
    edges = (blocks.uniform < chance.flatten()[pair]).triu_(1)
    return edges | edges.mT


def _flatten(
    blocks: Blocks,
    edges: Bool[Tensor, "graphs nodes nodes"],
    signal: Int[Tensor, "graphs nodes"],
    signals: int,
    label: Tensor,
) -> GraphColumns:
    here = torch.arange(edges.shape[1]) < blocks.counts[:, None]
    _, target, source = edges.nonzero(as_tuple=True)
    return GraphColumns(
        boundaries(blocks.counts),
        boundaries(edges.sum(dim=(1, 2))),
        # there are many edges to keep until the end
        torch.stack([source, target]).short(),
        {"x": torch.nn.functional.one_hot(signal[here], signals).float(), "y": label[here].long()},
    )


def _draw_all(
    draw: Callable[[Int[Tensor, " graphs"]], Callable[[], GraphColumns]], sizes: Sizes, source: str
) -> GraphColumns:
    """Draw graphs in chunks and lay them end to end."""
    for name, size in zip(("training", "validation", "test"), sizes, strict=True):
        check_least(f"sizes ({name})", size, 0)
    check_least("sum of sizes", sum(sizes), 1)
    chunks = torch.cat([torch.arange(size) for size in sizes]).split(CHUNK)
    following, turn = enumerate(chunks), Lock()

    def draw_next(_: int) -> tuple[int, GraphColumns]:
        # random numbers come in turn, whoever draws them; all else is done side by side
        with turn:
            place, numbers = next(following)
            make = draw(numbers)
        return place, make()

    made = dict(run_all(draw_next, range(len(chunks)), "Drawing graphs"))
    return replace(
        concatenate([made[place] for place in range(len(chunks))]),
        split=torch.repeat_interleave(torch.arange(3), torch.tensor(sizes)),
        source=source,
    )
