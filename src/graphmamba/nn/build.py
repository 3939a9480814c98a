"""From a `StackConfig` to layers, by tables: one entry for each local model and each mixer."""

from collections.abc import Callable

from torch import nn

from graphmamba.errors import UserError
from graphmamba.nn.attention import Attention
from graphmamba.nn.bigbird import BigBird
from graphmamba.nn.config import LocalName, MixerName, StackConfig
from graphmamba.nn.exphormer import ExphormerStack
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.gcn import GCN, GCNE
from graphmamba.nn.gin import GINE
from graphmamba.nn.gps import GPSLayer, PlainLayer
from graphmamba.nn.graph_mamba import GraphMambaMixer
from graphmamba.nn.parts import GlobalMixer, LocalModel
from graphmamba.nn.performer import Performer

LOCALS: dict[LocalName, Callable[[StackConfig, bool], LocalModel | None]] = {
    "gatedgcn": lambda config, has_gate: GatedGCN(
        config.channels,
        dropout=config.dropout,
        activation=config.activation,
        has_stable_gate=has_gate,
    ),
    "gcn": lambda config, _: GCN(config.channels, has_bias=config.plain.has_bias),
    "gcne": lambda config, _: GCNE(config.channels),
    "gine": lambda config, _: GINE(
        config.channels, activation=config.activation, dropout=config.dropout
    ),
    "gin": lambda config, _: GINE(
        config.channels, activation=config.activation, dropout=config.dropout, reads_edges=False
    ),
    "none": lambda _config, _has_gate: None,
}

MIXERS: dict[MixerName, Callable[[StackConfig, int], GlobalMixer]] = {
    "mamba": lambda config, layer: GraphMambaMixer(
        config.channels, config.order, config.mamba, config.input_norm, layer
    ),
    "transformer": lambda config, _: Attention(
        config.channels, config.attention.heads, dropout=config.attention.dropout
    ),
    "performer": lambda config, _: Performer(
        config.channels,
        config.attention.heads,
        dropout=config.attention.dropout,
        head_width=config.attention.head_width,
    ),
    "bigbird": lambda config, _: BigBird(
        config.channels, config.attention.heads, dropout=config.dropout
    ),
}


def build_layers(config: StackConfig, has_stable_gate: bool = False) -> list[nn.Module]:
    """Make the layers, each called `layer(x, e, topology) -> (x, e)`.

    Args:
        config: Which layers.
        has_stable_gate: Whether GatedGCN reads `topology.gate_encoding`.
    """
    if has_stable_gate and config.local != "gatedgcn":
        raise UserError(
            f"model.local must be 'gatedgcn' where positions modulate its gates, "
            f"got {config.local!r}"
        )
    if config.mixer == "exphormer":
        return [_exphormer(config, has_stable_gate)]
    is_plain = config.mixer == "none" or config.join == "plain"
    layer_of = _plain_layer if is_plain else _gps_layer
    return [layer_of(config, has_stable_gate, number) for number in range(config.layers)]


def _gps_layer(config: StackConfig, has_stable_gate: bool, number: int) -> nn.Module:
    return GPSLayer(
        config.channels,
        LOCALS[config.local](config, has_stable_gate),
        MIXERS[config.mixer](config, number),
        dropout=config.dropout,
        norm=config.norm,
        activation=config.activation,
    )


def _plain_layer(config: StackConfig, has_stable_gate: bool, number: int) -> nn.Module:
    local = LOCALS[config.local](config, has_stable_gate)
    mixer = None if config.mixer == "none" else MIXERS[config.mixer](config, number)
    if local is None and mixer is None:
        raise UserError("model.local and model.mixer must not both be 'none', got 'none' for each")
    if local is None:
        raise UserError("model.local must be a local model where model.join='plain', got 'none'")
    if local.has_residual and mixer is None:
        return local
    if local.has_residual:
        raise UserError(
            "model.local must be a model without a residual of its own where model.join='plain' "
            f"puts a mixer beside it, got {config.local!r}"
        )
    return PlainLayer(
        config.channels,
        local,
        activation=config.plain.activation,
        dropout=config.dropout,
        norm=config.plain.norm,
        mixer=mixer,
        has_residual=config.plain.has_residual,
        has_unit_rows=config.plain.has_unit_rows,
    )


def _exphormer(config: StackConfig, has_stable_gate: bool) -> nn.Module:
    if config.local != "gatedgcn":
        raise UserError(f"model.local must be 'gatedgcn' for Exphormer, got {config.local!r}")
    if config.join != "gps":
        raise UserError(f"model.join must be 'gps' for Exphormer, got {config.join!r}")
    return ExphormerStack(
        config.channels,
        config.layers,
        config.attention.heads,
        dropout=config.dropout,
        has_expander=config.attention.expander_degree > 0,
        virtual_nodes=config.attention.virtual_nodes,
        has_stable_gate=has_stable_gate,
        norm=config.norm,
        activation=config.activation,
    )
