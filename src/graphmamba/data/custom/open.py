"""A user's graphs by their path: read once, kept by content and options, then opened at once."""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from graphmamba.atomic import cannot_read, write_json
from graphmamba.checks import check_is
from graphmamba.data.cache import DamagedError, file_hash, open_or_build, recipe_hash
from graphmamba.data.catalog import Features, Task
from graphmamba.data.custom.csv import (
    FILES,
    check_regular,
    columns_of_tables,
    lay_pairs,
    list_graphs,
    list_nodes,
    read_csv,
    read_folder,
    read_split,
    read_tables,
)
from graphmamba.data.custom.labels import CustomData
from graphmamba.data.custom.links import split_links
from graphmamba.data.custom.masks import MASKS, draw_node_split
from graphmamba.data.custom.npz import (
    UNLABELLED,
    assemble_pairs,
    assemble_unlabelled,
    load_arrays,
    read_npz,
)
from graphmamba.data.custom.options import DataOptions, check_names, check_read, format_of
from graphmamba.data.custom.smiles import read_smiles_csv
from graphmamba.data.datasets.molecules import read_smiles
from graphmamba.data.datasets.sources import default_data_dir
from graphmamba.data.parallel import track
from graphmamba.data.splits import random_split
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.data.tables import LINKS, NODE_SPLIT, GraphColumns, Pairs
from graphmamba.data.transforms.precompute import Precompute, with_precomputed
from graphmamba.errors import UnwritableError, UserError
from graphmamba.parse import parse

READING = 5
"""Counts changes in how files are read; what is kept then becomes stale."""
OWN = "own"
"""Folder in the data directory where users' graphs are kept."""


@dataclass(frozen=True)
class CustomStore:
    """A user's graphs, ready for training."""

    store: GraphStore
    """The graphs, each in a split: that of the files, or one drawn by the options' seed, if any."""
    features: Features
    """What a model reads of nodes and edges."""
    task: Task
    """What is predicted: level, width, loss and metric."""
    class_names: tuple[str, ...]
    """Classes by their number; or, where labels are not classes, the label columns."""
    recipe: dict[str, Any]
    """What the graphs depend on: contents of the files and how they are read, not the split."""
    folder: Path
    """Where they are kept, and what is computed from them."""

    def with_columns(self, asked: Precompute) -> "CustomStore":
        """Return the graphs with the pre-computed columns that a model reads, kept on disk too."""
        store = with_precomputed(self.store, asked, self.folder, self.recipe)
        return replace(self, store=store)


def open_custom(
    path: Path | str,
    options: DataOptions | None = None,
    data_dir: Path | None = None,
    *,
    rebuild: bool = False,
    draws_split: bool = True,
) -> CustomStore:
    """Open a folder of CSV files, an `.npz` of arrays, or a CSV of molecules.

    What is read is kept in the data directory by the contents of the files and the options:
    opening it again takes no time, and a file that changed is read again. `docs/own-data.md`
    describes the files.

    Args:
        path: The folder, the `.npz`, or the `.csv`.
        options: What the files do not say themselves, such as which column is the label.
        data_dir: Where sets are kept; None for the default place.
        rebuild: Whether to read again what is kept, such as a damaged file.
        draws_split: Whether graphs get a split where the files do not say which.
    """
    path, options = Path(path), options or DataOptions()
    check_is("options", options, DataOptions)
    read, files = _reader_of(path, options)
    recipe = _recipe(path, options, files)
    folder = (data_dir or default_data_dir()) / OWN
    about = folder / f"{recipe_hash(recipe)[:16]}.json"

    def build() -> GraphColumns:
        own = read()
        # Written before the graphs are, so that whoever finds them finds this.
        write_json(about, {"features": asdict(own.features), "task": asdict(own.task),
                           "names": list(own.class_names)})  # fmt: skip
        return own.columns

    def opened(anew: bool) -> tuple[GraphStore, Features, Task, tuple[str, ...]]:
        return open_or_build(folder, recipe, build, rebuild=anew), *_read(about)

    try:
        store, features, task, names = opened(rebuild)
    except DamagedError:
        # the files are at hand
        store, features, task, names = opened(True)
    if draws_split:
        store = with_split(store, task, options)
        if task.level == "link" and store.is_transductive:
            # what is computed of the edges that carry messages is not that of all edges
            recipe = recipe | {"links": [*options.split_ratios, options.split_seed]}
    return CustomStore(store, features, task, names, recipe, folder)


def inspect_custom(
    path: Path | str, options: DataOptions | None = None, data_dir: Path | None = None
) -> tuple[CustomStore, bool]:
    """Open custom graphs for a look, in memory alone where nothing can be kept.

    Args:
        path: As in `open_custom`.
        options: As there.
        data_dir: As there.

    Returns:
        The graphs, and whether they are kept in the data directory.
    """
    try:
        return open_custom(path, options, data_dir), True
    except UnwritableError:
        path, options = Path(path), options or DataOptions()
        read, files = _reader_of(path, options)
        own, folder = read(), (data_dir or default_data_dir()) / OWN
        store = with_split(GraphStore(own.columns), own.task, options)
        recipe = _recipe(path, options, files)
        return CustomStore(store, own.features, own.task, own.class_names, recipe, folder), False


def is_custom(path: Path | str) -> bool:
    """Whether a word names custom graphs, not a benchmark: a folder, `.npz` or `.csv`."""
    return Path(path).is_dir() or Path(path).suffix in {".npz", ".csv"}


