"""`metrics.csv`: whole rows only, whenever the run is killed."""

import math
import os
from pathlib import Path

import pytest

from graphmamba.errors import UserError
from graphmamba.training.metrics_file import append_row, cut_rows, read_rows

ROWS = [{"epoch": epoch, "loss": 1 / (epoch + 3)} for epoch in range(4)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.csv"
    for row in ROWS:
        append_row(path, row)
    return path


def test_numbers_come_back_to_the_last_bit(path: Path) -> None:
    assert read_rows(path) == ROWS
    append_row(path, {"epoch": 4, "loss": math.nan})
    assert math.isnan(read_rows(path)[-1]["loss"])


def test_a_row_cut_short_is_left_out(path: Path) -> None:
    path.write_text(path.read_text()[:-3])
    assert read_rows(path) == ROWS[:-1]


@pytest.mark.parametrize("epochs", range(5))
def test_rows_of_later_epochs_are_cut(path: Path, epochs: int) -> None:
    with path.open("a") as file:
        file.write("4,0.")
    cut_rows(path, epochs)
    assert read_rows(path) == ROWS[:epochs]
    append_row(path, ROWS[0])
    assert read_rows(path) == [*ROWS[:epochs], ROWS[0]]


def test_no_file_has_no_rows(tmp_path: Path) -> None:
    cut_rows(tmp_path / "metrics.csv", 3)
    assert read_rows(tmp_path / "metrics.csv") == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"metrics\.csv' cannot be written"):
        append_row(tmp_path / "nowhere" / "metrics.csv", ROWS[0])


def test_a_disk_that_is_full_half_way_is_told(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda handle, text: write(handle, text[:5]))
    with pytest.raises(UserError, match="No space left on device"):
        append_row(path, {"epoch": 4, "loss": 0.125})
    assert read_rows(path) == ROWS
