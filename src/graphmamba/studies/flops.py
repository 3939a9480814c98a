"""Floating-point operations of a model: by closed formula, and counted while it runs.

A multiply-add counts as two. Products are counted by `torch.utils.flop_counter`; that counter knows
neither our operators nor element-wise work, for which it gets the formulas of this file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.data import Data

import graphmamba.ops  # noqa: F401 - defines the operators that the tables name
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
from graphmamba.nn.graph_mamba import GraphMambaGlobal, MambaBlock, SelectivePath
from graphmamba.nn.heads import GraphHead, UnitLength
from graphmamba.nn.model import GraphMamba
from graphmamba.nn.norm import BatchNorm, Dropout, NodeNorm, NoNorm
from graphmamba.nn.performer import Performer

aten, ours = torch.ops.aten, torch.ops.graphmamba

Form = Literal["here", "original"]
"""`here`: what runs in this library. `original`: what the code of each model's authors does for the
same numbers. It lays a batch out as if every graph were as large as the largest one before anything
is mapped, so that linear maps, convolution and scan run over padding as well, and it maps equal
edges one by one. A node or an edge costs the same in both."""

NORM = 7
"""Mean, variance, scaling and affine map, for each number."""
KNOWN_NORM = 4
"""The same with mean and variance known, as BatchNorm has them at evaluation."""
SOFTMAX = 5
"""Maximum, difference, exponential, sum, quotient, for each score."""
SCORE = SOFTMAX + 2
"""Scaling and mask before the softmax."""
LENGTH = 3
"""L2 normalisation: squares and their sum, and the quotient, for each number."""
DROPOUT = 1
"""The product with the scaled mask."""
STATE = 9
"""One position of the scan, for each state of each channel: the figure that Mamba's authors use.
Term by term it is seven, three for exp(delta A) h, two for B, two for C; the rest stands for the
softplus and the step sizes."""
SPARSE_BLOCKS = 5
"""Blocks that one of BigBird's attends to beside the random ones: both ends, itself, both sides."""
OUTER_BLOCKS = 4
"""Blocks of BigBird with rules of their own, two at each end; the original code breaks where fewer
are."""


@dataclass(frozen=True)
class Flops:
    """Operations by kind; adding two adds each kind."""

    products: int = 0
    """Matrix products, attention's included."""
    scan: int = 0
    """The selective scan and its short convolution."""
    elementwise: int = 0
    """Everything else: one for each number that a pointwise function returns or a sum takes in.
    Copies, gathers, sorting and integers cost nothing."""

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(
            self.products + other.products,
            self.scan + other.scan,
            self.elementwise + other.elementwise,
        )

    @property
    def total(self) -> int:
        """All kinds together."""
        return self.products + self.scan + self.elementwise


@dataclass(frozen=True)
class BatchSize:
    """The numbers of a batch that its work depends on."""

    graphs: int
    nodes: int
    edges: int
    """Directed."""
    longest: int
    """Nodes of the largest graph, which padded forms lay every graph out to."""
    expanders: int = 0
    """Expander edges, where Exphormer asks for them."""
    wants_edges: bool = True
    """Whether anybody reads the edges that a layer returns."""

    @classmethod
    def of(cls, graphs: Data) -> "BatchSize":
        """Read the sizes of a batch."""
        topology = topology_of(graphs)
        nodes = topology.batch.bincount(minlength=topology.num_graphs)
        expanders = topology.columns.get("expander_index")
        return cls(
            graphs=topology.num_graphs,
            nodes=topology.batch.shape[0],
            edges=topology.edge_index.shape[1],
            # a padded form has one position at least
            longest=max(1, int(nodes.max())) if topology.num_graphs else 1,
            expanders=0 if expanders is None else expanders.shape[1],
        )

    @property
    def slots(self) -> int:
        """Positions of the padded batch."""
        return self.graphs * self.longest


# Counting: what one call of an operator costs, by its arguments (their shapes, for products and the
# scan, as torch's counter hands them over).

Formula = Callable[..., int]


def scan_position_flops(state: int, has_skip: bool = True, has_gate: bool = True) -> int:
    """One position of one channel: the skip is a multiply-add, the gate SiLU and a product."""
    return STATE * state + 2 * has_skip + 2 * has_gate


