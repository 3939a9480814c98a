"""Floating-point operations of a model: by closed formula, and counted while it runs.

A multiply-add counts as two. `torch.utils.flop_counter` counts matrix products; for our operators
and for element-wise work it gets the formulas of this file.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.data import Data

import graphmamba.ops  # noqa: F401 - defines the operators of `ours`
from graphmamba.data.batch import topology_of
from graphmamba.errors import UserError
from graphmamba.nn.attention import Attention
from graphmamba.nn.bigbird import BigBird
from graphmamba.nn.encoders import (
    CategoryEncoder,
    Concat,
    DeepSet,
    DummyEdges,
    GateEncoder,
    GraphEncoder,
    LaplacianEncoder,
    NumberEncoder,
    PreLayer,
    RawColumns,
)
from graphmamba.nn.exphormer import ExphormerAttention, ExphormerStack
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.gps import GPSLayer
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.nn.heads import GraphHead, UnitLength
from graphmamba.nn.model import GraphMamba
from graphmamba.nn.norm import BatchNorm, Dropout, NodeNorm, NoNorm
from graphmamba.nn.performer import Performer

aten, ours = torch.ops.aten, torch.ops.graphmamba

Form = Literal["here", "original"]
"""`here`: this library; `original`: the code of each model's authors, for the same result. It pads
a batch to its largest graph first, so that linear maps, convolution and scan run over padding, and
it maps equal edge features edge by edge."""

# Operations per element.
NORM = 7  # mean, variance, scaling, affine map
KNOWN_NORM = 4  # the same with known mean and variance: BatchNorm at evaluation
SOFTMAX = 5  # maximum, difference, exponential, sum, quotient
SCORE = SOFTMAX + 2  # and scaling and mask before it
LENGTH = 3  # L2 normalisation: square, sum, quotient
DROPOUT = 1
STATE = 9
"""Operations of the scan per position, channel and state, as Mamba's authors count: seven for the
recurrence and its output, the rest for softplus and step sizes."""
SPARSE_BLOCKS = 5
"""Blocks that a block of BigBird attends to beside random ones: first, last, itself, neighbours."""
OUTER_BLOCKS = 4
"""Two blocks at each end of BigBird's sequence have rules of their own."""


@dataclass(frozen=True)
class Flops:
    """Operations by kind."""

    products: int = 0
    """Matrix products, also those of attention."""
    scan: int = 0
    """The selective scan and its convolution."""
    elementwise: int = 0
    """One per element that a pointwise function returns or a sum reads; copies, gathers, sorting
    and integers cost nothing."""

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(
            self.products + other.products,
            self.scan + other.scan,
            self.elementwise + other.elementwise,
        )

    @property
    def total(self) -> int:
        """Sum of all kinds."""
        return self.products + self.scan + self.elementwise


@dataclass(frozen=True)
class BatchSize:
    """What the work on a batch depends on."""

    graphs: int
    nodes: int
    edges: int
    """Directed edges."""
    longest: int
    """Nodes of the largest graph."""
    expanders: int = 0
    """Expander edges of Exphormer."""
    wants_edges: bool = True
    """Whether the edge embeddings that a layer returns are used."""

    @classmethod
    def of(cls, graphs: Data) -> "BatchSize":
        """Measure a batch."""
        topology = topology_of(graphs)
        nodes = topology.batch.bincount(minlength=topology.num_graphs)
        expanders = topology.columns.get("expander_index")
        return cls(
            graphs=topology.num_graphs,
            nodes=topology.batch.shape[0],
            edges=topology.edge_index.shape[1],
            longest=max(1, int(nodes.max())) if topology.num_graphs else 1,
            expanders=0 if expanders is None else expanders.shape[1],
        )

    @property
    def padded(self) -> int:
        """Positions of the padded batch."""
        return self.graphs * self.longest


# Counting. torch's counter calls a formula with the arguments of an operator; tensors are given as
# their shapes, except to the formulas for element-wise work.

Formula = Callable[..., int]


