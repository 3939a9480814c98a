"""Operations of our own operators whose work is pointwise, by name."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from graphmamba.study.operator_flops.costs import (
    BACKWARD,
    ENTROPY,
    KNOWN_NORM,
    LENGTH,
    NORM,
    SLOPE,
    SOFTMAX,
    Formula,
)
from graphmamba.study.operator_flops.elementwise import taken_in


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
    "graphmamba::segment_max_fused": taken_in(),
    "graphmamba::segment_max_fused_backward": taken_in(place=1),
    "graphmamba::segment_sum_fused": taken_in(),
    # copies are no work
    "graphmamba::segment_take_fused": taken_in(cost=0),
    "graphmamba::column_sums_fused": taken_in(),
    "graphmamba::unit_rows_fused": _unit_rows,
    "graphmamba::unit_rows_fused_backward": taken_in(BACKWARD * LENGTH),
    "graphmamba::class_loss_fused": taken_in(SOFTMAX + SLOPE),
    "graphmamba::two_class_loss_fused": taken_in(ENTROPY + SLOPE),
    "graphmamba::entry_loss_fused": _entry_loss,
    "graphmamba::activate_drop_fused": _activate_drop,
    "graphmamba::batch_norm_act_fused": _batch_norm_act,
    "graphmamba::batch_norm_act_fused_backward": _batch_norm_act_backward,
    "graphmamba::batch_norm_pair_fused": _batch_norm_pair,
    "graphmamba::batch_norm_pair_fused_backward": _batch_norm_pair_backward,
}
"""Our own operators of that kind, by name."""
