"""Graphs to measure on: those of the benchmark where it is built, else such as it has."""

import math
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.utils import subgraph

from graphmamba.checks import check_least
from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets.sources import SOURCES, open_benchmark, place_of
from graphmamba.data.datasets.synthetic import sized_graphs
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.degree_profile import local_degree_profile
from graphmamba.errors import UserError


@dataclass(frozen=True)
class Spread:
    """How the sizes of a set's graphs are spread about their mean: log-normal, with an end."""

    deviation: float
    """Of the logarithm."""
    largest: int


SPREADS = {
    "malnet-tiny": Spread(0.9, 5_000),
    "peptides-func": Spread(0.5, 444),
    "pascalvoc-sp": Spread(0.03, 500),
    "pcqm-contact": Spread(0.2, 53),
    "cluster": Spread(0.2, 190),
}
"""Sets that graphs can be generated for."""
ALWAYS_GENERATED = {"pcqm-contact"}
"""Its labelled pairs are drawn anew for every epoch; here the size of the graphs is what counts."""


@dataclass(frozen=True)
class StudyGraphs:
    """Graphs, and where they come from in words."""

    graphs: list[Data]
    source: str

    def subsampled(self, fraction: float, seed: int = 0) -> "StudyGraphs":
        """Keep a share of each graph's nodes, as `subsample` does."""
        generator = torch.Generator().manual_seed(seed)
        kept = [subsample(graph, fraction, generator) for graph in self.graphs]
        return replace(self, graphs=kept)


def study_graphs(
    name: str, count: int, root: Path | None = None, seed: int = 0, scale: float = 1.0
) -> StudyGraphs:
    """Choose training graphs of a benchmark at random, or make up graphs of its kind and size.

    Args:
        name: The benchmark, one of `SPREADS`.
        count: Number of graphs.
        root: Where sets are kept; None for the default place.
        seed: Of the choice and of what is drawn.
        scale: Size of the graphs over the benchmark's own; any but 1 is always made up.
    """
    check_least("count", count, 1)
    if name not in SPREADS:
        raise UserError(f"name must be one of {', '.join(SPREADS)}, got {name!r}")
    if scale == 1 and name not in ALWAYS_GENERATED:
        if place_of(name, root, 0).exists():
            return _chosen(open_benchmark(name, root, 0), count, seed)
        draw = SOURCES[name].generate
        if draw is not None:
            return _chosen(GraphStore(draw((count, 1, 1), seed)), count, seed)
    sizes = draw_sizes(name, count, seed, scale)
    graphs = sized_graphs(CATALOG[name], sizes, seed)
    shrunk = "" if scale == 1 else f", {scale:g} times as large"
    return StudyGraphs(graphs, f"generated like {CATALOG[name].title}{shrunk}")


def draw_sizes(name: str, count: int, seed: int = 0, scale: float = 1.0) -> list[int]:
    """Draw numbers of nodes whose mean and spread are about those of a benchmark."""
    spread, generator = SPREADS[name], torch.Generator().manual_seed(seed)
    mean = math.log(scale * CATALOG[name].mean_nodes) - spread.deviation**2 / 2
    drawn = torch.randn(count, generator=generator) * spread.deviation + mean
    largest = max(2, int(scale * spread.largest))
    return drawn.exp().round().clamp(2, largest).long().tolist()


def _chosen(store: GraphStore, count: int, seed: int) -> StudyGraphs:
    training = store.split_ids("train")
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(training), generator=generator)
    # a small set is gone through again
    ids = training[order[torch.arange(count) % len(training)]]
    return StudyGraphs([_with_features(store[int(each)]) for each in ids], store.source)


def _with_features(graph: Data) -> Data:
    """Graphs without features have their local degree profile, that of the whole graph."""
    if graph.x is None:
        graph.x = local_degree_profile(graph.edge_index, int(graph.num_nodes or 0))
    return graph


def subsample(graph: Data, fraction: float, generator: torch.Generator) -> Data:
    """Keep a share of the nodes, chosen at random, in their order, and the edges among them.

    Features stay what they were in the whole graph, and a graph that would be left with less than
    two nodes stays whole, both as in the paper's study.
    """
    nodes = int(graph.num_nodes or 0)
    kept = int(nodes * fraction)
    if kept <= 1 or kept >= nodes:
        return graph
    chosen = torch.randperm(nodes, generator=generator)[:kept].sort().values
    edge_index, _ = subgraph(chosen, graph.edge_index, relabel_nodes=True, num_nodes=nodes)
    return Data(x=graph.x[chosen], edge_index=edge_index, y=graph.y)