def scan_position_flops(state: int, has_skip: bool = True, has_gate: bool = True) -> int:
    """Operations of the scan per position and channel; the gate is SiLU and a product."""
    return STATE * state + 2 * has_skip + 2 * has_gate


def conv_position_flops(width: int) -> int:
    """Operations of the convolution per position and channel, with SiLU."""
    return 2 * width + 1


def _scan(u: Any, _delta: Any, A: Any, _B: Any, _C: Any, D: Any, z: Any, *_: Any, **__: Any) -> int:
    return prod(u) * scan_position_flops(A[1], D is not None, z is not None)


def _conv(x: Any, weight: Any, _bias: Any, _cu_seqlens: Any, order: Any, *_: Any, **__: Any) -> int:
    positions = x[0] if order is None else order[0]
    return positions * x[1] * conv_position_flops(weight[1])


SCANS: dict[Any, Formula] = {
    ours.selective_scan_cpu: _scan,
    ours.selective_scan_triton: _scan,
    ours.causal_conv1d_cpu: _conv,
    ours.causal_conv1d_triton: _conv,
}
PRODUCTS: dict[Any, Formula] = {  # missing in torch's counter
    aten._addmm_activation: lambda _, x, matrix, **__: 2 * x[0] * x[1] * matrix[1],
    aten._scaled_dot_product_flash_attention_for_cpu: lambda query, key, value, *_, **__: (
        2 * prod(query[:3]) * key[-2] * (query[-1] + value[-1])
    ),
}


def _elements(cost: int = 1, argument: int = 0) -> Formula:
    return lambda *call: cost * call[argument].numel()


def _gated_sum(nodes: Tensor, edges: Tensor, scale: Tensor | None, *_: Any) -> int:
    """As in `_gated_gcn_flops`; `nodes` holds four maps side by side."""
    return (6 + (scale is not None)) * edges.numel() + 3 * nodes.numel() // 4


def _attend(nodes: Tensor, features: Tensor, edge_index: Tensor, *rest: Any) -> int:
    """As in `_exphormer_flops`."""
    channels, heads = features.shape[1], rest[-1]
    return edge_index.shape[1] * (5 * channels + 4 * heads) + nodes.shape[0] * (channels + heads)


OWN_ELEMENTWISE: dict[str, Formula] = {
    "gated_sum_cpu": _gated_sum,
    "gated_sum_triton": _gated_sum,
    "attend_triton": _attend,
    "segment_max_triton": _elements(),
    "segment_sum_triton": _elements(),
    "segment_take_triton": _elements(cost=0),
    "neighbor_sum": lambda rows, others, *_: others.shape[0] * rows.shape[1],
}
"""Our element-wise operators."""
ELEMENTWISE: dict[Any, Formula] = {
    **dict.fromkeys((aten.sum, aten.mean, aten.amax, aten.amin, aten.cumsum), _elements()),
    **dict.fromkeys((aten.linalg_vector_norm, aten.var), _elements(2)),
    **dict.fromkeys(
        (aten.index_add, aten.index_add_, aten.scatter_reduce, aten.scatter_add),
        _elements(argument=3),
    ),
    aten._embedding_bag: _elements(argument=1),
    **dict.fromkeys(
        (
            aten.native_batch_norm,
            aten._native_batch_norm_legit,
            aten._batch_norm_with_update,
            aten.cudnn_batch_norm,
            aten.native_layer_norm,
        ),
        _elements(NORM),
    ),
    aten._native_batch_norm_legit_no_training: _elements(KNOWN_NORM),
    **dict.fromkeys((aten._softmax, aten._safe_softmax), _elements(SOFTMAX)),
    aten.native_dropout: _elements(DROPOUT),
    # the ReLU after a product
    aten._addmm_activation: lambda _, x, matrix: x.shape[0] * matrix.shape[1],
    **dict.fromkeys(
        (
            aten._scaled_dot_product_flash_attention_for_cpu,
            aten._scaled_dot_product_efficient_attention,
            aten._scaled_dot_product_flash_attention,
            aten._scaled_dot_product_cudnn_attention,
        ),
        lambda *call: SCORE * prod(call[0].shape[:3]) * call[1].shape[-2],
    ),
}
"""PyTorch's operators that do not cost one operation per element of their result."""
FREE = {aten.clone, aten.masked_fill, aten.where, aten.nan_to_num}
"""Tagged as pointwise by PyTorch, but they only copy."""


