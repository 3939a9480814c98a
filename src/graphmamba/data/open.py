"""A benchmark with all that a model reads of it: one door for training and evaluation."""

from pathlib import Path

from graphmamba.data.positional import Precompute
from graphmamba.data.precomputed_store import with_precomputed
from graphmamba.data.sbm import Sizes
from graphmamba.data.sources import default_root, open_benchmark
from graphmamba.data.store import GraphStore

COMPUTED = "computed"
"""Folder under a benchmark's own where pre-computed columns are kept."""
PROFILE = Precompute(degree_profile="unbiased")
"""Stands in for the features of graphs that have none, as published (MalNet-Tiny)."""


def open_with_columns(
    name: str,
    asked: Precompute | None = None,
    root: Path | None = None,
    seed: int = 0,
    sizes: Sizes | None = None,
) -> GraphStore:
    """Open a benchmark with the pre-computed columns that a model reads, and no others.

    Columns are computed when they are first asked for, which a bar on the terminal follows, and
    kept beside the set by what its graphs are: a set that is built anew from other files has its
    columns computed anew. Graphs without features get their local degree profile as `x`.

    Args:
        name: The benchmark's name in the catalogue.
        asked: What the model reads: `GraphMamba.precompute`.
        root: Where sets are kept; None for the default place.
        seed: Of a set that is drawn.
        sizes: Graphs of the three parts of a set that is drawn; None for the published sizes.
    """
    root = root or default_root()
    store = open_benchmark(name, root, seed, sizes)
    # not read from the place again: another set may be there by now
    recipe = {"content": store.content}
    folder = root / name / COMPUTED
    if "x" not in store.tables["nodes"].columns:
        made = with_precomputed(store, PROFILE, folder, recipe).tables["nodes"]
        store = store.with_columns(nodes={"x": made.given("degree_profile")})
    return with_precomputed(store, asked or Precompute(), folder, recipe)
