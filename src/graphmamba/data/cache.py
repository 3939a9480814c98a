"""Stores on disk: built once for each recipe, mapped into memory when opened, never unpickled."""

import json
import platform
import shutil
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from hashlib import file_digest, sha256
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

from torch import Tensor

from graphmamba.data.graph_columns import GraphColumns
from graphmamba.data.set_lock import can_lock, lock_of
from graphmamba.data.store import GraphStore
from graphmamba.data.stored_tensors import store_of, tensors_of
from graphmamba.errors import UnwritableError, UserError
from graphmamba.whole_files import cannot_read, cannot_write, flush, write_text

FORMAT = "graphmamba columns"
VERSION = 2
Result = TypeVar("Result")
COLUMNS, ABOUT = "columns.safetensors", "about.json"
PARTIAL = ".partial-"
"""How the name of a folder ends in which a set is still being written, before random letters."""


class DamagedError(UserError):
    """What is kept on disk cannot be opened."""


def open_or_build(
    folder: Path | str,
    recipe: Mapping[str, Any],
    build: Callable[[], GraphColumns],
    *,
    rebuild: bool = False,
) -> GraphStore:
    """Open the set that a recipe makes, and build it first where it is not there yet.

    Each recipe has a folder of its own, which appears under its name only when it is complete: a
    build that is killed leaves nothing that would be opened. Of several processes one builds and
    the others wait for it.

    Args:
        folder: Where sets are kept.
        recipe: All that the set depends on, as JSON can write it.
        build: Makes the graphs.
        rebuild: Whether to build again what is there, such as a damaged file.
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
    """Do what `open_or_build` does, and build anew what is damaged: all that it takes is at hand.

    Args:
        folder: As there.
        recipe: As there.
        build: As there.
    """
    try:
        return open_or_build(folder, recipe, build)
    except DamagedError:
        return open_or_build(folder, recipe, build, rebuild=True)


def recipe_hash(recipe: Mapping[str, Any]) -> str:
    """Name a recipe by its content, whatever the order of its keys."""
    try:
        text = json.dumps([FORMAT, VERSION, recipe], sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as mistake:
        raise UserError(f"recipe must be what JSON can write: {mistake}") from mistake
    return sha256(text.encode()).hexdigest()


def write_store(store: GraphStore, place: Path, recipe: Mapping[str, Any]) -> None:
    """Write beside the place, then move there in one step, over what may be there."""
    from safetensors import SafetensorError

    try:
        # one of `tempfile` would be its maker's alone, and sets are shared
        partial = place.with_name(f"{place.name}{PARTIAL}{token_hex(8)}")
        partial.mkdir()
        try:
            _write(store, partial, recipe)
            _move(partial, place)
        finally:
            _remove_leftovers(place)
    except (OSError, SafetensorError) as mistake:
        raise cannot_write(place, mistake) from mistake


def _write(store: GraphStore, folder: Path, recipe: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    save_file(tensors_of(store), folder / COLUMNS)
    about = {
        "format": FORMAT,
        "version": VERSION,
        "recipe": recipe,
        "recipe_hash": recipe_hash(recipe),
        "source": store.source,
        "counts": _counts(store),
        "bytes": (folder / COLUMNS).stat().st_size,
        "content": file_hash(folder / COLUMNS),
    }
    (folder / ABOUT).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    # safetensors lets nobody but the owner read its files; others have the rights that all have
    (folder / COLUMNS).chmod((folder / ABOUT).stat().st_mode)
    for name in (COLUMNS, ABOUT):
        flush(folder / name)


def _move(partial: Path, place: Path) -> None:
    old = partial.with_name(partial.name + "-old")
    if place.exists():
        # Whoever has the old files open keeps them until he closes them.
        place.rename(old)
    try:
        partial.rename(place)
    except OSError:
        if old.exists():
            old.rename(place)
        raise


def open_store(place: Path, digest: str | None = None) -> GraphStore:
    """Map a set into memory; refuse what is damaged or something else.

    Args:
        place: Its folder.
        digest: Hash of the recipe that it has to be made by; None takes any.
    """
    return _settled(place, lambda: _open(place, digest))


def is_kept(place: Path) -> bool:
    """Whether a set is there; one that is being built is waited for."""
    if not place.exists() and can_lock(place):
        with lock_of(place):
            return place.exists()
    return place.exists()


def _settled(place: Path, read: Callable[[], Result]) -> Result:
    """Read a set; one that cannot be read may be about to be replaced, so try again after that."""
    try:
        return read()
    except DamagedError:
        with lock_of(place) if can_lock(place) else nullcontext():
            return read()


def _open(place: Path, digest: str | None) -> GraphStore:
    before = _stamp(place / COLUMNS)
    about = _read_about(place / ABOUT)
    if digest is not None and about["recipe_hash"] != digest:
        raise _refusal(place / ABOUT, f"recipe_hash must be {digest}, got {about['recipe_hash']}")
    tensors = _read_tensors(place / COLUMNS, about["bytes"])
    try:
        store = store_of(tensors, str(about["source"]))
    except (KeyError, UserError) as mistake:
        raise _refusal(place / COLUMNS, f"its columns make up no graphs: {mistake}") from mistake
    if _counts(store) != about["counts"]:
        raise _refusal(place / COLUMNS, f"counts must be {about['counts']}, got {_counts(store)}")
    if not _is_known(place / COLUMNS, about["content"]):
        verify_store(place)
    # Opening takes several looks at the place: names of one set, values of another make no set.
    if _stamp(place / COLUMNS) != before:
        raise _refusal(place / COLUMNS, "must stay while it is opened, got another in its place")
    store.content = str(about["content"])
    return store


def verify_store(place: Path) -> int:
    """Compare a set's content with the hash that was written with it, and remember that it fits.

    Args:
        place: Its folder.

    Returns:
        How many bytes it has.
    """
    wanted, path = _read_about(place / ABOUT)["content"], place / COLUMNS
    note = _note_of(path)
    found = file_hash(path)
    if found != wanted:
        raise _refusal(path, f"its content must have the hash {wanted}, got {found}")
    # where nothing can be written, it is compared again the next time
    with suppress(UnwritableError):
        write_text(_notes_of(path), note + found)
    return path.stat().st_size


def _is_known(path: Path, content: str) -> bool:
    """Whether this machine has seen that the file, as it is, has this content."""
    try:
        return _notes_of(path).read_text(encoding="utf-8") == _note_of(path) + content
    except (OSError, UnicodeDecodeError):
        return False


def _note_of(path: Path) -> str:
    found = path.stat()
    return f"{found.st_size} {found.st_mtime_ns} "


def _notes_of(path: Path) -> Path:
    """Where it is noted that a file is whole: folders of sets may be shared, or read-only."""
    from graphmamba.data.sources import default_root

    name = sha256(f"{platform.node()} {path.resolve()}".encode()).hexdigest()[:16]
    return default_root() / "verified" / name


def file_hash(path: Path) -> str:
    """Name a file by its content."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _read_about(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except PermissionError as mistake:
        raise cannot_read(path) from mistake
    except (OSError, ValueError, RecursionError) as mistake:
        raise _refusal(path, f"must be JSON: {mistake}") from mistake
    needed = {"recipe_hash", "source", "counts", "bytes", "content"}
    if not isinstance(about, dict) or about.get("format") != FORMAT or needed - about.keys():
        raise _refusal(path, f"must say format '{FORMAT}' and {sorted(needed)}")
    if about.get("version") != VERSION:
        raise _refusal(path, f"version must be {VERSION}, got {about.get('version')}")
    return about


