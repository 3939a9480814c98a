"""Columns that are computed once for a whole set: how long each of them takes.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/precompute.py --cache FOLDER --out FILE.json

FOLDER is that of a built set, with `columns.*`. Without it, graphs of the number and the sizes of
Peptides-func are drawn. Each column is computed once, as `graphmamba data build` does it; what is
shown is the wall clock of all threads, so that nothing else should run beside it.
"""

import argparse
import os
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from graphmamba.bench.tables import table, write_json
from graphmamba.bench.timing import once_ms
from graphmamba.data.cache import open_store
from graphmamba.data.catalog import CATALOG
from graphmamba.data.tables import GraphColumns, boundaries
from graphmamba.data.transforms.precompute import Precompute, precomputed
from graphmamba.environment import describe, resolve_device

RESULTS = Path(__file__).parent / "results"
LONGEST = 444
ASKED = Precompute(
    frequencies=10,
    walks=20,
    expander_degree=3,
    has_centrality=True,
    has_clusters=True,
    degree_profile="unbiased",
)
"""Eigenvectors and steps as the models of Peptides read them, and one of each other column."""
WANTED = {"laplacian": 120.0}
"""Seconds that the Laplacian spectra of Peptides-func should take on two cores."""


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, help="folder of a built set with `columns.*`")
    parser.add_argument(
        "--graphs", type=int, default=CATALOG["peptides-func"].graphs, help="to draw without it"
    )
    parser.add_argument(
        "--column", action="append", choices=[*ASKED.parts()], help="all by default"
    )
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda: where spectra are made")
    parser.add_argument("--out", type=Path, default=RESULTS / "precompute.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device = resolve_device(options.device)
    columns = open_store(options.cache).columns() if options.cache else draw(options.graphs)
    found = measure(columns, options.column or [*ASKED.parts()], device)
    Console().print(
        table(
            f"Columns of {len(columns.node_ptr) - 1:,} graphs",
            ["column", "asked for", "seconds", "graphs a second"],
            [
                [
                    name,
                    words(one["asked"]),
                    f"{one['seconds']:.1f}",
                    f"{one['graphs_a_second']:,.0f}",
                ]
                for name, one in found.items()
            ],
        )
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "environment": describe(device, options.commit),
        "source": columns.source,
        "graphs": len(columns.node_ptr) - 1,
        "nodes": int(columns.node_ptr[-1]),
        "edges": int(columns.edge_ptr[-1]),
        "load": os.getloadavg()[0],
        "columns": found,
        "wanted": WANTED,
    }
    write_json(options.out, content)


def measure(
    columns: GraphColumns, names: list[str], device: torch.device
) -> dict[str, dict[str, Any]]:
    """Time each of the columns once, by its name."""
    found = {}
    for name in names:
        asked = ASKED.parts()[name]
        seconds = once_ms(partial(precomputed, columns, asked, device)) / 1e3
        found[name] = {
            "asked": asked.recipe()[name],
            "seconds": seconds,
            "graphs_a_second": (len(columns.node_ptr) - 1) / seconds,
        }
    return found


def words(recipe: dict[str, int | str]) -> str:
    """Say what was asked for in a cell of the table."""
    return ", ".join(f"{name} {value}" for name, value in recipe.items() if name != "version")


def draw(count: int, seed: int = 0) -> GraphColumns:
    """Draw long molecules of the sizes of Peptides-func, each bond in both directions."""
    generator = torch.Generator().manual_seed(seed)
    # Sums of two uniform draws, 151 on average; a few are as long as the longest.
    counts = torch.randint(5, 147, (2, count), generator=generator).sum(dim=0)
    counts[:5] = LONGEST
    node_ptr = boundaries(counts)
    local = torch.arange(int(node_ptr[-1])) - node_ptr[:-1].repeat_interleave(counts)
    # Each atom but the first is bound to one of the four before it.
    back = torch.randint(1, 5, local.shape, generator=generator)
    bonds = torch.stack([local, (local - back).clamp_min(0)])[:, local > 0]
    edge_index = torch.stack([bonds, bonds.flip(0)], dim=2).flatten(1)
    return GraphColumns(node_ptr, boundaries(2 * (counts - 1)), edge_index, source="drawn")


if __name__ == "__main__":
    main()