def _reader_of(path: Path, options: DataOptions) -> tuple[Callable[[], CustomData], Iterable[Path]]:
    """How a path is read, and the files whose contents count."""
    if (kind := format_of(path)) is not None and path.exists():
        check_read(options, kind, str(path))
    if path.is_dir():
        found = [path / name for name in FILES if (path / name).exists()]
        for file in found:
            check_regular(file)
        return partial(
            read_folder, path, options.targets, options.rule, options.level, options.undirected
        ), found
    if not path.is_file():
        # A run keeps the path as it was given, and may be gone on with from elsewhere.
        where = "" if path.is_absolute() else f" in '{Path.cwd()}'"
        raise UserError(
            f"custom graphs must be a folder, an .npz or a .csv, got no '{path}'{where}"
        )
    if path.suffix == ".npz":
        return partial(read_npz, path, options.rule, options.level, options.split_index), [path]
    if path.suffix == ".csv":
        if options.level not in (None, "graph"):
            raise UserError(f"level must be 'graph' for molecules, got {options.level!r}")
        return partial(read_smiles_csv, path, options.targets, options.rule, options.smiles), [path]
    raise UserError(f"custom graphs must be a folder, an .npz or a .csv, got '{path}'")


def _recipe(path: Path, options: DataOptions, files: Iterable[Path]) -> dict[str, Any]:
    return {
        "own": path.name,
        "reading": READING,
        "files": {file.name: file_hash(file) for file in files},
        "options": _options_that_matter(options),
    }


def with_split(store: GraphStore, task: Task, options: DataOptions) -> GraphStore:
    """Draw the split of graphs, or of the nodes or edges of a single one, where files do not."""
    if store.is_transductive:
        return store
    if options.split_index:
        raise UserError(
            f"split_index is read of graphs with {', '.join(MASKS)}, got {options.split_index} for "
            "graphs without"
        )
    if store.split is not None:
        return store
    if len(store) == 1 and task.level == "node":
        y = store.tables["nodes"].given("y")
        drawn = draw_node_split(y, options.split_ratios, options.split_seed)
        return store.with_columns(nodes={NODE_SPLIT: drawn})
    if task.level == "link" and PAIRS + LINKS not in store.tables:
        found = split_links(store.columns(), options.split_ratios, options.split_seed)
        return GraphStore(found)
    split = random_split(len(store), options.split_ratios, options.split_seed)
    return GraphStore.from_tables(store.tables, split, store.source)


def _options_that_matter(options: DataOptions) -> dict[str, Any]:
    """All but the split and its statistics, made anew each time: what is computed stays valid."""
    left_out = {"split_ratios", "split_seed", "standardize_targets"}
    kept = {name: value for name, value in asdict(options).items() if name not in left_out}
    return kept | {"target": options.targets}


def _read(path: Path) -> tuple[Features, Task, tuple[str, ...]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        features = parse(Features, content["features"], "features")
        task = parse(Task, content["task"], "task")
        return features, task, tuple(map(str, content["names"]))
    except PermissionError as error:
        raise cannot_read(path) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path} must describe the graphs beside it: {error}") from error


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
    path: Path | str, options: DataOptions, columns: tuple[str, ...] = (), has_split: bool = False
) -> Unlabelled:
    """Read graphs to predict.

    Args:
        path: A folder of CSV files, an `.npz` of arrays, or a `.csv` of molecules.
        options: How the graphs were read that a model was trained on: their label columns are
            no features here either.
        columns: Feature columns that the model knows, as `feature_names` gives them; files
            that name others, or these in another order, are rejected. Empty takes any.
        has_split: Whether to read which split each graph is in, where the files say so; where
            nobody asks, `split` may hold anything.
    """
    path = Path(path)
    if not path.exists():
        raise UserError(f"graphs to predict must be a folder, .npz or .csv, got no '{path}'")
    suffix = "" if path.is_dir() else path.suffix
    if suffix not in READERS:
        raise UserError(f"graphs to predict must be a folder, .npz or .csv, got '{path}'")
    check_names(path, options.targets, columns)
    return READERS[suffix](path, options, has_split)


def _read_folder(path: Path, options: DataOptions, has_split: bool) -> Unlabelled:
    tables = read_tables(path)
    nodes, graphs = tables["nodes.csv"], tables.get("graphs.csv")
    roster = list_nodes(nodes, list_graphs(graphs, nodes), graphs)
    columns = columns_of_tables(tables, roster, options.targets, options.undirected)
    if "pairs.csv" in tables:
        columns.pairs[LINKS] = lay_pairs(tables["pairs.csv"], roster)
    names = nodes.filled("node")
    return Unlabelled(
        replace(columns, split=read_split(graphs) if has_split else None),
        tuple(roster.graph_number),
        tuple(names[row] for row in roster.order.tolist()),
    )


def _read_npz(path: Path, _options: DataOptions, has_split: bool) -> Unlabelled:
    arrays = load_arrays(path, UNLABELLED if has_split else UNLABELLED - {"split"})
    columns = assemble_unlabelled(arrays, str(path))
    if ("pair_ptr" in arrays) != (LINKS in arrays):
        raise UserError(f"{path} must hold both pair_ptr and {LINKS}, or none, got one of them")
    if "pair_ptr" in arrays:
        ptr, index = assemble_pairs(arrays, columns, str(path))
        columns.pairs[LINKS] = Pairs(ptr, index, {})
    return Unlabelled(columns)


def _read_smiles(path: Path, options: DataOptions, has_split: bool) -> Unlabelled:
    table = read_csv(path)
    molecules = table.filled(options.smiles)
    split = read_split(table) if has_split else None
    columns = read_smiles(
        molecules, table.where, lambda texts: track(texts, "Molecules", len(texts))
    )
    return Unlabelled(replace(columns, split=split))


READERS: dict[str, Callable[[Path, DataOptions, bool], Unlabelled]] = {
    "": _read_folder,
    ".npz": _read_npz,
    ".csv": _read_smiles,
}
