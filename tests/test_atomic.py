"""Files are complete or absent, whoever else writes them and whenever the power fails."""

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from graphmamba.atomic import atomic_write, write_text
from graphmamba.data.cache import open_or_build
from graphmamba.errors import UnwritableError
from graphmamba.training.run_dir import append_row
from tests.data.test_cache import RECIPE, make_rings


def test_two_writers_of_one_file_leave_a_complete_one(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"

    def write(partial: Path) -> None:
        partial.write_text("one ")
        write_text(path, "another")
        assert path.read_text() == "another"
        with partial.open("a") as file:
            file.write("whole")

    atomic_write(path, write)
    assert path.read_text() == "one whole"
    assert [*tmp_path.iterdir()] == [path]


def test_a_symbolic_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    target, link = tmp_path / "target" / "out.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    for text in ("new", "replaced"):
        write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert [*target.parent.iterdir()] == [target]


def test_a_link_to_itself_cannot_be_written(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(link)
    with pytest.raises(UnwritableError, match="cannot be written"):
        write_text(link, "text")
    assert link.is_symlink()


def test_a_hard_link_keeps_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    os.link(tmp_path / "kept", tmp_path / "file")
    write_text(tmp_path / "file", "new")
    assert (tmp_path / "kept").read_text() == "old"
    assert (tmp_path / "file").read_text() == "new"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text(pipe, "through")
    reader.join(10)
    assert read == ["through"]
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Calls of fsync and rename, with the inode."""
    found: list[tuple[str, int]] = []
    fsync = os.fsync

    def recorded(move: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
        def record(path: Path, to: Path) -> Path:
            found.append(("rename", path.stat().st_ino))
            return move(path, to)

        return record

    def record_fsync(handle: int) -> None:
        found.append(("fsync", os.fstat(handle).st_ino))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", record_fsync)
    for name in ("replace", "rename"):
        monkeypatch.setattr(Path, name, recorded(getattr(Path, name)))
    return found


def test_a_file_is_on_disk_before_it_is_renamed_and_its_directory_after(
    tmp_path: Path, events: list[tuple[str, int]]
) -> None:
    write_text(tmp_path / "file", "text")
    file, folder = (tmp_path / "file").stat().st_ino, tmp_path.stat().st_ino
    assert events == [("fsync", file), ("rename", file), ("fsync", folder)]
    events.clear()
    append_row(tmp_path / "metrics.csv", {"epoch": 0})
    assert events == [("fsync", (tmp_path / "metrics.csv").stat().st_ino)]


def test_a_data_set_is_on_disk_before_it_is_renamed(
    tmp_path: Path, events: list[tuple[str, int]]
) -> None:
    open_or_build(tmp_path / "sets", RECIPE, make_rings)
    (place,) = (each for each in (tmp_path / "sets").iterdir() if each.is_dir())
    renamed = events.index(("rename", place.stat().st_ino))
    for name in ("columns.safetensors", "about.json"):
        assert ("fsync", (place / name).stat().st_ino) in events[:renamed]