def conv_position_flops(width: int) -> int:
    """One position of one channel: a multiply-add for each tap, and the SiLU."""
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
PRODUCTS: dict[Any, Formula] = {
    # left out by torch's counter
    aten._addmm_activation: lambda _, x, matrix, **__: 2 * x[0] * x[1] * matrix[1],
    aten._scaled_dot_product_flash_attention_for_cpu: lambda query, key, value, *_, **__: (
        2 * prod(query[:3]) * key[-2] * (query[-1] + value[-1])
    ),
}


def _taken_in(cost: int = 1, place: int = 0) -> Formula:
    """Cost of each number of an argument."""
    return lambda *call: cost * call[place].numel()


def _gated_sum(nodes: Tensor, edges: Tensor, scale: Tensor | None, *_: Any) -> int:
    """Four maps of the nodes side by side; the terms are those of `_gated_gcn_flops`."""
    return (6 + (scale is not None)) * edges.numel() + 3 * nodes.numel() // 4


def _attend(nodes: Tensor, features: Tensor, edge_index: Tensor, *rest: Any) -> int:
    """Three maps of the nodes side by side; the terms are those of `_exphormer_flops`."""
    channels, heads = features.shape[1], rest[-1]
    return edge_index.shape[1] * (5 * channels + 4 * heads) + nodes.shape[0] * (channels + heads)


