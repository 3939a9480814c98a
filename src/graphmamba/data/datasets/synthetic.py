"""Random graphs with the columns and labels of a benchmark, in place of the real data."""

from collections.abc import Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, Benchmark
from graphmamba.data.datasets.pcqm_contact import NEGATIVES
from graphmamba.data.tables import DESCRIPTORS


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
    features, task, edges = benchmark.features, benchmark.task, edge_index.shape[1]

    def categories(values: tuple[int, ...], rows: int) -> Int[Tensor, "rows columns"]:
        columns = [torch.randint(size, (rows,), generator=generator) for size in values]
        return torch.stack(columns, dim=1)

    if features.nodes == "atoms":
        x: Tensor = categories(ATOM_VOCABULARY, nodes)
    else:
        x = torch.rand(nodes, features.node_columns, generator=generator)
    edge_attr: Tensor | None = None
    if features.edges == "bonds":
        edge_attr = categories(BOND_VOCABULARY, edges)
    elif features.edges == "numbers":
        edge_attr = torch.rand(edges, features.edge_columns, generator=generator)
    graph = Data(x=x, edge_index=edge_index, edge_attr=edge_attr)
    if features.graph_columns:
        graph[DESCRIPTORS] = torch.randn(1, features.graph_columns, generator=generator)
    if task.level == "link":
        # a third of as many contacts as nodes; every pair is written in both directions
        pairs = torch.combinations(torch.arange(nodes))
        pairs = pairs[torch.randperm(pairs.shape[0], generator=generator)].T
        contacts = -(-nodes // 3)
        chosen = pairs[:, : contacts * (1 + NEGATIVES)]
        label = (torch.arange(chosen.shape[1]) < contacts).float()
        graph.edge_label_index = torch.cat([chosen, chosen.flip(0)], dim=1)
        graph.edge_label = label.repeat(2)
        return graph
    rows = nodes if task.level == "node" else 1
    if task.classes:
        graph.y = torch.randint(task.classes, (rows,), generator=generator)
    elif task.loss == "binary_cross_entropy":
        graph.y = torch.randint(2, (rows, task.outputs), generator=generator).float()
    else:
        graph.y = torch.randn(rows, task.outputs, generator=generator)
    return graph


def _draw_pairs(nodes: int, degree: float, generator: torch.Generator) -> Int[Tensor, "2 edges"]:
    """Pairs in both directions, drawn one by one, which a graph of thousands of nodes bears."""
    count = round(nodes * degree / 2) if nodes > 1 else 0
    source = torch.randint(nodes, (count,), generator=generator)
    step = torch.randint(1, max(nodes, 2), (count,), generator=generator)
    drawn = torch.stack([source, (source + step) % nodes])
    return torch.cat([drawn, drawn.flip(0)], dim=1)
