"""`open_custom`: custom graphs by path, cached by content and options."""

import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

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
    TABLES,
    read_csv,
    read_folder,
    read_folder_unlabelled,
    table_in,
)
from graphmamba.data.custom.labels import CustomData, CustomGraphs, Skipped, Where
from graphmamba.data.custom.networkx import (
    Graphs,
    attribute_of,
    from_networkx,
    graphml_files,
    networkx_graphs,
    read_graphml,
    read_graphml_unlabelled,
)
from graphmamba.data.custom.npz import read_npz, read_npz_unlabelled
from graphmamba.data.custom.options import (
    KINDS_OF_FILES,
    DataOptions,
    Format,
    check_read,
    format_of,
)
from graphmamba.data.custom.pyg import from_graphs, list_of
from graphmamba.data.custom.smiles import MOST_DESCRIBED, molecules_of, read_smiles_csv
from graphmamba.data.custom.split import Key, split_key, with_split
from graphmamba.data.custom.tu import read_tu, read_tu_unlabelled, tu_files
from graphmamba.data.splits import SPLITS, split_numbers, split_of_words
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import GraphColumns
from graphmamba.data.transforms.precompute import Precompute, with_precomputed
from graphmamba.errors import UserError
from graphmamba.parse import parse

OGB_SPLITS = ("train", "valid", "test")
READING = 11  # version of the readers; raise it to invalidate the cache
ABOUT = ("features", "task", "class_names", "feature_names", "skipped")
"""What is kept beside the graphs."""
OWN = "own"  # folder of custom graphs in the data directory


@dataclass(frozen=True)
class CustomStore:
    """Custom graphs, ready for training."""

    store: GraphStore
    """The graphs, with the split of the files or a generated one."""
    features: Features
    """Features of nodes and edges."""
    task: Task
    """The task: level, outputs, loss and metric."""
    class_names: tuple[str, ...]
    """Classes by their number; or, where labels are not classes, the label columns."""
    feature_names: tuple[str, ...]
    """Names of node, then edge features, if files name them."""
    skipped: tuple[Skipped, ...]
    """Rows of the file that were left out."""
    recipe: dict[str, Any]
    """Recipe of the cache: contents of the files and reading options, without the split."""
    folder: Path
    """Folder of the graphs and of columns computed from them."""

    def with_columns(self, asked: Precompute) -> "CustomStore":
        """Return the graphs with the precomputed columns that a model reads, cached on disk."""
        store = with_precomputed(self.store, asked, self.folder, self.recipe)
        return replace(self, store=store)


def open_custom(
    path: Path | str,
    options: DataOptions | None = None,
    data_dir: Path | None = None,
    *,
    draws_split: bool = True,
    describes: bool = False,
) -> CustomStore:
    """Open a folder of tables, a table of molecules, arrays, a TUDataset or GraphML.

    The result is cached in the data directory by the contents of the files and the options: a
    second call is instant, and a file that changed is read again. `docs/custom-data.md` describes
    the files.

    Args:
        path: The folder or the file.
        options: What the files do not say, such as the target column.
        data_dir: Directory of data sets; None for the default.
        draws_split: Whether to split graphs whose files define no split.
        describes: Whether to add descriptors of up to 20,000 molecules if options leave it open.
    """
    path, options = Path(path), options or DataOptions()
    check_is("options", options, DataOptions)
    if describes and options.descriptors is None and format_of(path) == ".csv" and path.exists():
        options = replace(options, descriptors=len(read_csv(path).frame) <= MOST_DESCRIBED)
    recipe, folder = _recipe(path, options), (data_dir or default_data_dir()) / OWN
    about = folder / f"{recipe_hash(recipe)[:16]}.json"

    def build() -> GraphColumns:
        made = _read(path, options)
        content = {name: getattr(made, name) for name in ABOUT}
        # Written before the graphs are, so that whoever finds them finds this.
        write_json(about, content | {name: asdict(content[name]) for name in ("features", "task")})
        return made.columns

    def opened(anew: bool) -> CustomStore:
        store = open_or_build(folder, recipe, build, rebuild=anew)
        return CustomStore(store, *_read_about(about), recipe, folder)

    try:
        found = opened(False)
    except DamagedError:
        # the files are at hand
        found = opened(True)
    if found.skipped:
        _list_skipped(found, about.with_suffix(".skipped.csv"))
    if not draws_split and options.split != "column":
        return found
    store = with_split(
        found.store, found.task, options, lambda: _key(found, path, options), str(path)
    )
    if found.task.level == "link" and store.is_transductive:
        # what is computed of the edges that carry messages is not that of all edges
        recipe = recipe | {"links": [*options.split_ratios, options.split_seed]}
    return replace(found, store=store, recipe=recipe)