def _of_tensors(formula: Formula | None, unknown: str = "") -> Formula:
    """Make a formula that gets tensors and is only used for calls that return floats.

    Args:
        formula: None counts the elements of the result.
        unknown: Name of an operator without a formula, which raises.
    """

    def count(*call: Any, out_val: Any, **_: Any) -> int:
        if unknown:
            raise NotImplementedError(f"{unknown} has no formula: only forward passes are counted")
        first = out_val[0] if isinstance(out_val, tuple | list) and out_val else out_val
        if not isinstance(first, Tensor) or not first.is_floating_point():
            return 0
        return first.numel() if formula is None else formula(*call)

    cast(Any, count)._get_raw = True  # torch's counter then passes tensors
    return count


@cache
def _elementwise_formulas() -> dict[Any, Formula]:
    found: dict[Any, Formula] = {}
    for full_name in torch._C._dispatch_get_all_op_names():
        namespace, _, name = full_name.partition(".")[0].partition("::")
        if namespace == "graphmamba":
            operator = getattr(ours, name)
            if name in OWN_ELEMENTWISE:
                found[operator] = _of_tensors(OWN_ELEMENTWISE[name])
            elif operator not in SCANS and operator not in PRODUCTS:
                found[operator] = _of_tensors(None, full_name)
        elif namespace == "aten":
            operator = getattr(aten, name)
            tags = (getattr(operator, overload).tags for overload in operator.overloads())
            if operator not in FREE and any(torch.Tag.pointwise in each for each in tags):
                found[operator] = _of_tensors(None)
    return found | {operator: _of_tensors(formula) for operator, formula in ELEMENTWISE.items()}


def count_flops(step: Callable[[], object]) -> Flops:
    """Run a forward pass and count its operations."""
    mapping = _elementwise_formulas()
    # two counters, since `_addmm_activation` has a formula in both tables
    with (
        FlopCounterMode(display=False, custom_mapping=mapping) as outer,
        FlopCounterMode(display=False, custom_mapping=SCANS | PRODUCTS) as inner,
    ):
        step()
    found = inner.get_flop_counts().get("Global", {})
    scan = sum(flops for operator, flops in found.items() if operator in SCANS)
    others = outer.get_flop_counts().get("Global", {})
    elementwise = sum(flops for operator, flops in others.items() if operator in mapping)
    return Flops(sum(found.values()) - scan, scan, elementwise)


@contextmanager
def run_by_modules(model: nn.Module) -> Iterator[None]:
    """Run layers and norms as modules: PyTorch's counter misses the kernels in their place."""
    parts = [part for part in model.modules() if isinstance(part, GPSLayer | BatchNorm)]
    before = [part.backend for part in parts]
    try:
        for part in parts:
            part.backend = "reference"
        yield
    finally:
        for part, backend in zip(parts, before, strict=True):
            part.backend = backend


# Closed formulas: from widths and sizes alone, so that a model need not fit into memory.


def _linear(rows: int, layer: nn.Module) -> Flops:
    """A matrix product; the bias costs nothing, since sums start from it."""
    own = cast(nn.Linear, layer)
    return Flops(products=2 * rows * own.in_features * own.out_features)


def _pointwise(*counts: int) -> Flops:
    return Flops(elementwise=sum(counts))


def _dropped(numbers: int, part: Dropout) -> Flops:
    return _pointwise(DROPOUT * numbers if part.rate and part.training else 0)


def _batch_norm(module: nn.Module) -> int:
    return NORM if module.training else KNOWN_NORM


