"""A user's graphs by their path: read once, kept by content and options, then opened at once."""

import csv
import json
import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from graphmamba.atomic import atomic_write, cannot_read, write_json
from graphmamba.checks import check_is
from graphmamba.data.cache import (
    DamagedError,
    default_data_dir,
    file_hash,
    open_or_build,
    recipe_hash,
)
from graphmamba.data.catalog import Features, Task
from graphmamba.data.custom.csv import (
    FILES,
    check_regular,
    columns_of_tables,
    lay_pairs,
    list_nodes,
    read_csv,
    read_folder,
    read_split,
    read_tables,
    table_in,
)
from graphmamba.data.custom.labels import CustomData, Skipped
from graphmamba.data.custom.networkx import (
    Graphs,
    attribute_of,
    convert,
    from_networkx,
    graphml_files,
    names_of_nodes,
    networkx_graphs,
    read_graphml,
)
from graphmamba.data.custom.npz import (
    UNLABELLED,
    assemble_pairs,
    assemble_unlabelled,
    load_arrays,
    read_npz,
)
from graphmamba.data.custom.one_graph import MASKS, draw_node_split, split_links
from graphmamba.data.custom.options import (
    KINDS_OF_FILES,
    DataOptions,
    check_names,
    check_read,
    format_of,
)
from graphmamba.data.custom.pyg import from_graphs, list_of
from graphmamba.data.custom.smiles import read_molecules, read_smiles_csv
from graphmamba.data.custom.split import Key, choose_split, split_key
from graphmamba.data.custom.tu import read_tu, read_tu_unlabelled, tu_files
from graphmamba.data.from_pyg import columns_of
from graphmamba.data.splits import SPLITS, split_numbers, split_of_words
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.data.tables import LINKS, NODE_SPLIT, GraphColumns, Pairs
from graphmamba.data.transforms.precompute import Precompute, with_precomputed
from graphmamba.errors import UnwritableError, UserError
from graphmamba.parse import parse

OGB_SPLITS = ("train", "valid", "test")
READING = 8
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
    skipped: tuple[Skipped, ...] = ()
    """Rows of the file that are no graphs, and were left out."""

    def with_columns(self, asked: Precompute) -> "CustomStore":
        """Return the graphs with the pre-computed columns that a model reads, kept on disk too."""
        store = with_precomputed(self.store, asked, self.folder, self.recipe)
        return replace(self, store=store)


