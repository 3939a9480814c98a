"""How the rows of a batch norm are cut into the programs of its kernels."""

from dataclasses import dataclass
from typing import Any

import triton

LEAST_CHANNELS = 16
"""A narrower block would read less of each row than the memory hands out at a time."""
MOST_LINES = 128
"""Lines of sums, which each program of the second kernel of a pass holds all at once."""
LEAST_LINES = 32
"""Room for fewer would be compiled anew for next to nothing."""


@dataclass(frozen=True)
class Tile:
    """What a program of one kernel holds at a time, and how many programs there are."""

    rows: int = 64
    channels: int = 32
    """Of the widest block; a narrower one, of more rows, is taken where it leaves less empty."""
    warps: int = 4
    programs: int = 396
    """At most, over all blocks of channels; by default three for each of an H200's processors."""
    unroll: int = 2
    """Tiles of a round: with two, the rows of the next tile need not be moved to be this one's."""


@dataclass(frozen=True)
class Tiles:
    """One for each kernel."""

    sums: Tile = Tile()
    apply: Tile = Tile()
    bwd_sums: Tile = Tile(unroll=1)
    """With two tiles a round, three of its programs would not fit into the registers."""
    bwd_apply: Tile = Tile()


@dataclass(frozen=True)
class Grid:
    """How one kernel is launched."""

    programs: tuple[int, int]
    """Over the rows, of which each takes every so-manieth tile, and over blocks of channels."""
    constants: dict[str, Any]


def cut(rows: int, channels: int, tile: Tile, most: int | None = None) -> Grid:
    """Cut rows by channels; along the rows into `most` programs at most.

    Example:
        >>> cut(21_000, 96, Tile(rows=64, channels=32, programs=396)).programs
        (110, 3)
        >>> cut(1_900, 48, Tile(rows=64, channels=32)).constants
        {'T': 128, 'C': 16, 'UNROLL': 2, 'num_warps': 4}
    """
    width = tile.channels
    while width > LEAST_CHANNELS and _covered(channels, width // 2) < _covered(channels, width):
        width //= 2
    height, blocks = tile.rows * tile.channels // width, triton.cdiv(channels, width)
    tiles = triton.cdiv(rows, height)
    programs = max(tile.programs // blocks, 1)
    programs = programs if most is None else min(programs, most)
    # As many as make the rounds that the slowest of them would need anyway.
    programs = triton.cdiv(tiles, triton.cdiv(tiles, programs))
    constants = {"T": height, "C": width, "UNROLL": tile.unroll, "num_warps": tile.warps}
    return Grid((programs, blocks), constants)


def line_room(lines: int) -> int:
    """Return the power of two that lines are read into."""
    return max(triton.next_power_of_2(lines), LEAST_LINES)


def _covered(channels: int, width: int) -> int:
    return triton.cdiv(channels, width) * width