def _list_skipped(found: CustomStore, path: Path) -> None:
    """Warn about rows that were left out, and list them in a file."""
    import pandas as pd

    if not path.exists():
        table = pd.DataFrame(found.skipped, columns=["row", "where", "smiles"])
        atomic_write(path, lambda partial: table.to_csv(partial, index=False))
    count, rows = len(found.skipped), len(found.skipped) + len(found.store)
    _warn_once(
        f"{count:,} of {rows:,} rows are left out, since RDKit rejects their SMILES: {path} lists "
        "them; data.on_error raise stops at the first"
    )


@cache
def _warn_once(message: str) -> None:
    """Warn in each process once, however often the graphs are opened."""
    warnings.warn(message, stacklevel=4)


def is_custom(path: Path | str) -> bool:
    """Whether a word is a path of custom graphs (folder or known suffix), not a benchmark."""
    return format_of(Path(path)) is not None


def _existing_format(path: Path, what: str) -> Format:
    """Format of a path; raises if nothing is there or no reader knows it."""
    kind = format_of(path)
    if kind is None or not path.exists():
        # A run keeps the path as it was given, and may be gone on with from elsewhere.
        where = "" if path.is_absolute() else f" in '{Path.cwd()}'"
        told = f"'{path}'" if path.exists() else f"no '{path}'{where}"
        raise UserError(f"{what} must be {KINDS_OF_FILES}, got {told}")
    return kind


def _recipe(path: Path, options: DataOptions) -> dict[str, Any]:
    """Recipe of the cache: reading options and contents of the files."""
    kind, files = _existing_format(path, "custom graphs"), [path]
    check_read(options, kind, str(path))
    if kind == "folder":
        files = [file for file in (table_in(path, name) for name in TABLES) if file]
    elif kind == "TUDataset":
        files = tu_files(path)
    elif kind == "GraphML":
        files = graphml_files(path)
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


def _read(path: Path, options: DataOptions) -> CustomData:
    kind, targets, rule, level = format_of(path), options.targets, options.rule, options.level
    if kind == "folder":
        return read_folder(path, targets, rule, level, options.undirected)
    if kind == "TUDataset":
        return read_tu(path, targets, rule, level)
    if kind == "GraphML":
        made = from_networkx(read_graphml(path)[0], targets or "y", rule, level)
        return replace(made, columns=replace(made.columns, source=f"read from {path.name}"))
    if kind == ".npz":
        return read_npz(path, rule, level, options.split_index)
    if level not in (None, "graph"):
        raise UserError(f"level must be 'graph' for molecules, got {level!r}")
    return read_smiles_csv(
        path, targets, rule, options.smiles, options.on_error,
        has_descriptors=bool(options.descriptors),
    )  # fmt: skip


def read_graphs(graphs: Graphs, options: DataOptions) -> tuple[CustomData, GraphStore]:
    """Make a store of PyG or networkx graphs, with a split."""
    each: Sequence[Any] | None = networkx_graphs(graphs)
    if each is not None:
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
    name = _column_of(options)

    def read_key() -> Key:
        cells = [attribute_of(graph, name) for graph in each]
        return split_key(options.split, cells, lambda row: f"graph {row}: {name}")

    return found, with_split(GraphStore(found.columns), found.task, options, read_key, "a graph")