OWN_ELEMENTWISE: dict[str, Formula] = {
    "gated_sum_cpu": _gated_sum,
    "gated_sum_triton": _gated_sum,
    "attend_triton": _attend,
    "segment_max_triton": _taken_in(),
    "segment_sum_triton": _taken_in(),
    "segment_take_triton": _taken_in(cost=0),
    "neighbor_sum": lambda rows, others, *_: others.shape[0] * rows.shape[1],
}
"""Our own operators whose work is element-wise, by name."""
ELEMENTWISE: dict[Any, Formula] = {
    **dict.fromkeys((aten.sum, aten.mean, aten.amax, aten.amin, aten.cumsum), _taken_in()),
    **dict.fromkeys((aten.linalg_vector_norm, aten.var), _taken_in(2)),
    **dict.fromkeys(
        (aten.index_add, aten.index_add_, aten.scatter_reduce, aten.scatter_add), _taken_in(place=3)
    ),
    aten._embedding_bag: _taken_in(place=1),
    **dict.fromkeys(
        (
            aten.native_batch_norm,
            aten._native_batch_norm_legit,
            aten._batch_norm_with_update,
            aten.cudnn_batch_norm,
            aten.native_layer_norm,
        ),
        _taken_in(NORM),
    ),
    aten._native_batch_norm_legit_no_training: _taken_in(KNOWN_NORM),
    aten._softmax: _taken_in(SOFTMAX),
    aten._safe_softmax: _taken_in(SOFTMAX),
    aten.native_dropout: _taken_in(DROPOUT),
    # the ReLU behind a product
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
"""PyTorch's operators whose work is not one operation for each number that they return."""
FREE = {aten.clone, aten.masked_fill, aten.where, aten.nan_to_num}
"""Pointwise by name, but they only choose and copy."""


def _of_tensors(formula: Formula | None, name: str = "") -> Formula:
    """Make a formula that takes the tensors of a call, for calls that return floats.

    Args:
        formula: None counts the numbers that are returned.
        name: Of an operator without a formula, which is rejected.
    """

    def count(*call: Any, out_val: Any, **_: Any) -> int:
        if name:
            raise NotImplementedError(f"{name} has no formula: only forward passes are counted")
        first = out_val[0] if isinstance(out_val, tuple | list) and out_val else out_val
        if not isinstance(first, Tensor) or not first.is_floating_point():
            return 0
        return first.numel() if formula is None else formula(*call)

    cast(Any, count)._get_raw = True  # read by torch's counter
    return count


@cache
def _elementwise_formulas() -> dict[Any, Formula]:
    """Formulas of all element-wise operators; one of ours that has no formula at all raises."""
    found: dict[Any, Formula] = {}
    # PyTorch lists its operators under no public name.
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
    """Run a forward pass and count what its operators do."""
    mapping = _elementwise_formulas()
    # one inside of the other, since a product with its ReLU has a formula in both
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


# Closed formulas: from widths and sizes alone, so that they are known where a step does not fit.


def _linear(rows: int, layer: nn.Module) -> Flops:
    """A product; its bias is the value that the sum starts from."""
    own = cast(nn.Linear, layer)
    return Flops(products=2 * rows * own.in_features * own.out_features)


def _pointwise(*counts: int) -> Flops:
    """Numbers that pointwise functions return, or sums take in."""
    return Flops(elementwise=sum(counts))


def _dropped(numbers: int, part: Dropout) -> Flops:
    """Dropout, which at evaluation or at rate 0 does nothing."""
    return _pointwise(DROPOUT * numbers if part.rate and part.training else 0)


def _batch_norm(module: nn.Module) -> int:
    """Cost of a BatchNorm for each number; at evaluation its statistics are known."""
    return NORM if module.training else KNOWN_NORM


def forward_flops(model: GraphMamba, size: BatchSize, form: Form = "here") -> Flops:
    """Operations of one forward pass of a model of the efficiency study on a batch of that size.

    In training mode and at evaluation they differ: by dropout, and by the orders averaged over.
    `count_flops` counts any model.

    Args:
        model: The model.
        size: The batch.
        form: Whose code runs it: ours, or that of its authors.
    """
    backbone, head = model.backbone, cast(Any, model.head)
    uncounted = backbone.reverse_edges, backbone.has_jumping_knowledge, len(backbone.virtual_nodes)
    if any(uncounted):
        raise UserError("model must be one of the efficiency study; count_flops counts any other")
    encoder, layers = cast(GraphEncoder, backbone.encoder), list(backbone.layers)
    flops = _in_turn(encoder.nodes, size.nodes)
    if encoder.edges is not None:
        flops += _part_flops(encoder.edges, size.edges)
    if encoder.gate is not None:
        flops += _part_flops(encoder.gate, size.nodes)
    for layer in layers:
        # Edges of the last layer are read by nobody, and normalised in the original code alone.
        is_finished = form == "original" or layer is not layers[-1]
        flops += layer_flops(layer, replace(size, wants_edges=is_finished), form)
    if not isinstance(head, GraphHead):
        return flops + _in_turn(head.mlp, size.nodes)
    width = next(part.in_features for part in head.mlp if isinstance(part, nn.Linear))
    # Sums and means are divided, by a number and by the nodes.
    channels = width // len(head.reductions)
    divided = size.graphs * channels * sum(name != "max" for name in head.reductions)
    return flops + _pointwise(size.nodes * width, divided) + _in_turn(head.mlp, size.graphs)


def layer_flops(layer: nn.Module, size: BatchSize, form: Form = "here") -> Flops:
    """Operations of one layer of a stack, or of one part of a layer."""
    found: Flops = _formula_of(layer, LAYERS)(layer, size, form)
    return found


def _formula_of(module: nn.Module, table: dict[type[nn.Module], Any]) -> Any:
    for kind in type(module).__mro__:
        if kind in table:
            return table[kind]
    raise UserError(f"{type(module).__name__} has no formula; count_flops counts any model")


def _in_turn(parts: Iterable[nn.Module], rows: int) -> Flops:
    """Parts one after another, whose numbers each are those of the linear layer before it."""
    flops, numbers = Flops(), 0
    for part in parts:
        flops += _part_flops(part, rows, numbers)
        if isinstance(part, nn.Linear):
            numbers = rows * part.out_features
    return flops


def _part_flops(part: nn.Module, rows: int, numbers: int = 0) -> Flops:
    found: Flops = _formula_of(part, PARTS)(part, rows, numbers)
    return found


def _laplacian(part: LaplacianEncoder, rows: int, _: int) -> Flops:
    pairs = rows * part.num_eigenvectors
    signs = _pointwise(pairs if part.training else 0)
    mlp = cast(DeepSet, part.set_network).mlp
    return signs + _in_turn(mlp, pairs) + _pointwise(pairs * part.channels)


def _pre_layer(part: PreLayer, rows: int, _: int) -> Flops:
    numbers = rows * part.linear.out_features
    return _linear(rows, part.linear) + _pointwise((_batch_norm(part) + 1 + LENGTH) * numbers)


PARTS: dict[type[nn.Module], Callable[[Any, int, int], Flops]] = {
    nn.Identity: lambda _, __, ___: Flops(),
    NoNorm: lambda _, __, ___: Flops(),
    DummyEdges: lambda _, __, ___: Flops(),
    nn.Linear: lambda part, rows, _: _linear(rows, part),
    nn.Sequential: lambda part, rows, _: _in_turn(part, rows),
    nn.ReLU: lambda _, __, numbers: _pointwise(numbers),
    Dropout: lambda part, _, numbers: _dropped(numbers, part),
    UnitLength: lambda _, __, numbers: _pointwise(LENGTH * numbers),
    BatchNorm: lambda part, rows, _: _pointwise(_batch_norm(part) * rows * part.num_features),
    Concat: lambda part, rows, _: sum((_part_flops(each, rows) for each in part.parts), Flops()),
    RawColumns: lambda part, rows, _: _part_flops(part.network, rows),
    CategoryEncoder: lambda part, rows, _: Flops(products=2 * rows * part.weight.numel()),
    NumberEncoder: lambda part, rows, _: _linear(rows, part.linear),
    LaplacianEncoder: _laplacian,
    GateEncoder: lambda part, rows, _: _linear(rows, part.linear),
    PreLayer: _pre_layer,
}
"""What a part of an encoder or a head costs for so many rows, and numbers that come in."""


def _gated_gcn_flops(local_model: GatedGCN, size: BatchSize, _: Form) -> Flops:
    d = local_model.edges.in_features
    nodes, edges = size.nodes * d, size.edges * d
    # Edges: two sums, sigmoid, product with what is sent, two sums at the target. Nodes: quotient
    # with epsilon, sum. Both: norm, activation, residual.
    flops = _linear(size.nodes, local_model.nodes) + _linear(size.edges, local_model.edges)
    follow = nodes + edges if size.wants_edges else nodes
    flops += _pointwise(6 * edges, 3 * nodes, (_batch_norm(local_model) + 2) * follow)
    flops += _dropped(follow, local_model.node_dropout)
    if local_model.stable_gate is not None:
        first, last = local_model.stable_gate[0], local_model.stable_gate[2]
        flops += _linear(size.edges, first) + _linear(size.edges, last)
        # Squared distance, ReLU, sigmoid, product with the gate.
        flops += _pointwise(3 * edges, edges, size.edges, edges)
    return flops


def _selective_path(path: SelectivePath, positions: int) -> Flops:
    inner, state = path.A_log.shape
    each = conv_position_flops(path.options.width) + scan_position_flops(state)
    flops = _linear(positions, path.x_proj) + _linear(positions, path.dt_proj)
    return flops + Flops(scan=positions * inner * each) + _pointwise(2 * inner * state)


def _mamba_flops(block: MambaBlock, nodes: int, samples: int = 1) -> Flops:
    """Both projections once for each node, what is between them once for each order."""
    positions, inner = nodes * samples, block.D.shape[0]
    flops = _linear(nodes, block.in_proj) + _selective_path(block, positions)
    average = _pointwise(positions * inner if samples > 1 else 0)
    return flops + average + _linear(nodes, block.out_proj)


def _graph_mamba_flops(global_model: GraphMambaGlobal, size: BatchSize, form: Form) -> Flops:
    samples, block = global_model.policy.samples(global_model.training), global_model.mamba
    norm = NORM * block.in_proj.in_features if isinstance(global_model.norm, nn.LayerNorm) else 0
    if form == "here":
        return _pointwise(norm * size.nodes) + _mamba_flops(block, size.nodes, samples)
    # Every order is padded and goes through the whole block; the average is over nodes. Bins are
    # padded one by one. They are drawn at random; taken here as equally full, they have as many
    # positions as the graphs without bins, which is the least that they can have.
    once = _pointwise(norm * size.slots) + _mamba_flops(block, size.slots)
    average = samples * size.nodes * block.out_proj.out_features
    return sum([once] * samples, Flops()) + _pointwise(average if samples > 1 else 0)


def _attention_flops(global_model: Attention, size: BatchSize, form: Form) -> Flops:
    """Nodes attend in the padded batch; the original code projects its padding too."""
    d, scores = global_model.out_proj.in_features, size.slots * size.longest
    rows = size.nodes if form == "here" else size.slots
    flops = _linear(rows, global_model.in_proj) + _linear(rows, global_model.out_proj)
    flops += Flops(products=4 * scores * d) + _pointwise(SCORE * scores * global_model.heads)
    is_dropping = global_model.dropout and global_model.training
    return flops + _pointwise(DROPOUT * scores * global_model.heads if is_dropping else 0)


def _performer_flops(global_model: Performer, size: BatchSize, form: Form) -> Flops:
    """Nodes meet in the padded batch; the original code projects its padding too."""
    features, width = global_model.projection.shape
    mapped, rows = size.nodes if form == "here" else size.slots, size.slots * global_model.heads
    flops = _linear(mapped, global_model.in_proj) + _linear(mapped, global_model.out_proj)
    # Features of queries and keys; keys with values, queries with both sums.
    flops += Flops(products=2 * rows * features * (4 * width + 1))
    # Scaling, square and its sum, twice, and the quotient; maximum and four more for the
    # exponential of each feature, twice, and the keys' sum.
    flops += _pointwise(7 * rows * width, 11 * rows * features, 2 * rows)
    return flops + _dropped(mapped * global_model.out_proj.out_features, global_model.dropout)


def _big_bird_flops(global_model: BigBird, size: BatchSize, form: Form) -> Flops:
    """Here every graph has blocks of its own, and those at its ends attend node by node.

    In the original code the padded batch is filled up to whole blocks, and all of it goes through
    the layer.
    """
    d, block = global_model.out_proj.in_features, global_model.block
    near = SPARSE_BLOCKS + global_model.random_blocks
    if form == "here":
        rows, far = size.nodes, size.nodes * 2 * block
        blocks = (size.nodes + (block - 1) * size.graphs) // block
        scores = blocks * block * block * near
    else:
        blocks = max(OUTER_BLOCKS, -(-size.longest // block))
        rows, far = size.graphs * blocks * block, 0
        # The second block and the last but one have a global one beside them, which counts once.
        listed = (blocks - OUTER_BLOCKS) * near + 2 * (near - 1) + 2 * blocks
        scores = size.graphs * block * block * listed
    flops = Flops(products=4 * scores * d + 2 * far * d)
    for name in ("in_proj", "out_proj", "first", "second"):
        flops += _linear(rows, getattr(global_model, name))
    # Scores near and far, values of the far ones weighed and summed; norms, residuals, ReLU.
    flops += _pointwise(
        SCORE * scores * global_model.heads, (SOFTMAX + 1) * far * global_model.heads, 2 * far * d
    )
    flops += _pointwise((2 * NORM + 3) * rows * d)
    return flops + _dropped(2 * rows * d, global_model.dropout)


def _exphormer_flops(stack: ExphormerStack, size: BatchSize, form: Form) -> Flops:
    """All layers; the original maps every edge that is not real, here one stands for each kind."""
    expanders = size.expanders if stack.has_expander else 0
    others = expanders + 2 * stack.virtual_nodes * size.nodes
    edge_rows = size.edges + (others if form == "original" else stack.kinds.shape[0])
    rows, flops = size.nodes + stack.virtual_nodes * size.graphs, Flops()
    for module in stack.layers:
        layer = cast(GPSLayer, module)
        attends, pairs = cast(ExphormerAttention, layer.global_model), size.edges + others
        d, heads = attends.edges.in_features, attends.heads
        flops += _linear(rows, attends.nodes) + _linear(edge_rows, attends.edges)
        # Two products and a sum for the score, weighing and summing the values; scaling, clamp,
        # exponential and sum of the weights; the quotient.
        flops += _pointwise(5 * pairs * d, 4 * pairs * heads, rows * (d + heads))
        is_read = size.wants_edges or module is not stack.layers[-1]
        flops += _combine(layer, replace(size, wants_edges=is_read))
    return flops


def _gps_flops(layer: GPSLayer, size: BatchSize, form: Form) -> Flops:
    mixed = Flops() if layer.global_model is None else layer_flops(layer.global_model, size, form)
    return mixed + _combine(layer, size)


def _combine(layer: GPSLayer, size: BatchSize) -> Flops:
    """All of a layer but the global model."""
    rows = size.nodes * layer.fc1.in_features
    flops = _linear(size.nodes, layer.fc1) + _linear(size.nodes, layer.fc2)
    # The activation of twice as many channels, and the residual of the feed-forward network.
    flops += _pointwise(3 * rows) + _norm(layer.norm, rows)
    flops += _dropped(3 * rows, layer.wide_dropout)
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
"""What a layer or a part of it costs."""
