"""Files that are whole or not there, whoever else writes them."""

import os
import threading
from pathlib import Path

import pytest

from graphmamba.atomic import atomic_write, write_text
from graphmamba.errors import UnwritableError


def test_two_writers_of_one_file_leave_a_whole_one(tmp_path: Path) -> None:
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


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    target, link = tmp_path / "target" / "out.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    for text in ("new", "replaced"):
        write_text(link, text)
        assert link.is_symlink()
        assert target.read_text() == text
    assert [*target.parent.iterdir()] == [target]
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(UnwritableError, match="cannot be written"):
        write_text(link, "text")


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    write_text(pipe, "through")
    reader.join(10)
    assert read == ["through"]
    assert pipe.is_fifo()
    assert [*tmp_path.iterdir()] == [pipe]
