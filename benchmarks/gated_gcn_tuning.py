"""Tries tiles for the Triton kernels of GatedGCN's sums: each size changed by itself.

Run it on a machine with a GPU:

    PYTHONPATH=src:benchmarks python benchmarks/gated_gcn_tuning.py --batches peptides pattern
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from gated_gcn import BATCHES, Times, measure
from rich.console import Console

from graphmamba.bench.tables import table, write_json
from graphmamba.environment import describe, resolve_device
from graphmamba.stack.gated_sum import fused
from graphmamba.stack.gated_sum.tiles import Tile

DEFAULT = fused.TILE
TILES = [
    DEFAULT,
    replace(DEFAULT, warps=8),
    replace(DEFAULT, warps=2),
    replace(DEFAULT, edges=16),
    replace(DEFAULT, edges=64),
    replace(DEFAULT, edges=128, warps=8),
    replace(DEFAULT, channels=16, warps=2),
    replace(DEFAULT, channels=64, warps=8),
    replace(DEFAULT, channels=64),
    replace(DEFAULT, edges=16, channels=128),
    replace(DEFAULT, at_once=2),
    replace(DEFAULT, at_once=8),
]


def main() -> None:
    """Measure every tile, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--batches", nargs="+", choices=BATCHES, default=["peptides", "pattern"])
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device = resolve_device("cuda")
    found = [(tile, measure_tile(tile, name, device)) for name in options.batches for tile in TILES]
    columns = ["batch", "edges", "channels", "warps", "at once", "fwd ms", "fwd+bwd ms"]
    rows = (
        [
            one.batch.name,
            *(str(size) for size in (tile.edges, tile.channels, tile.warps, tile.at_once)),
            f"{one.forward_ms:.4f}",
            f"{one.both_ms:.4f}",
        ]
        for tile, one in found
    )
    Console().print(table("gated_sum by tile", columns, rows))
    times = [{"tile": tile, "times": one} for tile, one in found]
    write_json(options.out, {"environment": describe(device, options.commit), "times": times})


def measure_tile(tile: Tile, batch: str, device: torch.device) -> Times:
    """Time the kernels on other tiles than those they have."""
    fused.TILE = tile
    try:
        return measure(BATCHES[batch], "fused", device)
    finally:
        fused.TILE = DEFAULT


if __name__ == "__main__":
    main()
