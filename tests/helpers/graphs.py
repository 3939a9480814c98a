"""Small batches of random graphs for tests of orders and layers."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.batch import Topology
from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.data.transforms.precompute import Precompute, add_columns

ODD_SIZES = (7, 1, 12, 0, 3)
"""A one-node graph and an empty one among the others."""
FREQUENCIES = 5
"""Eigenvectors of each graph."""


def graph_columns(*graphs: tuple[Tensor, int]) -> GraphColumns:
    """Graphs of these edges and numbers of nodes, laid end to end."""
    nodes = torch.tensor([nodes for _, nodes in graphs], dtype=torch.int64)
    edges = torch.tensor([index.shape[1] for index, _ in graphs], dtype=torch.int64)
    index = [torch.empty(2, 0, dtype=torch.int64), *(index for index, _ in graphs)]
    return GraphColumns(boundaries(nodes), boundaries(edges), torch.cat(index, dim=1))


def random_topology(
    sizes: Sequence[int] = ODD_SIZES, degree: int = 3, seed: int = 0, walks: int = 4
) -> Topology:
    """Graphs of these sizes with every column that an order or a layer may ask for.

    Edges are drawn with replacement: isolated nodes, self-loops and repeated edges all occur.
    """
    generator = torch.Generator().manual_seed(seed)
    none = torch.empty(2, 0, dtype=torch.int64)
    edges, expanders, start = [none], [none], 0
    for size in sizes:
        for kind, count in ((edges, degree * size if size > 1 else 0), (expanders, 2 * size)):
            drawn = torch.randint(max(size, 1), (2, count), generator=generator)
            kind.append(drawn + start)
        start += size
    nodes = sum(sizes)
    return Topology(
        edge_index=torch.cat(edges, dim=1),
        batch=torch.repeat_interleave(
            torch.arange(len(sizes)), torch.tensor(sizes, dtype=torch.int64)
        ),
        num_graphs=len(sizes),
        seed=torch.tensor(seed),
        columns={
            "graph_key": torch.arange(len(sizes)) + 100,
            "centrality": torch.rand(nodes, generator=generator),
            "random_walk": torch.rand(nodes, walks, generator=generator),
            "cluster": torch.randint(3, (nodes,), generator=generator),
            "laplacian_vectors": torch.randn(nodes, FREQUENCIES, generator=generator),
            "laplacian_values": torch.rand(nodes, FREQUENCIES, generator=generator),
            "expander_index": torch.cat(expanders, dim=1),
        },
    )


def random_rows(
    topology: Topology, channels: int = 8, seed: int = 0, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    """Node embeddings and edge embeddings."""
    generator = torch.Generator().manual_seed(seed)
    nodes, edges = topology.batch.shape[0], topology.edge_index.shape[1]
    x = torch.randn(nodes, channels, generator=generator, dtype=dtype)
    return x, torch.randn(edges, channels, generator=generator, dtype=dtype)


def with_gate(topology: Topology, channels: int = 8) -> Topology:
    """The same graphs with positions for GatedGCN's stable gate."""
    return with_columns(topology, gate_encoding=random_rows(topology, channels, seed=5)[0])


def with_columns(topology: Topology, **columns: Tensor | None) -> Topology:
    """The same graphs with other columns; None leaves a column out."""
    found = {**topology.columns, **columns}
    return replace(topology, columns={name: c for name, c in found.items() if c is not None})


def moved_to(topology: Topology, device: str) -> Topology:
    """The same graphs on a device."""
    fields = {name: each for name, each in vars(topology).items() if isinstance(each, Tensor)}
    return replace(
        topology,
        columns={name: each.to(device) for name, each in topology.columns.items()},
        **{name: each.to(device) for name, each in fields.items()},
    )


def one_graph(topology: Topology, graph: int) -> tuple[Topology, Tensor, Tensor]:
    """One graph of a batch by itself, and the numbers of its nodes and edges in the batch."""
    nodes = (topology.batch == graph).nonzero().flatten()
    start = int(nodes[0]) if len(nodes) else 0

    def cut(edge_index: Tensor) -> tuple[Tensor, Tensor]:
        inside = torch.isin(edge_index[0], nodes).nonzero().flatten()
        return edge_index[:, inside] - start, inside

    def pick(name: str, column: Tensor) -> Tensor:
        if name == "graph_key":
            return column[graph : graph + 1]
        return cut(column)[0] if name == "expander_index" else column[nodes]

    edge_index, edges = cut(topology.edge_index)
    alone = replace(
        topology,
        edge_index=edge_index,
        batch=torch.zeros_like(nodes),
        num_graphs=1,
        columns={name: pick(name, column) for name, column in topology.columns.items()},
    )
    return alone, nodes, edges


def with_spectrum(edge_index: Tensor, sizes: list[int], num_eigenvectors: int = 10) -> Topology:
    """Graphs of these sizes with eigenvectors and eigenvalues of their Laplacians."""
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    graphs = Data(edge_index=edge_index, batch=batch, num_nodes=sum(sizes))
    made = add_columns(graphs, Precompute(num_eigenvectors=num_eigenvectors))
    return Topology(
        edge_index=edge_index,
        batch=batch,
        num_graphs=len(sizes),
        seed=torch.tensor(0),
        columns={
            "graph_key": torch.arange(len(sizes)),
            "laplacian_vectors": made.laplacian_vectors,
            "laplacian_values": made.laplacian_values,
        },
    )


def path(nodes: int, start: int = 0) -> Tensor:
    """Edges, in both directions, of nodes in a row."""
    steps = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)]) + start
    return torch.cat([steps, steps.flip(0)], dim=1)
