"""Files that are whole or not there, whoever else writes them."""

import os
import time
from pathlib import Path

from graphmamba.whole_files import DAY, write_text, write_whole


def test_two_writers_of_one_file_leave_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"

    def write(partial: Path) -> None:
        partial.write_text("one ")
        write_text(path, "another")
        assert path.read_text() == "another"
        with partial.open("a") as file:
            file.write("whole")

    write_whole(path, write)
    assert path.read_text() == "one whole"
    assert [*tmp_path.iterdir()] == [path]


def test_what_killed_writers_left_is_removed_when_nobody_can_be_writing_it(tmp_path: Path) -> None:
    path = tmp_path / "out[1].txt"
    young, old, named_alike = (
        tmp_path / name
        for name in (".out[1].txt.0a.partial", ".out[1].txt.0b.partial", ".out1.txt.0c.partial")
    )
    for leftover in (young, old, named_alike):
        leftover.touch()
    for leftover in (old, named_alike):
        os.utime(leftover, (time.time() - DAY - 60,) * 2)
    write_text(path, "whole")
    assert {*tmp_path.iterdir()} == {path, young, named_alike}