def _read_tensors(path: Path, size: int) -> dict[str, Tensor]:
    from safetensors import SafetensorError, safe_open

    try:
        found = path.stat().st_size
        if found != size:
            raise _refusal(path, f"must have {size} bytes, got {found}")
        # safetensors takes a file that it may not read for one that is not there
        path.open("rb").close()
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except PermissionError as mistake:
        raise cannot_read(path) from mistake
    # torch, which maps the file, has no kind of its own for one that is gone or too short
    except (OSError, RuntimeError, SafetensorError) as mistake:
        raise _refusal(path, f"must be a safetensors file: {mistake}") from mistake


def _stamp(path: Path) -> tuple[int, int]:
    """Tell a file from another of the same name."""
    try:
        found = path.stat()
    except PermissionError as mistake:
        raise cannot_read(path) from mistake
    except OSError as mistake:
        raise _refusal(path, f"must be there: {mistake}") from mistake
    return found.st_ino, found.st_mtime_ns


def _refusal(path: Path, reason: str) -> DamagedError:
    return DamagedError(f"{path} is not a set that can be opened: {reason}; build it again")


def _counts(store: GraphStore) -> dict[str, int]:
    rows = {kind: int(store.tables[kind].ptr[-1]) for kind in ("nodes", "edges")}
    return {"graphs": len(store), **rows}


def _remove_leftovers(place: Path) -> None:
    """Remove what killed builds of this set left; only the holder of the lock builds it."""
    for leftover in place.parent.glob(f"{place.name}{PARTIAL}*"):
        shutil.rmtree(leftover, ignore_errors=True)
