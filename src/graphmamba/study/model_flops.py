"""Closed formulas for a whole model: encoder, layers and head."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, cast

from torch import nn

from graphmamba.encode.categories import CategoryEncoder
from graphmamba.encode.encoder import (
    Concat,
    DummyEdges,
    EdgeFeatures,
    GraphEncoder,
    NodeFeatures,
    PreLayer,
)
from graphmamba.encode.laplacian import DeepSet, GateEncoder, LaplacianEncoder
from graphmamba.encode.norm import BatchNorm, NoNorm
from graphmamba.encode.numbers import NumberEncoder, Standardize
from graphmamba.encode.random_walk import RandomWalkEncoder
from graphmamba.errors import UserError
from graphmamba.study.batch_size import BatchSize
from graphmamba.study.flop_terms import batch_norm, linear, pointwise
from graphmamba.study.flops import Flops, Form
from graphmamba.study.operator_flops.costs import DROPOUT, LENGTH
from graphmamba.study.stack_flops import layer_flops
from graphmamba.task.heads import GraphHead, Normalize
from graphmamba.task.model import GraphMamba


def forward_flops(model: GraphMamba, size: BatchSize, form: Form = "here") -> Flops:
    """Operations of one forward pass on a batch of that size.

    In training mode and at evaluation they differ: by dropout, and by the line-ups averaged over.

    Args:
        model: The model.
        size: The batch.
        form: Whose code runs it: ours, or that of its authors.
    """
    flops = _encoder(cast(GraphEncoder, model.backbone.encoder), size)
    for layer in model.backbone.layers:
        # Edges of the last layer are read by nobody, and normalised in the original code alone.
        is_finished = form == "original" or layer is not model.backbone.layers[-1]
        flops += layer_flops(layer, replace(size, wants_edges=is_finished), form)
    head = cast(Any, model.head)
    if isinstance(head, GraphHead):
        width = next(_linears(head.mlp)).in_features
        return flops + pointwise(size.nodes * width) + _in_turn(head.mlp, size.graphs)
    return flops + _in_turn(head.mlp, size.nodes)


def _encoder(encoder: GraphEncoder, size: BatchSize) -> Flops:
    flops = _in_turn(encoder.nodes, size.nodes)
    if encoder.edges is not None:
        flops += _part(encoder.edges, size.edges)
    return flops if encoder.gate is None else flops + _part(encoder.gate, size.nodes)


def _in_turn(parts: Iterable[nn.Module], rows: int) -> Flops:
    """Parts one after another, whose numbers each are those of the linear layer before it."""
    flops, numbers = Flops(), 0
    for part in parts:
        flops += _part(part, rows, numbers)
        if isinstance(part, nn.Linear):
            numbers = rows * part.out_features
    return flops


def _part(part: nn.Module, rows: int, numbers: int = 0) -> Flops:
    formula = next((PARTS[kind] for kind in type(part).__mro__ if kind in PARTS), None)
    if formula is None:
        known = ", ".join(kind.__name__ for kind in PARTS)
        raise UserError(f"encoder and head must be made of {known}, got {type(part).__name__}")
    return formula(part, rows, numbers)


def _linears(parts: Iterable[nn.Module]) -> Iterator[nn.Linear]:
    return (part for part in parts if isinstance(part, nn.Linear))


def _side_by_side(part: Any, rows: int, _numbers: int) -> Flops:
    return sum((_part(each, rows) for each in part.parts), start=Flops())


def _categories(part: CategoryEncoder, rows: int, _numbers: int) -> Flops:
    return pointwise(rows * part.offsets.shape[0] * part.weight.shape[1])


def _number_columns(part: NumberEncoder, rows: int, _numbers: int) -> Flops:
    is_standardized = isinstance(part.standardize, Standardize)
    return linear(rows, part.linear) + pointwise(
        2 * rows * part.linear.in_features if is_standardized else 0
    )


def _laplacian(part: LaplacianEncoder, rows: int, _numbers: int) -> Flops:
    if not isinstance(part.set_network, DeepSet):
        raise UserError("laplacian.form must be 'deepset' to be counted, got 'transformer'")
    pairs = rows * part.frequencies
    signs = pointwise(pairs if part.training else 0)
    return signs + _in_turn(part.set_network.mlp, pairs) + pointwise(pairs * part.channels)


def _random_walk(part: RandomWalkEncoder, rows: int, _numbers: int) -> Flops:
    return _part(part.norm, rows) + _part(part.network, rows)


def _pre_layer(part: PreLayer, rows: int, _numbers: int) -> Flops:
    return linear(rows, part.linear) + pointwise(
        (batch_norm(part) + 1 + LENGTH) * rows * part.linear.out_features
    )


PARTS: dict[type[nn.Module], Callable[[Any, int, int], Flops]] = {
    NoNorm: lambda _part, _rows, _numbers: Flops(),
    nn.Linear: lambda part, rows, _numbers: linear(rows, part),
    nn.ReLU: lambda _part, _rows, numbers: pointwise(numbers),
    nn.GELU: lambda _part, _rows, numbers: pointwise(numbers),
    nn.Dropout: lambda part, _rows, numbers: pointwise(DROPOUT * numbers if part.training else 0),
    nn.Sequential: lambda part, rows, _numbers: _in_turn(part, rows),
    nn.Identity: lambda _part, _rows, _numbers: Flops(),
    Normalize: lambda part, _rows, numbers: pointwise((LENGTH + part.has_relu) * numbers),
    BatchNorm: lambda part, rows, _numbers: pointwise(batch_norm(part) * rows * part.num_features),
    Concat: _side_by_side,
    NodeFeatures: lambda part, rows, _numbers: _part(part.network, rows),
    EdgeFeatures: lambda part, rows, _numbers: _part(part.network, rows),
    DummyEdges: lambda _part, _rows, _numbers: Flops(),
    CategoryEncoder: _categories,
    NumberEncoder: _number_columns,
    LaplacianEncoder: _laplacian,
    GateEncoder: lambda part, rows, _numbers: linear(rows, part.linear),
    RandomWalkEncoder: _random_walk,
    PreLayer: _pre_layer,
}
