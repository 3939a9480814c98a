"""Closed formulas for the layers: operations of a forward pass, from widths and sizes alone."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, cast

from torch import nn

from graphmamba.errors import UserError
from graphmamba.stack.attention import Attention
from graphmamba.stack.big_bird import BigBird
from graphmamba.stack.exphormer import ExphormerAttention, ExphormerStack
from graphmamba.stack.gated_gcn import GatedGCN
from graphmamba.stack.gps_layer import GPSLayer
from graphmamba.stack.graph_mamba_mixer import GraphMambaMixer
from graphmamba.stack.norm import NodeNorm
from graphmamba.stack.performer import Performer
from graphmamba.study.batch_size import BatchSize
from graphmamba.study.flop_terms import batch_norm, dropped, linear, pointwise
from graphmamba.study.flops import Flops, Form
from graphmamba.study.mixer_flops import (
    attention,
    big_bird,
    exphormer_attention,
    graph_mamba,
    performer,
)
from graphmamba.study.operator_flops.costs import NORM
from graphmamba.study.original_flops import (
    original_attention,
    original_big_bird,
    original_graph_mamba,
    original_performer,
)


def layer_flops(layer: nn.Module, size: BatchSize, form: Form = "here") -> Flops:
    """Operations of one layer of a stack, or of one part of a layer."""
    formulas = FORMULAS[form]
    formula = next((formulas[kind] for kind in type(layer).__mro__ if kind in formulas), None)
    if formula is None:
        known = ", ".join(kind.__name__ for kind in formulas)
        raise UserError(f"layer must be one of {known}, got {type(layer).__name__}")
    return formula(layer, size)


def _gated_gcn(local: GatedGCN, size: BatchSize) -> Flops:
    d = local.edges.in_features
    nodes, edges = size.nodes * d, size.edges * d
    # Edges: two sums, sigmoid, product with what is sent, two sums at the target. Nodes: quotient
    # with epsilon, sum. Both: norm, activation, residual.
    flops = linear(size.nodes, local.nodes) + linear(size.edges, local.edges)
    follow = nodes + edges if size.wants_edges else nodes
    flops += pointwise(6 * edges, 3 * nodes, (batch_norm(local) + 2) * follow)
    flops += dropped(follow, local.dropout, local)
    if local.stable_gate is not None:
        first, last = local.stable_gate[0], local.stable_gate[2]
        flops += linear(size.edges, first) + linear(size.edges, last)
        # Squared distance, ReLU, sigmoid, product with the gate.
        flops += pointwise(3 * edges, edges, size.edges, edges)
    return flops


def _exphormer(stack: ExphormerStack, size: BatchSize, *, maps_all: bool) -> Flops:
    """All layers; `maps_all` maps a row for every edge that is not real, not one for each kind."""
    expanders = size.expanders if stack.has_expander else 0
    others = expanders + 2 * stack.virtual_nodes * size.nodes
    edge_rows = size.edges + (others if maps_all else stack.kinds.shape[0])
    rows, flops = size.nodes + stack.virtual_nodes * size.graphs, Flops()
    for module in stack.layers:
        layer = cast(GPSLayer, module)
        attends = cast(ExphormerAttention, layer.mixer)
        flops += exphormer_attention(attends, rows, size.edges + others, edge_rows)
        is_read = size.wants_edges or module is not stack.layers[-1]
        flops += _combine(layer, replace(size, wants_edges=is_read))
    return flops


def _gps(layer: GPSLayer, size: BatchSize, *, form: Form) -> Flops:
    mixed = Flops() if layer.mixer is None else layer_flops(layer.mixer, size, form)
    return mixed + _combine(layer, size)


def _combine(layer: GPSLayer, size: BatchSize) -> Flops:
    """All but the mixer."""
    rows = size.nodes * layer.widen.in_features
    flops = linear(size.nodes, layer.widen) + linear(size.nodes, layer.narrow)
    # The activation of twice as many channels, and the residual of the feed-forward network.
    flops += pointwise(3 * rows) + _norm(layer.norm, rows) + dropped(3 * rows, layer.dropout, layer)
    if layer.local is not None:
        flops += layer_flops(layer.local, size) + _norm(layer.local_norm, rows)
        if not layer.local.has_residual:
            flops += pointwise(rows) + dropped(rows, layer.dropout, layer)
    if layer.mixer is not None:
        flops += pointwise(rows) + _norm(layer.mixer_norm, rows)
        flops += dropped(rows, layer.dropout, layer)
    has_both = layer.local is not None and layer.mixer is not None
    return flops + pointwise(rows if has_both else 0)


def _norm(norm: NodeNorm | None, numbers: int) -> Flops:
    if norm is None or isinstance(norm.norm, nn.Identity):
        return Flops()
    cost = batch_norm(norm) if isinstance(norm.norm, nn.BatchNorm1d) else NORM
    return pointwise(cost * numbers)


Formula = Callable[[Any, BatchSize], Flops]

FORMULAS: dict[Form, dict[type[nn.Module], Formula]] = {
    "here": {
        GatedGCN: _gated_gcn,
        GraphMambaMixer: graph_mamba,
        Attention: attention,
        Performer: performer,
        BigBird: big_bird,
        ExphormerStack: partial(_exphormer, maps_all=False),
        GPSLayer: partial(_gps, form="here"),
    },
    "original": {
        GatedGCN: _gated_gcn,
        GraphMambaMixer: original_graph_mamba,
        Attention: original_attention,
        Performer: original_performer,
        BigBird: original_big_bird,
        ExphormerStack: partial(_exphormer, maps_all=True),
        GPSLayer: partial(_gps, form="original"),
    },
}
"""What a layer or a part of it costs, as it runs here and in its authors' code."""
