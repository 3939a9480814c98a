"""Operations of matrix products: ours, and those of PyTorch that its own counter leaves out."""

from typing import Any

import torch

# Defines the operators that the table names.
import graphmamba.encode.deep_set
import graphmamba.stack.selection  # noqa: F401
from graphmamba.study.operator_flops.costs import BACKWARD, Formula

aten, ours = torch.ops.aten, torch.ops.graphmamba


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
"""Our own."""


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    graphs, heads, asking, width = query
    return 2 * graphs * heads * asking * key[-2] * (width + value[-1])


def _attention_backward(_grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    # Scores are computed anew, then two gradients of each product.
    graphs, heads, asking, width = query
    return 2 * graphs * heads * asking * key[-2] * (3 * width + 2 * value[-1])


def _product_and_relu(_bias: Any, rows: Any, matrix: Any, **_: Any) -> int:
    return 2 * rows[0] * rows[1] * matrix[1]


TORCH_PRODUCTS: dict[Any, Formula] = {
    aten._addmm_activation: _product_and_relu,
    aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}
"""What torch's counter leaves out: a product with its ReLU, and attention on a CPU."""
