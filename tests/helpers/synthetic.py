"""Small random graphs with a benchmark's columns and labels."""

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.catalog import Benchmark
from graphmamba.data.datasets.synthetic import draw_graph

MEAN_DEGREE = 4


def synthetic_graphs(
    benchmark: Benchmark, count: int, seed: int = 0, nodes: tuple[int, int] = (6, 14)
) -> list[Data]:
    """Draw `count` graphs that look like those of `benchmark`, sizes uniform in `nodes`."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(nodes[0], nodes[1] + 1, (count,), generator=generator).tolist()
    return [draw_graph(benchmark, size, _draw_edges(size, generator), generator) for size in sizes]


def _draw_edges(nodes: int, generator: torch.Generator) -> Tensor:
    """Each pair is joined, in both directions, with the same probability."""
    pairs = torch.combinations(torch.arange(nodes)).T
    chance = min(1.0, MEAN_DEGREE / max(nodes - 1, 1))
    drawn = pairs[:, torch.rand(pairs.shape[1], generator=generator) < chance]
    return torch.cat([drawn, drawn.flip(0)], dim=1)
