"""What one call of an operator costs, read from its arguments: the tables behind `count_flops`.

An operator of ours whose work is a recurrence or a product gets a line in `SCAN_OPERATORS` or
`PRODUCTS`; one whose work is pointwise, such as a fused norm, gets a line in `OWN_ELEMENTWISE`.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Defines the operators of ours that the tables below name.
import graphmamba.encode.deep_set
import graphmamba.scan
import graphmamba.stack.selection  # noqa: F401

aten, ours = torch.ops.aten, torch.ops.graphmamba
Formula = Callable[..., int]

FLOPS_OF_A_STATE = 9
"""A step of the scan costs this much for each state of each channel, the figure that Mamba's
authors use. Term by term it is seven, three for exp(delta A) h, two for B, two for C; the rest
stands for the softplus and the step sizes."""
NORM = 7
"""Mean, variance, scaling and affine map, for each number."""
KNOWN_NORM = 4
"""The same with mean and variance known, as BatchNorm has them at evaluation."""
SOFTMAX = 5
"""Maximum, difference, exponential, sum, quotient, for each score."""
SCORE = SOFTMAX + 2
"""Scaling and mask before the softmax."""
LENGTH = 3
"""Scaling a row to length 1: its squares and their sum, and the quotient, for each number."""
ENTROPY = 5
"""Exponential, sum and logarithm, and product and difference with the label, for each logit."""
SLOPE = 2
"""The difference and the factor of a loss's gradient, which is found with the loss."""
DROPOUT = 1
"""The product with the scaled mask."""
BACKWARD = 2
"""A product, and about as well a norm or a softmax, has two gradients of its own size."""
SCAN_BACKWARD = 3
"""The recurrence once more, then its two gradients."""


def scan_step_flops(state: int, has_skip: bool = True, has_gate: bool = True) -> int:
    """Cost of one step of one channel: the skip is a multiply-add, the gate SiLU and a product."""
    return FLOPS_OF_A_STATE * state + 2 * has_skip + 2 * has_gate


def conv_step_flops(width: int) -> int:
    """Cost of one step of one channel: a multiply-add for each tap, and the SiLU."""
    return 2 * width + 1


def _scan(*call: Any, **_: Any) -> int:
    """From the shapes of u, delta, A, B, C, D, z and what follows."""
    (steps, inner), state = call[0], call[2][1]
    return steps * inner * scan_step_flops(state, call[5] is not None, call[6] is not None)


def _scan_backward(_grad: Any, _kept: Any, *call: Any, **_: Any) -> int:
    return SCAN_BACKWARD * _scan(*call)


def _conv(*call: Any, **_: Any) -> int:
    """From the shapes of x, weight, bias, cu_seqlens, order: there are as many steps as in it."""
    (rows, inner), width = call[0], call[1][1]
    steps = rows if call[4] is None else call[4][0]
    return steps * inner * conv_step_flops(width)


def _conv_backward(_grad: Any, _kept: Any, *call: Any, **_: Any) -> int:
    return SCAN_BACKWARD * _conv(*call)


def _written_into(formula: Formula) -> Formula:
    """That of an operator which is told first where one of its results goes."""
    return lambda _into, *call, **_: formula(*call)


SCAN_OPERATORS: dict[Any, Formula] = {
    ours.selective_scan_cpu: _scan,
    ours.selective_scan_fused: _scan,
    ours.selective_scan_cpu_backward: _scan_backward,
    ours.selective_scan_fused_backward: _scan_backward,
    ours.selective_scan_fused_backward_into: _written_into(_scan_backward),
    ours.causal_conv1d_cpu: _conv,
    ours.causal_conv1d_fused: _conv,
    ours.causal_conv1d_cpu_backward: _conv_backward,
    ours.causal_conv1d_fused_backward: _conv_backward,
    ours.causal_conv1d_fused_backward_into: _written_into(_conv_backward),
}


