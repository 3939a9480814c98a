"""A store with the pre-computed columns of a model, each computed once and then kept on disk."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmamba.data.cache import open_or_repair
from graphmamba.data.graph_columns import GraphColumns, Pairs
from graphmamba.data.positional import Precompute
from graphmamba.data.precompute import precomputed
from graphmamba.data.store import GraphStore


def with_precomputed(
    store: GraphStore,
    asked: Precompute,
    folder: Path | str,
    recipe: Mapping[str, Any],
    device: torch.device | str = "cpu",
) -> GraphStore:
    """Return the store with the columns that `asked` names.

    Each column has a recipe and a place of its own: models that ask for the same spectrum share
    it, whatever else they ask for.

    Args:
        store: The graphs.
        asked: What a model reads; nothing else is computed.
        folder: Where computed columns are kept.
        recipe: What the graphs depend on, as in `cache.open_or_build`.
        device: Where the eigenvectors are computed.
    """
    nodes: dict[str, Tensor] = {}
    pairs: dict[str, Pairs] = {}

    @cache
    def graphs() -> GraphColumns:
        return store.to("cpu").columns()

    for part in asked.parts().values():

        def build(part: Precompute = part) -> GraphColumns:
            return precomputed(graphs(), part, device)

        whole = {"graphs": dict(recipe), "computed": part.recipe()}
        made = open_or_repair(folder, whole, build).columns()
        nodes |= made.nodes
        pairs |= made.pairs
    return store.with_columns(nodes=nodes, pairs=pairs)
