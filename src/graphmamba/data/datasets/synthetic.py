"""Random graphs with a benchmark's columns and labels, where its own are not at hand."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.catalog import (
    ATOM_VOCABULARY,
    BOND_VOCABULARY,
    Benchmark,
    Features,
    Task,
)
from graphmamba.data.datasets.pcqm_contact import NEGATIVES


def sized_graphs(benchmark: Benchmark, sizes: Sequence[int], seed: int = 0) -> list[Data]:
    """Draw graphs of given sizes with as many edges as the benchmark has for so many nodes."""
    generator = torch.Generator().manual_seed(seed)
    degree = benchmark.mean_edges / benchmark.mean_nodes
    return [
        draw_graph(benchmark, size, _draw_pairs(size, degree, generator), generator)
        for size in sizes
    ]


def draw_graph(
    benchmark: Benchmark,
    nodes: int,
    edge_index: Int[Tensor, "2 edges"],
    generator: torch.Generator,
) -> Data:
    """Draw columns and labels for given edges, as the benchmark has them."""
    graph = Data(
        x=_draw_nodes(benchmark.features, nodes, generator),
        edge_index=edge_index,
        edge_attr=_draw_edge_columns(benchmark.features, edge_index.shape[1], generator),
    )
    if benchmark.task.level == "link":
        graph.edge_label_index, graph.edge_label = _draw_links(nodes, generator)
    else:
        rows = nodes if benchmark.task.level == "node" else 1
        graph.y = _draw_labels(benchmark.task, rows, generator)
    return graph


def _draw_pairs(nodes: int, degree: float, generator: torch.Generator) -> Int[Tensor, "2 edges"]:
    """Pairs in both directions, drawn one by one, which a graph of thousands of nodes bears."""
    count = round(nodes * degree / 2) if nodes > 1 else 0
    source = torch.randint(nodes, (count,), generator=generator)
    step = torch.randint(1, max(nodes, 2), (count,), generator=generator)
    drawn = torch.stack([source, (source + step) % nodes])
    return torch.cat([drawn, drawn.flip(0)], dim=1)


def _draw_categories(
    values: tuple[int, ...], rows: int, generator: torch.Generator
) -> Int[Tensor, "rows columns"]:
    columns = [torch.randint(size, (rows,), generator=generator) for size in values]
    return torch.stack(columns, dim=1)


def _draw_nodes(
    features: Features, nodes: int, generator: torch.Generator
) -> Int[Tensor, "nodes columns"] | Float[Tensor, "nodes columns"]:
    if features.nodes == "atoms":
        return _draw_categories(ATOM_VOCABULARY, nodes, generator)
    return torch.rand(nodes, features.node_columns, generator=generator)


def _draw_edge_columns(
    features: Features, edges: int, generator: torch.Generator
) -> Int[Tensor, "edges columns"] | Float[Tensor, "edges columns"] | None:
    if features.edges == "none":
        return None
    if features.edges == "bonds":
        return _draw_categories(BOND_VOCABULARY, edges, generator)
    return torch.rand(edges, features.edge_columns, generator=generator)


def _draw_labels(
    task: Task, rows: int, generator: torch.Generator
) -> Int[Tensor, " rows"] | Float[Tensor, "rows outputs"]:
    if task.classes:
        return torch.randint(task.classes, (rows,), generator=generator)
    if task.loss == "binary_cross_entropy":
        return torch.randint(2, (rows, task.outputs), generator=generator).float()
    return torch.randn(rows, task.outputs, generator=generator)


def _draw_links(
    nodes: int, generator: torch.Generator
) -> tuple[Int[Tensor, "2 pairs"], Float[Tensor, " pairs"]]:
    """About a third of as many contacts as nodes; every pair is written in both directions."""
    pairs = torch.combinations(torch.arange(nodes))
    pairs = pairs[torch.randperm(pairs.shape[0], generator=generator)].T
    contacts = -(-nodes // 3)
    chosen = pairs[:, : contacts * (1 + NEGATIVES)]
    label = (torch.arange(chosen.shape[1]) < contacts).float()
    return torch.cat([chosen, chosen.flip(0)], dim=1), label.repeat(2)
