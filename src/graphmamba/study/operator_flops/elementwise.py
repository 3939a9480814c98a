"""Operations of PyTorch's own pointwise functions, sums, norms and softmaxes."""

from math import prod
from typing import Any

import torch

from graphmamba.study.operator_flops.costs import (
    BACKWARD,
    DROPOUT,
    KNOWN_NORM,
    NORM,
    SCORE,
    SOFTMAX,
    Formula,
)

aten = torch.ops.aten


def taken_in(cost: int = 1, place: int = 0) -> Formula:
    """Cost of each number of an argument."""
    return lambda *call: cost * call[place].numel()


def _scores(cost: int, place: int = 0) -> Formula:
    """Cost of each score of a fused attention, whose query and key are two of the arguments."""
    return lambda *call: cost * prod(call[place].shape[:3]) * call[place + 1].shape[-2]


ELEMENTWISE: dict[Any, Formula] = {
    **dict.fromkeys((aten.sum, aten.mean, aten.amax, aten.amin, aten.cumsum), taken_in()),
    **dict.fromkeys((aten.linalg_vector_norm, aten.var), taken_in(2)),
    aten.index_add: taken_in(place=3),
    aten.index_add_: taken_in(place=3),
    aten.scatter_reduce: taken_in(place=3),
    aten.scatter_add: taken_in(place=3),
    aten.embedding_dense_backward: taken_in(),
    aten._embedding_bag: taken_in(place=1),
    **dict.fromkeys(
        (
            aten.native_batch_norm,
            aten._native_batch_norm_legit,
            aten._batch_norm_with_update,
            aten.cudnn_batch_norm,
            aten.native_layer_norm,
        ),
        taken_in(NORM),
    ),
    aten._native_batch_norm_legit_no_training: taken_in(KNOWN_NORM),
    **dict.fromkeys(
        (
            aten.native_batch_norm_backward,
            aten.batch_norm_backward,
            aten.cudnn_batch_norm_backward,
            aten.native_layer_norm_backward,
        ),
        taken_in(BACKWARD * NORM),
    ),
    aten._softmax: taken_in(SOFTMAX),
    aten._safe_softmax: taken_in(SOFTMAX),
    aten._softmax_backward_data: taken_in(SOFTMAX),
    aten.native_dropout: taken_in(DROPOUT),
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