def _map_rows(x: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * x[0] * x[1] * weight[0]


def _weight_grad(grad: Any, x: Any, *_: Any, **__: Any) -> int:
    return 2 * grad[0] * grad[1] * x[1]


def _rows_grad(grad: Any, weight: Any, *_: Any, **__: Any) -> int:
    return 2 * grad[0] * weight[0] * weight[1]


def _selection(u: Any, select: Any, step: Any, **_: Any) -> int:
    """From the shapes of the rows, of the weight of s, B and C, and of the weight of the steps."""
    return 2 * u[0] * u[1] * (select[0] + step[1])


def _selection_backward(*call: Any, **_: Any) -> int:
    return BACKWARD * _selection(call[4], *call[6:8])


def _raw_steps(out: Any, _select: Any, step: Any, **_: Any) -> int:
    return 2 * out[0] * step[0] * step[1]


def _deep_set(vectors: Any, _values: Any, _signs: Any, *maps: Any, **_: Any) -> int:
    """From the shapes of entries and of weight and bias of both maps."""
    (hidden, pair), channels = maps[0], maps[2][0]
    return 2 * vectors[0] * vectors[1] * hidden * (pair + channels)


def _deep_set_backward(_grad: Any, vectors: Any, *others: Any, **_: Any) -> int:
    """Those of both weights, and of the hidden rows."""
    (hidden, pair), channels = others[2], others[4][0]
    return 2 * vectors[0] * vectors[1] * hidden * (pair + BACKWARD * channels)


PRODUCTS: dict[Any, Formula] = {
    ours.deep_set_fused: _deep_set,
    ours.deep_set_fused_backward: _deep_set_backward,
    ours.narrow_linear_fused: _map_rows,
    ours.map_rows_fused: _map_rows,
    ours.rows_grad_fused: _rows_grad,
    ours.rows_grad_summed_fused: _rows_grad,
    ours.relu_grad_fused: _rows_grad,
    ours.weight_grad_fused: _weight_grad,
    ours.selection_fused: _selection,
    ours.selection_fused_backward: _selection_backward,
    ours.raw_steps_fused: _raw_steps,
}


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    graphs, heads, asking, width = query
    return 2 * graphs * heads * asking * key[-2] * (width + value[-1])


def _attention_backward(_grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    # Scores are computed anew, then two gradients of each product.
    graphs, heads, asking, width = query
    return 2 * graphs * heads * asking * key[-2] * (3 * width + 2 * value[-1])


def _product_and_relu(_bias: Any, rows: Any, matrix: Any, **_: Any) -> int:
    return 2 * rows[0] * rows[1] * matrix[1]


def product_formulas() -> dict[Any, Formula]:
    """Formulas for torch's counter: our operators, and attention on a CPU, which it leaves out."""
    return {
        **SCAN_OPERATORS,
        **PRODUCTS,
        aten._addmm_activation: _product_and_relu,
        aten._scaled_dot_product_flash_attention_for_cpu: _attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    }


def _taken_in(cost: int = 1, place: int = 0) -> Formula:
    """Cost of each number of an argument."""
    return lambda *call: cost * call[place].numel()


def _scores(cost: int, place: int = 0) -> Formula:
    """Cost of each score of a fused attention, whose query and key are two of the arguments."""
    return lambda *call: cost * prod(call[place].shape[:3]) * call[place + 1].shape[-2]


ELEMENTWISE: dict[Any, Formula] = {
    **dict.fromkeys((aten.sum, aten.mean, aten.amax, aten.amin, aten.cumsum), _taken_in()),
    **dict.fromkeys((aten.linalg_vector_norm, aten.var), _taken_in(2)),
    aten.index_add: _taken_in(place=3),
    aten.index_add_: _taken_in(place=3),
    aten.scatter_reduce: _taken_in(place=3),
    aten.scatter_add: _taken_in(place=3),
    aten.embedding_dense_backward: _taken_in(),
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
    **dict.fromkeys(
        (
            aten.native_batch_norm_backward,
            aten.batch_norm_backward,
            aten.cudnn_batch_norm_backward,
            aten.native_layer_norm_backward,
        ),
        _taken_in(BACKWARD * NORM),
    ),
    aten._softmax: _taken_in(SOFTMAX),
    aten._safe_softmax: _taken_in(SOFTMAX),
    aten._softmax_backward_data: _taken_in(SOFTMAX),
    aten.native_dropout: _taken_in(DROPOUT),
    # The ReLU behind a product; the product is not counted here.
    aten._addmm_activation: lambda _, rows, matrix: rows.shape[0] * matrix.shape[1],
    **dict.fromkeys(
        (
            aten._scaled_dot_product_flash_attention_for_cpu,
            aten._scaled_dot_product_efficient_attention,
            aten._scaled_dot_product_flash_attention,
            aten._scaled_dot_product_cudnn_attention,
        ),
        _scores(SCORE),
    ),
    **dict.fromkeys(
        (
            aten._scaled_dot_product_flash_attention_for_cpu_backward,
            aten._scaled_dot_product_efficient_attention_backward,
            aten._scaled_dot_product_flash_attention_backward,
            aten._scaled_dot_product_cudnn_attention_backward,
        ),
        _scores(BACKWARD * SCORE, place=1),
    ),
}
"""Operators whose work is not one operation for each number they return."""


def _gated_sum(nodes: Tensor, edges: Tensor, scale: Tensor | None, *_: Any) -> int:
    """Four maps of the node rows side by side; the terms are those of `stack_flops`."""
    return (6 + (scale is not None)) * edges.numel() + 3 * nodes.numel() // 4


def _gated_sum_backward(*call: Any) -> int:
    """From both gradients, e_hat, what was kept, one of the four maps and scale."""
    e_hat, sent, scale = call[2], call[4], call[5]
    return BACKWARD * _gated_sum(sent.expand(4, -1, -1), e_hat, scale)


def _attend(nodes: Tensor, features: Tensor, edge_index: Tensor, *rest: Any) -> int:
    """Three maps of the node rows side by side; the terms are those of `stack_flops`."""
    rows, channels, heads = nodes.shape[0], features.shape[1], rest[-1]
    return edge_index.shape[1] * (5 * channels + 4 * heads) + rows * (channels + heads)


def _attend_backward(*call: Any) -> int:
    """From the gradient, three that were kept, and what `_attend` takes."""
    return BACKWARD * _attend(*call[4:])


def _batch_norm_act(*call: Any) -> int:
    """From x, weight, bias, before, after, three places, three statistics and the settings."""
    activation, rates, _, is_training = call[11:15]
    parts = [call[3] is not None, call[4] is not None, activation != "none", *map(bool, rates)]
    return call[0].numel() * ((NORM if is_training else KNOWN_NORM) + sum(parts))


def _batch_norm_act_backward(_grad: Any, _kept: Any, *call: Any) -> int:
    """From x, weight, bias, before, three places and the settings."""
    statistics = (None, None, None)
    return BACKWARD * _batch_norm_act(*call[:4], None, *call[4:7], *statistics, *call[7:])


def _edge_norm_sums(*call: Any) -> int:
    """Half of a norm's gradients: the sums of two channels, masks made anew."""
    settings = call[7], [0.0, call[8]], None, True
    return _batch_norm_act_backward(None, None, call[2], *[None] * 6, *settings) // 2


def _edge_update_backward(*call: Any) -> int:
    """From what `_gated_sum_backward` takes, the layout, seven of the norm and the settings."""
    settings = call[18], [0.0, call[19]], None, True
    norm = _batch_norm_act_backward(None, None, call[2], *[None] * 6, *settings)
    return _gated_sum_backward(*call) + norm - norm // 2


def _batch_norm_pair(*call: Any) -> int:
    """From a, b, before, twelve more tensors, rate, site and whether it trains."""
    each = NORM if call[17] else KNOWN_NORM
    return call[0].numel() * (2 * each + 1 + (call[2] is not None) + (call[15] > 0))


def _batch_norm_pair_backward(_grad: Any, _kept: Any, *call: Any) -> int:
    """From a, b, before, two weights, two places, rate, site and whether it trains."""
    norms = _batch_norm_pair(*call[:3], *[None] * 12, *call[7:])
    # Nothing is left to do for the sum of both.
    return BACKWARD * (norms - call[0].numel())


def _activate_drop(x: Tensor, grad: Tensor | None, _seed: Any, *settings: Any) -> int:
    activation, rate = settings[:2]
    return x.numel() * ((activation != "none") + (rate > 0) + (grad is not None))


def _unit_rows(x: Tensor, has_relu: bool) -> int:
    return (LENGTH + has_relu) * x.numel()


def _entry_loss(prediction: Tensor, _target: Any, is_l1: bool) -> int:
    return ((2 if is_l1 else ENTROPY) + SLOPE) * prediction.numel()


def _add_up(rows: Sequence[Tensor]) -> int:
    return (len(rows) - 1) * rows[0].numel()


OWN_ELEMENTWISE: dict[str, Formula] = {
    "graphmamba::add_up_fused": _add_up,
    "graphmamba::gated_sum_cpu": _gated_sum,
    "graphmamba::gated_sum_fused": _gated_sum,
    "graphmamba::gated_sum_cpu_backward": _gated_sum_backward,
    "graphmamba::gated_sum_fused_backward": _gated_sum_backward,
    "graphmamba::attend_fused": _attend,
    "graphmamba::attend_fused_backward": _attend_backward,
    "graphmamba::edge_norm_sums_fused": _edge_norm_sums,
    "graphmamba::edge_update_fused_backward": _edge_update_backward,
    "graphmamba::segment_max_fused": _taken_in(),
    "graphmamba::segment_max_fused_backward": _taken_in(place=1),
    "graphmamba::segment_sum_fused": _taken_in(),
    "graphmamba::column_sums_fused": _taken_in(),
    "graphmamba::unit_rows_fused": _unit_rows,
    "graphmamba::unit_rows_fused_backward": _taken_in(BACKWARD * LENGTH),
    "graphmamba::class_loss_fused": _taken_in(SOFTMAX + SLOPE),
    "graphmamba::two_class_loss_fused": _taken_in(ENTROPY + SLOPE),
    "graphmamba::entry_loss_fused": _entry_loss,
    "graphmamba::activate_drop_fused": _activate_drop,
    "graphmamba::batch_norm_act_fused": _batch_norm_act,
    "graphmamba::batch_norm_act_fused_backward": _batch_norm_act_backward,
    "graphmamba::batch_norm_pair_fused": _batch_norm_pair,
    "graphmamba::batch_norm_pair_fused_backward": _batch_norm_pair_backward,
}
"""Our own operators of that kind, by name."""

FREE = {aten.clone, aten.masked_fill, aten.where, aten.nan_to_num}
"""Pointwise by name, but they only choose and copy."""


class ElementwiseCounter(TorchDispatchMode):
    """Adds up `flops` of pointwise functions, sums and norms; products are left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.flops = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator and add what it cost."""
        out = func(*args, **(kwargs or {}))
        self.flops += _elementwise_flops(func, args, out)
        return out


def _elementwise_flops(func: Any, args: tuple[Any, ...], out: Any) -> int:
    packet = func.overloadpacket
    first = out[0] if isinstance(out, tuple | list) and out else out
    if not isinstance(first, Tensor) or not first.is_floating_point():
        return 0
    formula = ELEMENTWISE.get(packet) or OWN_ELEMENTWISE.get(func._schema.name)
    if formula is not None:
        return formula(*args)
    is_work = torch.Tag.pointwise in func.tags and packet not in FREE
    return first.numel() if is_work else 0
