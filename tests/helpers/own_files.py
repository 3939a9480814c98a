"""Small folders, arrays and molecules as a user would have them."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from torch_geometric.data import Data


def write_rings(folder: Path, graphs: int = 12, label: str = "taste") -> Path:
    """Rings and lines of four to six nodes with one feature; rings are sweet, lines are sour."""
    folder.mkdir(parents=True, exist_ok=True)
    nodes, edges, named = [], [], []
    for graph in range(graphs):
        name, size, is_ring = f"g{graph}", 4 + graph % 3, graph % 2 == 0
        named.append([name, "sweet" if is_ring else "sour"])
        nodes += [[name, f"n{node}", node % 2] for node in range(size)]
        ends = size if is_ring else size - 1
        edges += [[name, f"n{node}", f"n{(node + 1) % size}"] for node in range(ends)]
    write_rows(folder / "graphs.csv", ["graph", label], named)
    write_rows(folder / "nodes.csv", ["graph", "node", "size"], nodes)
    write_rows(folder / "edges.csv", ["graph", "source", "target"], edges)
    return folder


def write_rows(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def write_graphs(folder: Path, graphs: Sequence[Data], label: str = "kind") -> Path:
    """Graphs of numbers as a folder of CSV files, with their classes in a column of their own."""
    folder.mkdir(parents=True)
    is_of_nodes = len(graphs[0].y) == graphs[0].num_nodes
    nodes, edges = [], []
    for number, graph in enumerate(graphs):
        classes = [[kind] for kind in graph.y.tolist()] if is_of_nodes else [[]] * len(graph.x)
        rows = [[*x, *kind] for x, kind in zip(graph.x.tolist(), classes, strict=True)]
        nodes += [[number, node, *row] for node, row in enumerate(rows)]
        attributes = [[]] * graph.num_edges if graph.edge_attr is None else graph.edge_attr.tolist()
        pairs = zip(graph.edge_index.T.tolist(), attributes, strict=True)
        edges += [[number, *pair, *row] for pair, row in pairs]
    names = [f"x{column}" for column in range(graphs[0].x.shape[1])]
    write_rows(folder / "nodes.csv", ["graph", "node", *names, *[label] * is_of_nodes], nodes)
    widths = range(len(edges[0]) - 3)
    write_rows(
        folder / "edges.csv", ["graph", "source", "target", *[f"w{n}" for n in widths]], edges
    )
    if not is_of_nodes:
        listed = [[number, int(graph.y)] for number, graph in enumerate(graphs)]
        write_rows(folder / "graphs.csv", ["graph", label], listed)
    return folder


def write_numbers(path: Path, graphs: int = 10) -> Path:
    """Lines of three nodes whose target is the sum of their features."""
    x = np.arange(3 * graphs, dtype=np.float64)[:, None] / graphs
    np.savez(
        path,
        node_ptr=3 * np.arange(graphs + 1),
        edge_ptr=2 * np.arange(graphs + 1),
        edge_index=np.tile(np.array([[0, 1], [1, 2]]), graphs),
        x=x,
        y=x.reshape(graphs, 3).sum(axis=1) + 0.5,
    )
    return path