def forward_flops(model: GraphMamba, size: BatchSize, form: Form = "here") -> Flops:
    """Operations of a forward pass of a model of the efficiency study.

    Training differs from evaluation by dropout, BatchNorm and the number of node orders.
    `count_flops` counts any model.

    Args:
        model: The model.
        size: The batch.
        form: This library or the code of the model's authors.
    """
    backbone, head = model.backbone, cast(Any, model.head)
    if backbone.reverse_edges or backbone.has_jumping_knowledge or len(backbone.virtual_nodes):
        raise UserError("model must be one of the efficiency study; count_flops counts any other")
    encoder, layers = cast(GraphEncoder, backbone.encoder), list(backbone.layers)
    flops = _sequence(encoder.nodes, size.nodes)
    if encoder.edges is not None:
        flops += _part_flops(encoder.edges, size.edges)
    if encoder.gate is not None:
        flops += _part_flops(encoder.gate, size.nodes)
    for layer in layers:
        # nothing uses the edges of the last layer, and only the original code normalises them
        wants_edges = form == "original" or layer is not layers[-1]
        flops += layer_flops(layer, replace(size, wants_edges=wants_edges), form)
    if not isinstance(head, GraphHead):
        return flops + _sequence(head.mlp, size.nodes)
    width = next(part.in_features for part in head.mlp if isinstance(part, nn.Linear))
    channels = width // len(head.reductions)
    # sums and means are divided, by a constant and by the number of nodes
    divided = size.graphs * channels * sum(name != "max" for name in head.reductions)
    return flops + _pointwise(size.nodes * width, divided) + _sequence(head.mlp, size.graphs)


def layer_flops(layer: nn.Module, size: BatchSize, form: Form = "here") -> Flops:
    """Operations of a layer, or of the local or global model in it."""
    return _formula_of(layer, LAYERS)(layer, size, form)


def _formula_of(module: nn.Module, table: dict[type[nn.Module], Any]) -> Any:
    for kind in type(module).__mro__:
        if kind in table:
            return table[kind]
    raise UserError(f"{type(module).__name__} has no formula; count_flops counts any model")


def _sequence(parts: Iterable[nn.Module], rows: int) -> Flops:
    """Modules one after another; `numbers` are the elements after the last linear layer."""
    flops, numbers = Flops(), 0
    for part in parts:
        flops += _part_flops(part, rows, numbers)
        if isinstance(part, nn.Linear):
            numbers = rows * part.out_features
    return flops


def _part_flops(part: nn.Module, rows: int, numbers: int = 0) -> Flops:
    return _formula_of(part, PARTS)(part, rows, numbers)


def _laplacian(part: LaplacianEncoder, rows: int, _: int) -> Flops:
    pairs = rows * part.num_eigenvectors
    signs = pairs if part.training else 0
    mlp = cast(DeepSet, part.set_network).mlp
    return _sequence(mlp, pairs) + _pointwise(signs, pairs * part.channels)


def _pre_layer(part: PreLayer, rows: int, _: int) -> Flops:
    numbers = rows * part.linear.out_features
    return _linear(rows, part.linear) + _pointwise((_batch_norm(part) + 1 + LENGTH) * numbers)


PARTS: dict[type[nn.Module], Callable[[Any, int, int], Flops]] = {
    **dict.fromkeys((nn.Identity, NoNorm, DummyEdges), lambda _, __, ___: Flops()),
    nn.Linear: lambda part, rows, _: _linear(rows, part),
    nn.Sequential: lambda part, rows, _: _sequence(part, rows),
    nn.ReLU: lambda _, __, numbers: _pointwise(numbers),
    Dropout: lambda part, _, numbers: _dropped(numbers, part),
    UnitLength: lambda _, __, numbers: _pointwise(LENGTH * numbers),
    BatchNorm: lambda part, rows, _: _pointwise(_batch_norm(part) * rows * part.num_features),
    Concat: lambda part, rows, _: sum((_part_flops(each, rows) for each in part.parts), Flops()),
    RawColumns: lambda part, rows, _: _part_flops(part.network, rows),
    CategoryEncoder: lambda part, rows, _: Flops(products=2 * rows * part.weight.numel()),
    **dict.fromkeys((NumberEncoder, GateEncoder), lambda part, rows, _: _linear(rows, part.linear)),
    LaplacianEncoder: _laplacian,
    PreLayer: _pre_layer,
}
"""Modules of encoders and heads, by the number of rows and of elements that they get."""


