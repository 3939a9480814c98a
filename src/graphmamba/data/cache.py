"""Stores on disk: built once per recipe, memory-mapped when opened, never unpickled."""

import json
import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from secrets import token_hex
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmamba.atomic import cannot_write, flush
from graphmamba.data.store import GraphStore, check_ptr
from graphmamba.data.tables import Column, GraphColumns, Table
from graphmamba.errors import UserError

FORMAT = "graphmamba columns"
VERSION = 2
COLUMNS, ABOUT = "columns.safetensors", "about.json"
VERIFIED = "verified"
"""A note beside them: on which machine the columns were found whole, and of which time."""
PARTIAL = ".partial-"  # suffix of a folder that is still being written, before random letters
LOCK = ".lock"


class DamagedError(UserError):
    """A cached data set is damaged."""


def default_data_dir() -> Path:
    """Default directory of data sets: $GRAPHMAMBA_DATA_DIR, or a cache in the home folder."""
    return Path(os.environ.get("GRAPHMAMBA_DATA_DIR") or Path.home() / ".cache" / "graphmamba")


def open_or_build(
    folder: Path | str,
    recipe: Mapping[str, Any],
    build: Callable[[], GraphColumns],
    *,
    rebuild: bool = False,
) -> GraphStore:
    """Open the data set of a recipe; build it first if it is missing.

    Each recipe has its own folder, which gets its name only when complete, so that a killed build
    is never opened. Of several processes one builds and the others wait.

    Args:
        folder: Directory of the cache.
        recipe: Everything that the data set depends on, as JSON values.
        build: Makes the graphs.
        rebuild: Whether to build even if it exists, such as a damaged one.
    """
    digest = recipe_hash(recipe)
    place = Path(folder) / digest[:16]
    if not rebuild and place.exists():
        return open_store(place, digest)
    with lock_of(place):
        # Another process may have built it while this one waited.
        if rebuild or not place.exists():
            _remove_leftovers(place)
            write_store(GraphStore(build()), place, recipe)
    return open_store(place, digest)


