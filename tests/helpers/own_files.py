"""Small folders, arrays and molecules as a user would have them."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np


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
