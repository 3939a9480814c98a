"""Checks at the model's door; every message names the column, the rule and the value."""

from dataclasses import replace

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.checks import check_least
from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, Features
from graphmamba.data.columns import column, required
from graphmamba.data.tables import LINKS
from graphmamba.data.topology import Topology
from graphmamba.data.transforms.precompute import Precompute
from graphmamba.errors import UserError
from graphmamba.ops.edge_layout import lay_out_edges
from graphmamba.ops.tensor_checks import (
    check_float_type,
    check_membership,
    check_pairs,
    check_rows,
)

CATEGORIES = {"atoms", "bonds"}
MADE_BY = "for this model: see data.transforms.precompute.add_columns"
LEFT_OVER = (
    ": if graphs.edge_index was changed, remove source_order, source_ptr and target_ptr, "
    "or take the batch from a GraphStore of the changed graphs"
)


def check_columns(
    graphs: Data, topology: Topology, features: Features, precompute: Precompute, weight: Tensor
) -> None:
    """Refuse columns that are missing, of another shape or type; looks at no value on the GPU.

    Args:
        graphs: The batch.
        topology: Its graphs.
        features: Columns that the model was built for.
        precompute: Further columns that it reads.
        weight: A parameter, whose type floats must have.
    """
    edge_index, nodes = topology.edge_index, topology.batch.shape[0]
    check_rows("graphs.edge_index", edge_index, [2, "edges"], is_integer=True)
    if topology.batch.shape != graphs.x.shape[:1]:
        raise UserError(
            f"graphs.batch must have shape [{graphs.x.shape[0]}], got {list(topology.batch.shape)}"
        )
    is_integer = features.nodes in CATEGORIES
    check_rows("graphs.x", graphs.x, [nodes, features.node_columns], is_integer=is_integer)
    if not is_integer:
        check_float_type("graphs.x", graphs.x, weight)
    if features.edges != "none":
        rows = required(graphs, "edge_attr", "as edge features")
        shape = [edge_index.shape[1], features.edge_columns]
        is_integer = features.edges in CATEGORIES
        check_rows("graphs.edge_attr", rows, shape, is_integer=is_integer)
        if not is_integer:
            check_float_type("graphs.edge_attr", rows, weight)
    _check_precomputed(graphs, nodes, precompute)
    lengths = {
        "source_order": edge_index.shape[1],
        "source_ptr": nodes + 1,
        "target_ptr": nodes + 1,
    }
    for name, count in lengths.items():
        values = column(graphs, name)
        if values is not None:
            check_rows(f"graphs.{name}", values, [count], is_integer=True, hint=LEFT_OVER)


def check_values(graphs: Data, topology: Topology, features: Features) -> None:
    """Refuse edges between graphs, and numbers of graphs, nodes, atoms, ... that do not exist."""
    check_membership(topology.edge_index, topology.batch, topology.num_graphs)
    _check_pointers(topology)
    if topology.source_order is not None:
        _check_layout(topology, topology.source_order)
    if topology.expander_index is not None:
        check_pairs("expander_index", topology.expander_index, topology.batch)
    asked = column(graphs, LINKS)
    if asked is not None:
        check_pairs(LINKS, asked, topology.batch)
    if features.nodes == "atoms":
        _check_categories("x", graphs.x, ATOM_VOCABULARY)
    if features.edges == "bonds":
        _check_categories("edge_attr", graphs.edge_attr, BOND_VOCABULARY)


def _check_pointers(topology: Topology) -> None:
    if topology.ptr is None:
        return
    starts = replace(topology, ptr=None).starts()
    wrong = (topology.ptr != starts).nonzero()
    if len(wrong):
        place = int(wrong[0])
        raise UserError(
            f"graphs.ptr must hold the first node of each graph of graphs.batch, "
            f"got {int(topology.ptr[place])} instead of {int(starts[place])} at {place}"
        )


def _check_layout(topology: Topology, source_order: Int[Tensor, " edges"]) -> None:
    """Refuse an order of the edges that is not one, and pointers into other edges."""
    source, target = topology.edge_index
    if bool((target.diff() < 0).any()):
        raise UserError(
            "graphs.edge_index must be sorted by target where source_order is given, "
            f"got other edges{LEFT_OVER}"
        )
    edges = source.shape[0]
    is_edge = (source_order >= 0) & (source_order < edges)
    if not bool(is_edge.all()) or bool((source_order.bincount(minlength=edges) != 1).any()):
        raise UserError(f"graphs.source_order must hold each edge once, got others{LEFT_OVER}")
    if bool((source[source_order].diff() < 0).any()):
        raise UserError(f"graphs.source_order must sort edges by source, got others{LEFT_OVER}")
    found = lay_out_edges(topology.edge_index, topology.batch.shape[0], source_order, check=False)
    for name in ("source_ptr", "target_ptr"):
        given, truth = getattr(topology, name), getattr(found, name)
        wrong = [] if given is None else (given != truth).nonzero()
        if len(wrong):
            place = int(wrong[0])
            raise UserError(
                f"graphs.{name} must hold the first edge of each node, "
                f"got {int(given[place])} instead of {int(truth[place])} at {place}{LEFT_OVER}"
            )


def _check_precomputed(graphs: Data, nodes: int, precompute: Precompute) -> None:
    for name, least in (
        ("laplacian_vectors", precompute.frequencies),
        ("laplacian_values", precompute.frequencies),
        ("random_walk", precompute.walks),
    ):
        if least:
            rows = required(graphs, name, MADE_BY)
            check_rows(f"graphs.{name}", rows, [nodes, "columns"])
            check_least(f"columns of graphs.{name}", rows.shape[1], least)
    if precompute.expander_degree:
        pairs = required(graphs, "expander_index", MADE_BY)
        check_rows("graphs.expander_index", pairs, [2, "expanders"], is_integer=True)
    if precompute.has_centrality:
        check_rows("graphs.centrality", required(graphs, "centrality", MADE_BY), [nodes])
    if precompute.has_clusters:
        rows = required(graphs, "cluster", MADE_BY)
        check_rows("graphs.cluster", rows, [nodes], is_integer=True)


def _check_categories(
    name: str, rows: Int[Tensor, "rows columns"], vocabulary: tuple[int, ...]
) -> None:
    ends = torch.tensor(vocabulary, device=rows.device)
    wrong = (rows < 0) | (rows >= ends)
    if bool(wrong.any()):
        row, place = (int(index) for index in wrong.nonzero()[0])
        raise UserError(
            f"graphs.{name} column {place} must be in 0 to {vocabulary[place] - 1}, "
            f"got {int(rows[row, place])} in row {row}"
        )
