"""Precomputed columns: which a model reads, computing them, and caching them on disk."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.checks import check_least, check_types
from graphmamba.data.batch import membership_of, required
from graphmamba.data.cache import open_or_repair
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import GraphColumns, Pairs, boundaries
from graphmamba.data.transforms.centrality import eigenvector_centralities
from graphmamba.data.transforms.communities import all_communities
from graphmamba.data.transforms.degree_profile import degree_profiles
from graphmamba.data.transforms.expander import all_expanders
from graphmamba.data.transforms.laplacian import laplacian_spectra
from graphmamba.data.transforms.random_walk import return_probabilities
from graphmamba.ops.checks import check_membership, check_rows

# The column of each field of `Precompute` (`laplacian` has two, vectors and values), and its
# version; raise it to invalidate the cache.
COLUMN_OF = {
    "num_eigenvectors": ("laplacian", 2),
    "walk_length": ("random_walk", 1),
    "expander_degree": ("expander_index", 2),
    "has_centrality": ("centrality", 2),
    "has_clusters": ("cluster", 1),
    "degree_profile": ("degree_profile", 1),
}
DegreeProfile = Literal["none", "biased", "unbiased"]
"""Variance of the neighbours' degrees: divided by n, or by n - 1 as published."""


@dataclass(frozen=True)
class Precompute:
    """The precomputed columns that a model reads; 0 and `none` leave a column out."""

    num_eigenvectors: int = 0
    """Laplacian eigenvectors, from the smallest eigenvalue upwards."""
    walk_length: int = 0
    """Steps of the longest random walk."""
    expander_degree: int = 0
    """Random permutations that make up the expander graph."""
    has_centrality: bool = False
    """Whether nodes are sorted by eigenvector centrality."""
    has_clusters: bool = False
    """Whether nodes are sorted by community."""
    degree_profile: DegreeProfile = "none"
    """Local degree profiles, as features."""
    seed: int = 0
    """Random seed of the expander graphs."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("num_eigenvectors", "walk_length", "expander_degree"):
            check_least(name, getattr(self, name), 0)

    def parts(self) -> dict[str, "Precompute"]:
        """One `Precompute` per column, since each is cached by itself."""
        found = {}
        for name, (column, _) in COLUMN_OF.items():
            value = getattr(self, name)
            if value != getattr(Precompute, name):
                # nothing else is drawn
                seed = self.seed if name == "expander_degree" else 0
                found[column] = Precompute(**{name: value}, seed=seed)
        return found

    def recipe(self) -> dict[str, dict[str, int | str]]:
        """Recipe of each requested column, as JSON values; equal recipes give equal columns."""
        versions = dict(COLUMN_OF.values())
        defaults = asdict(Precompute())
        return {
            name: {key: value for key, value in asdict(part).items() if value != defaults[key]}
            | {"version": versions[name]}
            for name, part in self.parts().items()
        }


def add_columns(graphs: Data, precompute: Precompute) -> Data:
    """Return a copy of a graph, or of a batch, with the columns that `precompute` asks for.

    Graphs of a batch are treated one by one; expander graphs depend on `precompute.seed` and the
    index in the batch. The copy can be separated into graphs if the batch can.
    """
    edge_index = required(graphs, "edge_index", "as pairs of nodes")
    check_rows("graphs.edge_index", edge_index, [2, "edges"], is_integer=True)
    nodes, device = int(graphs.num_nodes or 0), edge_index.device
    batch, _, num_graphs = membership_of(graphs, nodes, device)
    check_rows("graphs.batch", batch, [nodes], is_integer=True)
    check_membership(edge_index, batch, num_graphs)
    edge_index, batch = edge_index.cpu().long(), batch.cpu()
    owner = batch[edge_index[0]]
    node_ptr = boundaries(batch.bincount(minlength=num_graphs))
    local = (edge_index - node_ptr[owner])[:, owner.argsort(stable=True)]
    edge_ptr = boundaries(owner.bincount(minlength=num_graphs))
    made = precomputed(GraphColumns(node_ptr, edge_ptr, local), precompute)
    done, starts = graphs.clone(), node_ptr[:-1]
    slices, shifts = {}, {}
    for name, rows in made.nodes.items():
        done[name] = rows.to(device)
        slices[name], shifts[name] = node_ptr, torch.zeros_like(starts)
    for name, pairs in made.pairs.items():
        done[name] = (pairs.index + starts.repeat_interleave(pairs.ptr.diff())).to(device)
        slices[name], shifts[name] = pairs.ptr, starts
    if getattr(graphs, "_slice_dict", None) is not None:
        # a copy shares both tables with what it was copied from
        done._slice_dict = {**graphs._slice_dict, **slices}
        done._inc_dict = {**graphs._inc_dict, **shifts}
    return done


def add_precomputed(columns: GraphColumns, asked: Precompute) -> GraphColumns:
    """`add_columns` for a whole data set."""
    made = precomputed(columns, asked)
    return replace(
        columns, nodes={**columns.nodes, **made.nodes}, pairs={**columns.pairs, **made.pairs}
    )


def precomputed(columns: GraphColumns, asked: Precompute) -> GraphColumns:
    """The columns that `asked` names, alone."""
    nodes: dict[str, Tensor] = {}
    pairs: dict[str, Pairs] = {}
    if asked.num_eigenvectors:
        vectors, values = laplacian_spectra(columns, asked.num_eigenvectors)
        nodes |= {"laplacian_vectors": vectors, "laplacian_values": values}
    if asked.walk_length:
        nodes["random_walk"] = return_probabilities(columns, asked.walk_length)
    if asked.has_centrality:
        nodes["centrality"] = eigenvector_centralities(columns)
    if asked.has_clusters:
        nodes["cluster"] = all_communities(columns)
    if asked.degree_profile != "none":
        nodes["degree_profile"] = degree_profiles(columns, asked.degree_profile == "unbiased")
    if asked.expander_degree:
        pairs["expander_index"] = all_expanders(columns, asked.expander_degree, asked.seed)
    no_edges = torch.zeros_like(columns.edge_ptr)
    return GraphColumns(
        columns.node_ptr, no_edges, columns.edge_index[:, :0], nodes, pairs=pairs,
        source=f"computed from graphs {columns.source}".rstrip(),
    )  # fmt: skip


def with_precomputed(
    store: GraphStore, asked: Precompute, folder: Path | str, recipe: Mapping[str, Any]
) -> GraphStore:
    """Return the store with the columns that `asked` names.

    Each column is cached by itself and shared by models. Spectra are computed on the CPU: its
    threads are faster than a GPU for graphs of more than 32 nodes, which PyTorch solves one by one
    there, and eigenvectors are then independent of the device. `recipe` is that of the graphs, as
    in `cache.open_or_build`.
    """
    nodes: dict[str, Tensor] = {}
    pairs: dict[str, Pairs] = {}

    @cache
    def graphs() -> GraphColumns:
        return store.to("cpu").columns()

    for part in asked.parts().values():

        def build(part: Precompute = part) -> GraphColumns:
            return precomputed(graphs(), part)

        whole = {"graphs": dict(recipe), "computed": part.recipe()}
        made = open_or_repair(folder, whole, build).columns()
        nodes |= made.nodes
        pairs |= made.pairs
    return store.with_columns(nodes=nodes, pairs=pairs)
