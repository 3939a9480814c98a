"""Files are on the disk before they have their name: a power cut finds the old one or the new."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from graphmamba.atomic import write_text
from graphmamba.data.cache import open_or_build
from graphmamba.training.run_dir import append_row
from tests.data.test_cache import RECIPE, make_rings

Events = list[tuple[str, int]]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> Events:
    """What was waited for and what was renamed, by inode."""
    found: Events = []
    flush = os.fsync

    def noted(name: str, move: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def note(path: Path, to: Path) -> Path:
            found.append((name, path.stat().st_ino))
            return move(path, to)

        return note

    def note_flush(handle: int) -> None:
        found.append(("flush", os.fstat(handle).st_ino))
        flush(handle)

    monkeypatch.setattr(os, "fsync", note_flush)
    for name in ("replace", "rename"):
        monkeypatch.setattr(Path, name, noted("name", getattr(Path, name)))
    return found


def test_a_file_is_flushed_before_it_is_named_and_its_folder_after(
    tmp_path: Path, events: Events
) -> None:
    write_text(tmp_path / "file", "text")
    file, folder = (tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino
    assert events == [("flush", file), ("name", file), ("flush", folder)]


def test_a_row_is_flushed(tmp_path: Path, events: Events) -> None:
    append_row(tmp_path / "metrics.csv", {"epoch": 0})
    assert events == [("flush", (tmp_path / "metrics.csv").stat().st_ino)]


def test_a_set_is_flushed_before_it_is_named(tmp_path: Path, events: Events) -> None:
    open_or_build(tmp_path / "sets", RECIPE, make_rings)
    (place,) = (each for each in (tmp_path / "sets").iterdir() if each.is_dir())
    named = events.index(("name", place.stat().st_ino))
    for name in ("columns.safetensors", "about.json"):
        assert ("flush", (place / name).stat().st_ino) in events[:named]