def open_or_repair(
    folder: Path | str, recipe: Mapping[str, Any], build: Callable[[], GraphColumns]
) -> GraphStore:
    """`open_or_build`, which also rebuilds a damaged data set."""
    try:
        return open_or_build(folder, recipe, build)
    except DamagedError:
        return open_or_build(folder, recipe, build, rebuild=True)


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """Hash of a recipe, independent of the order of its keys."""
    try:
        text = json.dumps([FORMAT, VERSION, recipe], sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UserError(f"recipe must be what JSON can write: {error}") from error
    return sha256(text.encode()).hexdigest()


def write_store(store: GraphStore, place: Path, recipe: Mapping[str, Any]) -> None:
    """Write a store to a temporary folder, then move it to its place, replacing what is there."""
    from safetensors import SafetensorError

    # one of `tempfile` would be its maker's alone, and sets are shared
    partial = place.with_name(f"{place.name}{PARTIAL}{token_hex(8)}")
    old = partial.with_name(f"{partial.name}-old")
    try:
        partial.mkdir()
        _write(store, partial, recipe)
        if place.exists():
            # whoever has the old files open keeps them until he closes them
            place.rename(old)
        partial.rename(place)
    except (OSError, SafetensorError) as error:
        if old.exists():
            old.rename(place)
        raise cannot_write(place, error) from error
    finally:
        _remove_leftovers(place)


def _remove_leftovers(place: Path) -> None:
    """Remove the leftovers of killed builds; the caller holds the lock."""
    for leftover in place.parent.glob(f"{place.name}{PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)


def _write(store: GraphStore, folder: Path, recipe: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    columns, description = folder / COLUMNS, folder / ABOUT
    save_file(tensors_of(store), columns)
    about = {
        "format": FORMAT,
        "version": VERSION,
        "recipe": recipe,
        "recipe_hash": recipe_hash(recipe),
        "source": store.source,
        "counts": _counts(store),
        "bytes": columns.stat().st_size,
        "content": file_hash(columns),
    }
    description.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    # safetensors lets nobody but the owner read its files; others have the rights that all have
    columns.chmod(description.stat().st_mode)
    for path in (columns, description):
        flush(path)


def open_store(place: Path, digest: str | None = None) -> GraphStore:
    """Memory-map a store; reject a damaged one."""
    from safetensors import SafetensorError, safe_open

    about, path = _read_about(place / ABOUT), place / COLUMNS
    if digest is not None and about["recipe_hash"] != digest:
        raise _damaged(place / ABOUT, f"recipe_hash must be {digest}, got {about['recipe_hash']}")
    try:
        if (size := path.stat().st_size) != about["bytes"]:
            raise ValueError(f"must have {about['bytes']} bytes, got {size}")
        # flipped bits would be silent, and edges that lead elsewhere worse: kernels trust them
        if not _is_known(path, about["content"]):
            verify_store(place)
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        store = store_of(tensors, str(about["source"]))
        if _counts(store) != about["counts"]:
            raise ValueError(f"counts must be {about['counts']}, got {_counts(store)}")
    except (PermissionError, DamagedError):
        raise
    # torch, which maps the file, has no kind of its own for one that is gone or too short
    except (
        OSError,
        RuntimeError,
        LookupError,
        AttributeError,
        ValueError,
        SafetensorError,
    ) as error:
        raise _damaged(path, str(error)) from error
    store.content = str(about["content"])
    return store


def verify_store(place: Path) -> int:
    """Compare the content of a store with its stored hash; returns its bytes."""
    wanted, path = _read_about(place / ABOUT)["content"], place / COLUMNS
    if (found := file_hash(path)) != wanted:
        raise _damaged(path, f"its content must have the hash {wanted}, got {found}")
    # where nothing can be noted, it is compared again the next time
    with suppress(OSError):
        path.with_name(VERIFIED).write_text(_note_of(path, found), encoding="utf-8")
    return path.stat().st_size


def _is_known(path: Path, content: str) -> bool:
    """Whether this machine has seen that the file, as it is, has this content."""
    # safetensors takes a file that it may not read for one that is not there
    path.open("rb").close()
    with suppress(OSError, UnicodeDecodeError):
        return path.with_name(VERIFIED).read_text(encoding="utf-8") == _note_of(path, content)
    return False


def _note_of(path: Path, content: str) -> str:
    found = path.stat()
    return f"{platform.node()} {found.st_size} {found.st_mtime_ns} {content}\n"


def file_hash(path: Path) -> str:
    """Hash of the content of a file."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _read_about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except PermissionError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(path, f"must be JSON: {error}") from error
    needed = {"recipe_hash", "source", "counts", "bytes", "content"}
    if not isinstance(about, dict) or about.get("format") != FORMAT or needed - about.keys():
        raise _damaged(path, f"must say format '{FORMAT}' and {sorted(needed)}")
    if about.get("version") != VERSION:
        raise _damaged(path, f"version must be {VERSION}, got {about.get('version')}")
    return about


def _damaged(path: Path, reason: str) -> DamagedError:
    return DamagedError(f"{path} is not a set that can be opened: {reason}; build it again")


def _counts(store: GraphStore) -> dict[str, int]:
    rows = {kind: int(store.tables[kind].ptr[-1]) for kind in ("nodes", "edges")}
    return {"graphs": len(store), **rows}


@contextmanager
def lock_of(place: Path) -> Iterator[None]:
    """Hold the lock of a data set, as its builder does."""
    from filelock import FileLock

    lock = FileLock(place.with_suffix(LOCK))
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise cannot_write(place, error) from error
    try:
        yield
    finally:
        lock.release()


def tensors_of(store: GraphStore) -> dict[str, Tensor]:
    """Name columns `TABLE/NAME/DTYPE/KIND`, and the boundaries of each table `TABLE/ptr`."""
    tensors = {} if store.split is None else {"split": store.split}
    for kind, table in store.tables.items():
        tensors[f"{kind}/ptr"] = torch.from_numpy(table.ptr)
        for name, column in table.columns.items():
            dtype = str(column.dtype).removeprefix("torch.")
            rows = "constant" if column.is_constant else "rows"
            tensors[f"{kind}/{name}/{dtype}/{rows}"] = column.values.cpu()
    seen = set()
    for name, values in tensors.items():
        # safetensors wants each to have its own memory
        memory = values.untyped_storage()
        is_alone = memory.nbytes() == values.nbytes and memory.data_ptr() not in seen
        seen.add(memory.data_ptr())
        tensors[name] = values.contiguous() if is_alone else values.clone().contiguous()
    return tensors


def store_of(tensors: Mapping[str, Tensor], source: str) -> GraphStore:
    """Make a store of its tensors; boundaries are checked, since copying relies on them."""
    graphs = len(tensors["nodes/ptr"]) - 1
    # Numbers of tables matter: nodes, edges, graphs, then pairs.
    kinds = [name.removesuffix("/ptr") for name in tensors if name.endswith("/ptr")]
    first = ["nodes", "edges", "graphs"]
    tables: dict[str, Table] = {}
    for kind in [*first, *sorted(set(kinds) - set(first))]:
        ptr = tensors[f"{kind}/ptr"]
        check_ptr(f"{kind}/ptr", ptr, graphs)
        tables[kind] = Table(np.ascontiguousarray(ptr.numpy()), {})
    for key, values in sorted(tensors.items()):
        # the boundaries of a table and the split have shorter names
        if key.count("/") == 3:  # noqa: PLR2004
            kind, name, dtype, rows = key.split("/")
            column = Column(values, getattr(torch, dtype), is_constant=rows == "constant")
            tables[kind].columns[name] = column
    return GraphStore.from_tables(tables, tensors.get("split"), source)