def open_custom(
    path: Path | str,
    options: DataOptions | None = None,
    data_dir: Path | None = None,
    *,
    draws_split: bool = True,
) -> CustomStore:
    """Open a folder of tables, a table of molecules, arrays, a TUDataset or GraphML.

    What is read is kept in the data directory by the contents of the files and the options:
    opening it again takes no time, and a file that changed is read again. `docs/custom-data.md`
    describes the files.

    Args:
        path: The folder or the file.
        options: What the files do not say themselves, such as which column is the label.
        data_dir: Where sets are kept; None for the default place.
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
                           "names": list(own.class_names),
                           "skipped": [list(each) for each in own.skipped]})  # fmt: skip
        return own.columns

    def opened(anew: bool) -> CustomStore:
        store = open_or_build(folder, recipe, build, rebuild=anew)
        features, task, names, skipped = _read(about)
        return CustomStore(store, features, task, names, recipe, folder, skipped)

    try:
        found = opened(False)
    except DamagedError:
        # the files are at hand
        found = opened(True)
    if found.skipped:
        _list_skipped(found, about.with_suffix(".skipped.csv"))
    return _split(found, path, options) if draws_split or options.split == "column" else found


def _split(found: CustomStore, path: Path, options: DataOptions) -> CustomStore:
    read_key = partial(_key, found, path, options)
    store = with_split(found.store, found.task, options, read_key, str(path))
    recipe = found.recipe
    if found.task.level == "link" and store.is_transductive:
        # what is computed of the edges that carry messages is not that of all edges
        recipe = recipe | {"links": [*options.split_ratios, options.split_seed]}
    return replace(found, store=store, recipe=recipe)


def _list_skipped(found: CustomStore, path: Path) -> None:
    """Say what was left out, and write down which rows they are."""

    def write(partial: Path) -> None:
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(["row", "where", "smiles"])
            writer.writerows(found.skipped)

    if not path.exists():
        atomic_write(path, write)
    count, rows = len(found.skipped), len(found.skipped) + len(found.store)
    _warn_once(
        f"{count:,} of {rows:,} rows are left out, since RDKit rejects their SMILES: {path} lists "
        "them; data.on_error raise stops at the first"
    )


@cache
def _warn_once(message: str) -> None:
    """Warn in each process once, however often the graphs are opened."""
    warnings.warn(message, stacklevel=4)


def inspect_custom(
    path: Path | str, options: DataOptions | None = None, data_dir: Path | None = None
) -> tuple[CustomStore, bool]:
    """Open custom graphs for a look; says whether they are kept, or in memory alone.

    They are in memory alone where nothing can be written to the data directory.
    """
    try:
        return open_custom(path, options, data_dir), True
    except UnwritableError:
        path, options = Path(path), options or DataOptions()
        read, files = _reader_of(path, options)
        own, folder = read(), (data_dir or default_data_dir()) / OWN
        found = CustomStore(
            GraphStore(own.columns),
            own.features,
            own.task,
            own.class_names,
            _recipe(path, options, files),
            folder,
            own.skipped,
        )
        return _split(found, path, options), False


def is_custom(path: Path | str) -> bool:
    """Whether a word names custom graphs, not a benchmark: a folder, or a file by its ending."""
    return format_of(Path(path)) is not None


def _reader_of(path: Path, options: DataOptions) -> tuple[Callable[[], CustomData], Iterable[Path]]:
    """How a path is read, and the files whose contents count."""
    kind = format_of(path)
    if not path.exists():
        # A run keeps the path as it was given, and may be gone on with from elsewhere.
        where = "" if path.is_absolute() else f" in '{Path.cwd()}'"
        raise UserError(f"custom graphs must be {KINDS_OF_FILES}, got no '{path}'{where}")
    if kind is None:
        raise UserError(f"custom graphs must be {KINDS_OF_FILES}, got '{path}'")
    check_read(options, kind, str(path))
    targets, rule, level = options.targets, options.rule, options.level
    if kind == "folder":
        found = [table_in(path, name) for name in FILES]
        found = [file for file in found if file.exists()]
        for file in found:
            check_regular(file)
        return partial(read_folder, path, targets, rule, level, options.undirected), found
    if kind == "TUDataset":
        return partial(read_tu, path, targets, rule, level), tu_files(path)
    if kind == "GraphML":

        def read() -> CustomData:
            found = from_networkx(read_graphml(path)[0], targets or "y", rule, level)
            columns = replace(found.columns, source=f"read from {path.name}")
            return replace(found, columns=columns)

        return read, graphml_files(path)
    if kind == ".npz":
        return partial(read_npz, path, rule, level, options.split_index), [path]
    if level not in (None, "graph"):
        raise UserError(f"level must be 'graph' for molecules, got {level!r}")
    has_descriptors = bool(options.descriptors)
    read = partial(read_smiles_csv, path, targets, rule, options.smiles, options.on_error)
    return partial(read, has_descriptors=has_descriptors), [path]


def _recipe(path: Path, options: DataOptions, files: Iterable[Path]) -> dict[str, Any]:
    # the split and its statistics are made anew each time: what is computed stays valid
    left_out = {
        *("split_ratios", "split_seed", "split", "split_column", "folds", "fold"),
        "standardize_targets",
    }
    kept = {name: value for name, value in asdict(options).items() if name not in left_out}
    return {
        "own": path.name,
        "reading": READING,
        "files": {file.name: file_hash(file) for file in files},
        "options": kept | {"target": options.targets, "descriptors": bool(options.descriptors)},
    }


def with_split(
    store: GraphStore,
    task: Task,
    options: DataOptions,
    read_key: Callable[[], Key],
    where: str,
) -> GraphStore:
    """Split graphs, or the nodes or edges of one: as options say, or files, or by chance."""
    is_alone = len(store) == 1 and task.level == "node" and store.split is None
    draws_links = task.level == "link" and PAIRS + LINKS not in store.tables
    if (store.is_transductive or is_alone or draws_links) and (options.split or options.folds):
        name = "split" if options.split else "folds"
        raise UserError(
            f"{name} must be left out where the {task.level}s of a graph are split, by masks or by "
            f"split_ratios and split_seed, got {getattr(options, name)!r} for {where}"
        )
    if store.is_transductive:
        return store
    if options.split_index:
        raise UserError(
            f"split_index is read of graphs with {', '.join(MASKS)}, got {options.split_index} for "
            "graphs without"
        )
    if is_alone:
        y = store.tables["nodes"].given("y")
        drawn = draw_node_split(y, options.split_ratios, options.split_seed)
        return store.with_columns(nodes={NODE_SPLIT: drawn})
    if draws_links:
        return GraphStore(split_links(store.columns(), options.split_ratios, options.split_seed))
    classes = None
    if task.level == "graph" and task.classes:
        classes = store.tables["graphs"].given("y").reshape(-1)
    split = choose_split(options, store.split, len(store), classes, read_key, where)
    return GraphStore.from_tables(store.tables, split, store.source)


def read_graphs(graphs: Graphs, options: DataOptions) -> tuple[CustomData, GraphStore]:
    """Take over graphs of PyG or networkx from Python; the store has them split."""
    each: Sequence[Any]
    if (listed := networkx_graphs(graphs)) is not None:
        each = listed
        check_read(options, "GraphML", "graphs")
        found = from_networkx(each, options.targets or "y", options.rule, options.level)
    else:
        each = list_of(graphs)
        check_read(options, "graphs", "graphs")
        found = from_graphs(each, options.rule, options.level, options.split_index)
        if hasattr(graphs, "get_idx_split"):
            # what OGB publishes
            parts = graphs.get_idx_split()
            said = {name: parts[key].tolist() for name, key in zip(SPLITS, OGB_SPLITS, strict=True)}
            found = replace(
                found, columns=replace(found.columns, split=split_numbers(said, len(each)))
            )
    name = column_of(options)

    def read_key() -> Key:
        cells = [attribute_of(graph, name) for graph in each]
        assert options.split is not None
        return split_key(options.split, cells, lambda row: f"graph {row}: {name}")

    store = GraphStore(found.columns)
    return found, with_split(store, found.task, options, read_key, "a graph")


def _key(found: CustomStore, path: Path, options: DataOptions) -> Key:
    """Read what each graph is split by; scaffolds, which take long, are kept."""
    assert options.split is not None
    kept = {"recipe": found.recipe, "split": options.split, "smiles": options.smiles}
    file = found.folder / f"{recipe_hash(kept)[:16]}.npy"
    if options.split == "scaffold" and file.exists():
        with suppress(OSError, ValueError, EOFError):
            key = np.load(file, allow_pickle=False)
            if key.shape == (len(found.store),):
                return key
    name = column_of(options)
    if format_of(path) == "GraphML":
        graphs, names = read_graphml(path)
        cells = [attribute_of(graph, name) for graph in graphs]
        key = split_key(options.split, cells, lambda row: f"{path}, graph {names[row]}: {name}")
    else:
        table = read_csv(table_in(path, "graphs.csv") if path.is_dir() else path)
        left_out = {each.row for each in found.skipped}
        table = table.rows([row for row in range(len(table.lines)) if row not in left_out])
        key = split_key(options.split, table.filled(name), table.where)
    if options.split == "scaffold":

        def write(place: Path) -> None:
            with place.open("wb") as opened:
                np.save(opened, key)

        with suppress(UnwritableError):
            atomic_write(file, write)
    return key


def column_of(options: DataOptions) -> str:
    """The column that graphs are split by."""
    return options.smiles if options.split == "scaffold" else options.split_column or "split"


def _read(path: Path) -> tuple[Features, Task, tuple[str, ...], tuple[Skipped, ...]]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        features = parse(Features, content["features"], "features")
        task = parse(Task, content["task"], "task")
        skipped = tuple(Skipped(int(row), *map(str, told)) for row, *told in content["skipped"])
        return features, task, tuple(map(str, content["names"])), skipped
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
    skipped: tuple[Skipped, ...] = ()
    """Rows of the file that are no graphs; the graphs are numbered by their rows all the same."""

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
        path: As in `open_custom`.
        options: How the graphs were read that a model was trained on: their label columns are
            no features here either.
        columns: Feature columns that the model knows, as `feature_names` gives them; files
            that name others, or these in another order, are rejected. Empty takes any.
        has_split: Whether to read which split each graph is in, where the files say so; where
            nobody asks, `split` may hold anything.
    """
    path, label = Path(path), options.targets
    kind, column = format_of(path), column_of(options)
    if not path.exists() or kind is None:
        told = f"'{path}'" if path.exists() else f"no '{path}'"
        raise UserError(f"graphs to predict must be {KINDS_OF_FILES}, got {told}")
    # words become a column for each, so that those of the training have to be known
    if kind == "TUDataset":
        return Unlabelled(*read_tu_unlabelled(path, label, columns))
    if kind == "GraphML":
        graphs, names = read_graphml(path)
        made = convert(graphs, label or ("y",), columns).graphs
        found, split = columns_of(made, exclude={"y", "split", *MASKS}), None
        if has_split and all(column in graph.graph for graph in graphs):
            cells = [attribute_of(graph, column) for graph in graphs]
            split = split_of_words(cells, lambda row: f"{path}, graph {names[row]}")
        return Unlabelled(replace(found, split=split), tuple(names), names_of_nodes(graphs))
    check_names(path, label, columns)
    if kind == "folder":
        tables = read_tables(path)
        nodes, listed = tables["nodes.csv"], tables.get("graphs.csv")
        roster = list_nodes(nodes, listed)
        found = columns_of_tables(tables, roster, label, options.undirected)
        if "pairs.csv" in tables:
            found.pairs[LINKS] = lay_pairs(tables["pairs.csv"], roster)
        split = read_split(listed, column) if has_split else None
        of_nodes = nodes.filled("node")
        return Unlabelled(
            replace(found, split=split),
            tuple(roster.graph_number),
            tuple(of_nodes[row] for row in roster.order.tolist()),
        )
    if kind == ".npz":
        arrays = load_arrays(path, UNLABELLED if has_split else UNLABELLED - {"split"})
        found = assemble_unlabelled(arrays, str(path))
        if ("pair_ptr" in arrays) != (LINKS in arrays):
            raise UserError(f"{path} must hold both pair_ptr and {LINKS}, or none, got one of them")
        if "pair_ptr" in arrays:
            found.pairs[LINKS] = Pairs(*assemble_pairs(arrays, found, str(path)), {})
        return Unlabelled(found)
    table = read_csv(path)
    table.cells(options.smiles)
    split = read_split(table, column) if has_split else None
    found, kept, skipped = read_molecules(
        table, options.smiles, options.on_error, has_descriptors=bool(options.descriptors)
    )
    split = None if split is None else split[kept]
    return Unlabelled(replace(found, split=split), tuple(map(str, kept)), skipped=skipped)