def _gated_gcn_flops(model: GatedGCN, size: BatchSize, _: Form) -> Flops:
    d = model.edges.in_features
    nodes, edges = size.nodes * d, size.edges * d
    # Edges: two sums, sigmoid, product with the message, two sums at the target. Nodes: quotient
    # with epsilon, sum. Both: norm, activation, residual.
    flops = _linear(size.nodes, model.nodes) + _linear(size.edges, model.edges)
    returned = nodes + edges if size.wants_edges else nodes
    flops += _pointwise(6 * edges, 3 * nodes, (_batch_norm(model) + 2) * returned)
    flops += _dropped(returned, model.node_dropout)
    if model.stable_gate is not None:
        flops += _linear(size.edges, model.stable_gate[0])
        flops += _linear(size.edges, model.stable_gate[2])
        # squared distance, ReLU, sigmoid, product with the gate
        flops += _pointwise(3 * edges, edges, size.edges, edges)
    return flops


def _graph_mamba_flops(model: GraphMambaGlobal, size: BatchSize, form: Form) -> Flops:
    samples, block = model.policy.samples(model.training), model.mamba
    norm = NORM * block.in_proj.in_features if isinstance(model.norm, nn.LayerNorm) else 0
    inner, state = block.A_log.shape
    each = conv_position_flops(block.options.width) + scan_position_flops(state)

    def mamba(rows: int, positions: int) -> Flops:
        """Projections in and out once per row, the rest once per position of each order."""
        flops = _pointwise(norm * rows, 2 * inner * state) + Flops(scan=positions * inner * each)
        flops += _linear(rows, block.in_proj) + _linear(rows, block.out_proj)
        return flops + _linear(positions, block.x_proj) + _linear(positions, block.dt_proj)

    if form == "here":
        positions = size.nodes * samples
        averaged = positions * inner if samples > 1 else 0
        return mamba(size.nodes, positions) + _pointwise(averaged)
    # Each order is padded and runs through the whole block. Bins are padded one by one; counted as
    # equally full, the least possible, they have as many positions as the graphs without bins.
    averaged = samples * size.nodes * block.out_proj.out_features if samples > 1 else 0
    return sum([mamba(size.padded, size.padded)] * samples, Flops()) + _pointwise(averaged)


def _attention_flops(model: Attention, size: BatchSize, form: Form) -> Flops:
    """Attention is padded in both forms; the original code projects the padding too."""
    d, scores = model.out_proj.in_features, size.padded * size.longest
    rows = size.nodes if form == "here" else size.padded
    dropout = DROPOUT if model.dropout and model.training else 0
    flops = _linear(rows, model.in_proj) + _linear(rows, model.out_proj)
    return flops + Flops(
        products=4 * scores * d, elementwise=(SCORE + dropout) * scores * model.heads
    )


def _performer_flops(model: Performer, size: BatchSize, form: Form) -> Flops:
    """Attention is padded in both forms; the original code projects the padding too."""
    features, width = model.projection.shape
    mapped, rows = size.nodes if form == "here" else size.padded, size.padded * model.heads
    flops = _linear(mapped, model.in_proj) + _linear(mapped, model.out_proj)
    # features of queries and keys; keys with values, queries with both sums
    flops += Flops(products=2 * rows * features * (4 * width + 1))
    # Scaling, square and its sum, twice, and the quotient; maximum and four more for the
    # exponential of each feature, twice, and the keys' sum.
    flops += _pointwise(7 * rows * width, 11 * rows * features, 2 * rows)
    return flops + _dropped(mapped * model.out_proj.out_features, model.dropout)


