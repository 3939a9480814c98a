"""A store with the pre-computed columns of a model, each computed once and then kept on disk."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from torch import Tensor

from graphmamba.data.cache import open_or_repair
from graphmamba.data.positional import Precompute
from graphmamba.data.precompute import precomputed
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import GraphColumns, Pairs


def with_precomputed(
    store: GraphStore, asked: Precompute, folder: Path | str, recipe: Mapping[str, Any]
) -> GraphStore:
    """Return the store with the columns that `asked` names.

    Each column has a recipe and a place of its own: models that ask for the same spectrum share
    it, whatever else they ask for. Spectra are computed on the CPU: its threads are faster than a
    GPU for graphs of more than 32 nodes, which PyTorch solves one by one there, and the vectors are
    the same wherever a model is trained and scored.

    Args:
        store: The graphs.
        asked: What a model reads; nothing else is computed.
        folder: Where computed columns are kept.
        recipe: What the graphs depend on, as in `cache.open_or_build`.
    """
    nodes: dict[str, Tensor] = {}
    pairs: dict[str, Pairs] = {}

    @cache
    def graphs() -> GraphColumns:
        return store.to("cpu").columns()

    for part in asked.parts().values():

        def build(part: Precompute = part) -> GraphColumns:
            return precomputed(graphs(), part)

        whole = {"graphs": dict(recipe), "computed": part.recipe()}
        made = open_or_repair(folder, whole, build).columns()
        nodes |= made.nodes
        pairs |= made.pairs
    return store.with_columns(nodes=nodes, pairs=pairs)
