"""How sums over the edges of nodes are cut into the programs of a kernel."""

from dataclasses import dataclass
from typing import Any

import triton

ALONE, TOGETHER = 80, 96
"""Registers of a program that walks over the edges of one node, and of one with several."""
AT_ONCE = 4
"""Numbers of a row that are loaded at once where all rows begin at multiples of them."""


@dataclass(frozen=True)
class Tile:
    """What a program holds at a time."""

    edges: int = 32
    channels: int = 32
    warps: int = 4
    at_once: int = 4
    """Edges of a node that are walked side by side, where nodes have few."""
    rounds: int = 4
    """Rounds in which nodes are walked side by side; a node with more edges than that is a hub."""


@dataclass(frozen=True)
class Grid:
    """How the work is cut: nodes by channels."""

    programs: int
    constants: dict[str, Any]

    @property
    def narrow(self) -> dict[str, Any]:
        """Options of a kernel that holds more than sums: as few registers as it does not spill at.

        More of its programs are under way at a time then. Rows that begin anywhere are loaded
        number by number, which takes what it takes.
        """
        if self.constants["CHANNELS"] % AT_ONCE:
            return {}
        return {"maxnreg": ALONE if self.constants["T"] == 1 else TOGETHER}


def cut(nodes: int, edges: int, channels: int, tile: Tile) -> Grid:
    """Cut the work by what the shapes tell; the degrees themselves would have to be waited for."""
    mean = triton.next_power_of_2(triton.cdiv(edges, max(nodes, 1)))
    at_once = min(max(mean, tile.at_once), tile.edges)
    blocks, side_by_side = triton.cdiv(channels, tile.channels), tile.edges // at_once
    constants = {
        "CHANNELS": channels, "BLOCKS": blocks, "T": side_by_side, "K": at_once,
        "C": tile.channels, "ROUNDS": tile.rounds, "num_warps": tile.warps,
    }  # fmt: skip
    return Grid(triton.cdiv(nodes, side_by_side) * blocks, constants)
