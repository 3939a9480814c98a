"""MalNet's edge lists: five lines of header, then two node numbers a line -> pairs of nodes."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.errors import UserError

HEADER_LINES = 5
MOST_NODES = 1_000_000
"""Numbers of nodes stay below; the largest published one is 14,165, and memory grows with it."""
PAIR = 2
NEWLINE = ord("\n")
IS_BLANK = np.isin(np.arange(256), list(b" \t\r\n"))
IS_DIGIT = np.isin(np.arange(256), list(b"0123456789"))


def read_edge_list(path: Path) -> Int[Tensor, "2 edges"]:
    """Read one graph; what is wrong with its file is told with the line."""
    if not path.is_file():
        raise UserError(f"folder {path.parent} must hold {path.name}, got no such file")
    lines = path.read_bytes().split(b"\n", HEADER_LINES)
    # What follows the last end of a line is a line only where there is something.
    rows = lines.pop() if len(lines) > HEADER_LINES or not lines[-1] else b""
    _check_header(path, lines)
    letters = np.frombuffer(rows, np.uint8)
    is_blank, line = IS_BLANK[letters], np.cumsum(letters == NEWLINE)
    is_first = ~is_blank
    is_first[1:] &= is_blank[:-1]
    line_of = line[is_first]  # of each word
    if not len(line_of):
        return torch.empty(2, 0, dtype=torch.int64)
    _refuse(path, rows, line[~is_blank & ~IS_DIGIT[letters]])
    words = np.bincount(line_of)
    _refuse(path, rows, np.flatnonzero((words != 0) & (words != PAIR)))
    # What does not fit into 64 bits is read as the largest number that does.
    numbers = np.fromstring(rows, np.int64, sep=" ")
    _refuse(path, rows, line_of[numbers >= MOST_NODES])
    return torch.from_numpy(numbers.reshape(-1, PAIR).T.copy())


def _check_header(path: Path, header: list[bytes]) -> None:
    if len(header) < HEADER_LINES:
        raise UserError(f"{path} must begin with {HEADER_LINES} lines of header, got {len(header)}")
    for number, line in enumerate(header, 1):
        words = line.split()
        if len(words) == PAIR and all(word.isdigit() for word in words):
            raise UserError(
                f"{path}, line {number}: the first {HEADER_LINES} lines must be a header, "
                f"got the edge {_shown(line)}"
            )


def _refuse(path: Path, rows: bytes, lines: np.ndarray) -> None:
    """Tell of the first of the lines, if there is one."""
    if len(lines):
        number = int(lines[0])
        raise UserError(
            f"{path}, line {HEADER_LINES + 1 + number}: must be two node numbers, "
            f"0 to {MOST_NODES - 1}, got {_shown(rows.split(NEWLINE.to_bytes())[number])}"
        )


def _shown(line: bytes) -> str:
    return repr(line.strip()[:40].decode(errors="backslashreplace"))
