"""Graphs to predict: the files of `docs/own-data.md`, which need not hold labels."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from graphmamba.data.datasets.molecules import read_smiles
from graphmamba.data.own.arrays import load_arrays
from graphmamba.data.own.assemble import UNLABELLED, assemble_pairs, assemble_unlabelled
from graphmamba.data.own.csv_table import read_csv
from graphmamba.data.own.feature_names import check_names
from graphmamba.data.own.folder import columns_of_tables, lay_pairs, read_split, read_tables
from graphmamba.data.own.options import OwnOptions
from graphmamba.data.own.roster import list_graphs, list_nodes
from graphmamba.data.parallel import track
from graphmamba.data.tables import LINKS, GraphColumns, Pairs
from graphmamba.errors import UserError


@dataclass(frozen=True)
class Unlabelled:
    """Graphs without labels, and what their owner calls them."""

    columns: GraphColumns
    graphs: tuple[str, ...] = ()
    """Names of the graphs; empty where they are numbered."""
    nodes: tuple[str, ...] = ()
    """Names of all nodes, graph after graph; empty where they are numbered."""

    def graph_name(self, graph: int) -> str:
        """What a graph is called."""
        return self.graphs[graph] if self.graphs else str(graph)

    def node_name(self, graph: int, node: int) -> str:
        """What a node of a graph is called."""
        place = int(self.columns.node_ptr[graph]) + node
        return self.nodes[place] if self.nodes else str(node)


def read_unlabelled(
    path: Path | str, options: OwnOptions, columns: tuple[str, ...] = (), has_split: bool = False
) -> Unlabelled:
    """Read graphs to predict.

    Args:
        path: A folder of CSV files, an `.npz` of arrays, or a `.csv` of molecules.
        options: How the graphs were read that a model was trained on: their label columns are
            no features here either.
        columns: Feature columns that the model knows, as `feature_names` gives them; files
            that name others, or these in another order, are refused. Empty takes any.
        has_split: Whether to read which part each graph is in, where the files say so; where
            nobody asks, `split` may hold anything.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"graphs to predict must be a folder, .npz or .csv, got no '{path}'")
    suffix = "" if path.is_dir() else path.suffix
    if suffix not in READERS:
        raise UserError(f"graphs to predict must be a folder, .npz or .csv, got '{path}'")
    check_names(path, options.labels, columns)
    return READERS[suffix](path, options, has_split)


def _read_folder(path: Path, options: OwnOptions, has_split: bool) -> Unlabelled:
    tables = read_tables(path)
    nodes, graphs = tables["nodes.csv"], tables.get("graphs.csv")
    roster = list_nodes(nodes, list_graphs(graphs, nodes), graphs)
    columns = columns_of_tables(tables, roster, options.labels, options.is_undirected)
    if "pairs.csv" in tables:
        columns.pairs[LINKS] = lay_pairs(tables["pairs.csv"], roster)
    names = nodes.filled("node")
    return Unlabelled(
        replace(columns, split=read_split(graphs) if has_split else None),
        tuple(roster.graph_number),
        tuple(names[row] for row in roster.order.tolist()),
    )


def _read_npz(path: Path, _options: OwnOptions, has_split: bool) -> Unlabelled:
    arrays = load_arrays(path, UNLABELLED if has_split else UNLABELLED - {"split"})
    columns = assemble_unlabelled(arrays, str(path))
    if "pair_ptr" in arrays and LINKS in arrays:
        ptr, index = assemble_pairs(arrays, columns, str(path))
        columns.pairs[LINKS] = Pairs(ptr, index, {})
    return Unlabelled(columns)


def _read_smiles(path: Path, options: OwnOptions, has_split: bool) -> Unlabelled:
    table = read_csv(path)
    molecules = table.filled(options.smiles)
    split = read_split(table) if has_split else None
    columns = read_smiles(
        molecules, table.where, lambda texts: track(texts, "Molecules", len(texts))
    )
    return Unlabelled(replace(columns, split=split))


READERS: dict[str, Callable[[Path, OwnOptions, bool], Unlabelled]] = {
    "": _read_folder,
    ".npz": _read_npz,
    ".csv": _read_smiles,
}
