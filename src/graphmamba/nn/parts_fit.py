"""Which encoder fits which columns and which layers: refused before anything is made."""

from graphmamba.data.catalog import Features
from graphmamba.errors import UserError
from graphmamba.nn.config import LocalName, StackConfig
from graphmamba.nn.encoder_config import EncoderConfig
from graphmamba.nn.superpixels import EDGE_STATISTICS, NODE_STATISTICS

READ_EDGES: frozenset[LocalName] = frozenset({"gatedgcn", "gcne", "gine"})
"""Local models that need a row for each edge."""


def check_parts_fit(features: Features, model: StackConfig, encoder: EncoderConfig) -> None:
    """Refuse statistics of other columns, and layers that would look for rows nobody makes."""
    if model.local in READ_EDGES and not encoder.has_edges:
        raise UserError(
            f"encoder.has_edges must be true for model.local={model.local!r}, which reads a row "
            "for each edge, got False"
        )
    name = encoder.standardization
    if name == "none":
        return
    wanted = [len(table[name].mean) for table in (NODE_STATISTICS, EDGE_STATISTICS)]
    found = [
        features.node_columns if features.nodes == "numbers" else 0,
        # edges without columns, or that nobody encodes, leave nothing to standardise
        features.edge_columns if features.edges == "numbers" and encoder.has_edges else wanted[1],
    ]
    if found != wanted:
        raise UserError(
            f"encoder.standardization must be 'none' for other columns than those of {name}, "
            f"{wanted[0]} numbers a node and {wanted[1]} an edge, got {name!r} for "
            f"{found[0]} and {found[1]}"
        )