def _key(found: CustomStore, path: Path, options: DataOptions) -> Key:
    """Read what each graph is split by."""
    name = _column_of(options)
    if (told := _cells_of_graphs(path, name)) is None:
        raise UserError(f"{path}: column {name!r} must be there to split graphs by it")
    cells, where = told
    left_out = {each.row for each in found.skipped}
    rows = [row for row in range(len(cells)) if row not in left_out]
    return split_key(options.split, [cells[row] for row in rows], lambda place: where(rows[place]))


def _cells_of_graphs(path: Path, name: str) -> tuple[list[str], Where] | None:
    """A column of the graphs in files, and what a message calls its rows; None without it."""
    if format_of(path) == "GraphML":
        graphs, names = read_graphml(path)
        cells = [attribute_of(graph, name) for graph in graphs]
        return (cells, lambda row: f"{path}, graph {names[row]}: {name}") if any(cells) else None
    file = table_in(path, "graphs") if path.is_dir() else path
    if file is None or format_of(path) not in ("folder", ".csv"):
        return None
    table = read_csv(file)
    return (table.filled(name), table.where) if name in table.names else None


def _column_of(options: DataOptions) -> str:
    """The column that graphs are split by."""
    return options.smiles if options.split == "scaffold" else options.split_column or "split"


def _read_about(path: Path) -> tuple[Features, Task, tuple[str, ...], tuple[str, ...], Any]:
    try:
        features, task, classes, columns, skipped = (
            json.loads(path.read_text(encoding="utf-8"))[name] for name in ABOUT
        )
        return (
            parse(Features, features, "features"), parse(Task, task, "task"),
            tuple(classes), tuple(columns), tuple(Skipped(*each) for each in skipped),
        )  # fmt: skip
    except PermissionError as error:
        raise cannot_read(path) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{path} must describe the graphs beside it: {error}") from error


def read_unlabelled(
    path: Path | str, options: DataOptions, columns: tuple[str, ...] = (), has_split: bool = False
) -> CustomGraphs:
    """Read graphs to predict.

    Args:
        path: As in `open_custom`.
        options: Reading options of the training; target columns are not features here either.
        columns: Feature names of the training; others, or another order, are rejected. Empty
            accepts any.
        has_split: Whether to read the split of the files; if not, a column `split` may hold
            anything.
    """
    path, label, rows = Path(path), options.targets, None
    kind = _existing_format(path, "graphs to predict")
    # words become a column for each, so that those of the training have to be known
    if kind == "TUDataset":
        found = read_tu_unlabelled(path, label, columns)
    elif kind == "GraphML":
        found = read_graphml_unlabelled(path, label, columns)
    elif kind == "folder":
        found = read_folder_unlabelled(path, label, options.undirected)
    elif kind == ".npz":
        found = read_npz_unlabelled(path)
    else:
        found, rows = molecules_of(
            read_csv(path), options.smiles, options.on_error,
            has_descriptors=bool(options.descriptors),
        )  # fmt: skip
    check_feature_names(found.feature_names, columns, path)
    told_split = _cells_of_graphs(path, _column_of(options)) if has_split else None
    if told_split is not None:
        split = split_of_words(*told_split)
        split = split if rows is None else split[rows]
        found = replace(found, columns=replace(found.columns, split=split))
    return found


def check_feature_names(found: tuple[str, ...], known: tuple[str, ...], path: Path | str) -> None:
    """Reject files whose feature columns are not those of the training, in their order.

    Arrays may be unnamed; then only their number is checked.
    """
    if known and found != known and (found or Path(path).is_dir()):
        raise UserError(
            f"{path} must have the features that the model was trained on, in their order, "
            f"{', '.join(known)}; got {', '.join(found) or 'none'}"
        )
