"""A CSV file -> columns of text that know their lines; anything irregular is refused."""

import csv
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from graphmamba.errors import UserError

CHUNK = 512
"""Rows kept as lists at a time: millions of them would keep the garbage collector busy."""
LARGEST = float(torch.finfo(torch.float32).max)


@dataclass(frozen=True)
class CsvTable:
    """The cells of a file with a header, column by column."""

    path: Path
    columns: dict[str, list[str]]
    lines: list[int]
    """Line of the file on which each row ends."""

    def where(self, row: int) -> str:
        """Name a row in a message."""
        # a file without rows is wrong as a whole
        return f"{self.path}, line {self.lines[row]}" if self.lines else str(self.path)

    def cells(self, name: str) -> list[str]:
        """Return a column that must be there."""
        if name not in self.columns:
            raise UserError(
                f"{self.path}, line 1: column {name!r} must be there, got {list(self.columns)}"
            )
        return self.columns[name]

    def filled(self, name: str) -> list[str]:
        """Return a column that must be there and have no empty cell."""
        cells = self.cells(name)
        if "" in cells:
            raise UserError(f"{self.where(cells.index(''))}: {name} must not be empty, got ''")
        return cells

    def numbers(self, names: Sequence[str]) -> Float[Tensor, "rows columns"]:
        """Return columns of finite numbers side by side."""
        values = np.empty((len(self.lines), len(names)), dtype=np.float32)
        for place, name in enumerate(names):
            values[:, place] = self._finite(name)
        return torch.from_numpy(values)

    def _finite(self, name: str) -> Float[np.ndarray, " rows"]:
        cells = self.cells(name)
        try:
            values = np.array(list(map(float, cells)), dtype=np.float64)
            is_plain = "_" not in "".join(cells)
        except ValueError:
            is_plain = False
        if not is_plain:
            values = np.array([parse_number(cell, or_else=np.nan) for cell in cells])
        is_wrong = ~(np.abs(values) <= LARGEST)
        if is_wrong.any():
            row = int(is_wrong.argmax())
            raise UserError(
                f"{self.where(row)}: {name} must be a finite number of 32 bits, got {cells[row]!r}"
            )
        return values


def read_csv(path: Path) -> CsvTable:
    """Read a file with a header; blank lines are skipped."""
    rows: list[list[str]] = []
    lines: list[int] = []
    with closing(_rows(path)) as found:
        header = _header(path, found)
        columns: list[list[str]] = [[] for _ in header]
        for line, row in found:
            if len(row) != len(header):
                raise UserError(
                    f"{path}, line {line}: a row must have {len(header)} cells, got {len(row)}"
                )
            rows.append(row)
            lines.append(line)
            if len(rows) == CHUNK:
                _move(rows, columns)
    _move(rows, columns)
    return CsvTable(path, dict(zip(header, columns, strict=True)), lines)


def read_header(path: Path) -> list[str]:
    """Read the names of a file's columns, and nothing below them."""
    with closing(_rows(path)) as found:
        return _header(path, found)


def _rows(path: Path) -> Generator[tuple[int, list[str]], None, None]:
    """Rows that are not blank, each with the line on which it ends."""
    try:
        # a mark of the byte order, which spreadsheets write, is no part of the first name
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            try:
                for row in reader:
                    if row:
                        yield reader.line_num, row
            except csv.Error as mistake:
                raise UserError(f"{path}, line {reader.line_num}: {mistake}") from mistake
    except FileNotFoundError as missing:
        raise UserError(f"{path} must be there, got no such file") from missing
    except OSError as mistake:
        raise UserError(f"{path} must be a file that can be read: {mistake}") from mistake
    except UnicodeDecodeError as mistake:
        raise UserError(f"{path} must be text in UTF-8: {mistake}") from mistake


def _header(path: Path, rows: Iterator[tuple[int, list[str]]]) -> list[str]:
    """Take the first row, which must name each column once."""
    line, header = next(rows, (0, []))
    if not header:
        raise UserError(f"{path} must begin with the names of its columns, got an empty file")
    for place, name in enumerate(header):
        if not name.strip():
            raise UserError(
                f"{path}, line {line}: column {place + 1} must have a name, got {name!r}"
            )
        if name in header[:place]:
            raise UserError(f"{path}, line {line}: column {name!r} must occur once, got two")
    return header


def _move(rows: list[list[str]], columns: list[list[str]]) -> None:
    """Empty the rows into the columns."""
    if rows:
        for column, cells in zip(columns, zip(*rows, strict=True), strict=True):
            column.extend(cells)
    rows.clear()


def parse_number(cell: str, or_else: float) -> float:
    """Read a number as people write it: Python's `1_000` is none."""
    try:
        return or_else if "_" in cell else float(cell)
    except ValueError:
        return or_else
