"""Operations of the selective scan and of the convolution before it."""

from typing import Any

import torch

# Defines the operators that the table names.
import graphmamba.scan  # noqa: F401
from graphmamba.study.operator_flops.costs import Formula

ours = torch.ops.graphmamba

FLOPS_OF_A_STATE = 9
"""A step of the scan costs this much for each state of each channel, the figure that Mamba's
authors use. Term by term it is seven, three for exp(delta A) h, two for B, two for C; the rest
stands for the softplus and the step sizes."""
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