def _big_bird_flops(model: BigBird, size: BatchSize, form: Form) -> Flops:
    """Here each graph has its own blocks, and the blocks at its ends attend node by node.

    The original code pads the batch to whole blocks, and all of it runs through the layer.
    """
    d, block = model.out_proj.in_features, model.block
    near = SPARSE_BLOCKS + model.random_blocks
    if form == "here":
        rows, far = size.nodes, size.nodes * 2 * block
        blocks = (size.nodes + (block - 1) * size.graphs) // block
        scores = blocks * block * block * near
    else:
        blocks = max(OUTER_BLOCKS, -(-size.longest // block))
        rows, far = size.graphs * blocks * block, 0
        # the second block and the last but one are next to a global one, which counts once
        listed = (blocks - OUTER_BLOCKS) * near + 2 * (near - 1) + 2 * blocks
        scores = size.graphs * block * block * listed
    flops = Flops(products=4 * scores * d + 2 * far * d)
    for layer in (model.in_proj, model.out_proj, model.first, model.second):
        flops += _linear(rows, layer)
    # scores near and far, far values weighted and summed; norms, residuals, ReLU
    flops += _pointwise(
        SCORE * scores * model.heads, (SOFTMAX + 1) * far * model.heads, 2 * far * d
    )
    flops += _pointwise((2 * NORM + 3) * rows * d)
    return flops + _dropped(2 * rows * d, model.dropout)


def _exphormer_flops(stack: ExphormerStack, size: BatchSize, form: Form) -> Flops:
    """All layers; here expander and virtual edges are mapped once per kind, not one by one."""
    expanders = size.expanders if stack.has_expander else 0
    others = expanders + 2 * stack.virtual_nodes * size.nodes
    edge_rows = size.edges + (others if form == "original" else stack.kinds.shape[0])
    rows, pairs, flops = (
        size.nodes + stack.virtual_nodes * size.graphs,
        size.edges + others,
        Flops(),
    )
    for module in stack.layers:
        layer = cast(GPSLayer, module)
        attends = cast(ExphormerAttention, layer.global_model)
        d, heads = attends.edges.in_features, attends.heads
        flops += _linear(rows, attends.nodes) + _linear(edge_rows, attends.edges)
        # Two products and a sum for the score, weighting and summing the values; scaling, clamp,
        # exponential and sum of the weights; the quotient.
        flops += _pointwise(5 * pairs * d, 4 * pairs * heads, rows * (d + heads))
        wants_edges = size.wants_edges or module is not stack.layers[-1]
        flops += _gps_rest(layer, replace(size, wants_edges=wants_edges))
    return flops


def _gps_flops(layer: GPSLayer, size: BatchSize, form: Form) -> Flops:
    mixed = Flops() if layer.global_model is None else layer_flops(layer.global_model, size, form)
    return mixed + _gps_rest(layer, size)


def _gps_rest(layer: GPSLayer, size: BatchSize) -> Flops:
    """A layer without its global model."""
    rows = size.nodes * layer.fc1.in_features
    flops = _linear(size.nodes, layer.fc1) + _linear(size.nodes, layer.fc2)
    # the activation of twice as many channels, and the residual
    flops += _pointwise(3 * rows) + _norm(layer.norm, rows) + _dropped(3 * rows, layer.wide_dropout)
    if layer.local_model is not None:
        flops += layer_flops(layer.local_model, size) + _norm(layer.norm_local, rows)
        if not layer.local_model.has_residual:
            flops += _pointwise(rows) + _dropped(rows, layer.local_dropout)
    if layer.global_model is not None:
        flops += _pointwise(rows) + _norm(layer.norm_global, rows)
        flops += _dropped(rows, layer.global_dropout)
    has_both = layer.local_model is not None and layer.global_model is not None
    return flops + _pointwise(rows if has_both else 0)


def _norm(norm: NodeNorm | None, numbers: int) -> Flops:
    if norm is None or isinstance(norm.norm, nn.Identity):
        return Flops()
    cost = _batch_norm(norm) if isinstance(norm.norm, nn.BatchNorm1d) else NORM
    return _pointwise(cost * numbers)


LAYERS: dict[type[nn.Module], Callable[[Any, BatchSize, Form], Flops]] = {
    GatedGCN: _gated_gcn_flops,
    GraphMambaGlobal: _graph_mamba_flops,
    Attention: _attention_flops,
    Performer: _performer_flops,
    BigBird: _big_bird_flops,
    ExphormerStack: _exphormer_flops,
    GPSLayer: _gps_flops,
}
