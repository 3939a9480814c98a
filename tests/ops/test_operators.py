"""The operators of the fused maps keep the rules of PyTorch, which traces and exports by them."""

import torch
from torch.library import opcheck

from tests.helpers.processes import only_interpreted, run_apart

CHECKS = ("test_schema", "test_faketensor")
"""Those that need no gradient: functions of autograd stand around these operators."""


def assert_rules_are_kept(rows: int) -> None:
    draw, graphmamba = torch.randn, torch.ops.graphmamba
    x, grad, weight = draw(rows, 20), draw(rows, 4), draw(4, 20)
    u, out, select, step = draw(rows, 8), draw(rows, 12), draw(10, 8), draw(8, 2)
    state = draw(rows, 4)
    for operator, arguments in (
        (graphmamba.weight_grad_fused, (grad, x, True)),
        (graphmamba.weight_grad_fused, (grad, x, False)),
        (graphmamba.narrow_linear_fused, (x[:, :3], weight[:, :3].contiguous(), draw(8)[::2])),
        (graphmamba.narrow_linear_fused, (x[:, :3], weight[:, :3].contiguous(), None)),
        (graphmamba.map_rows_fused, (x, weight, draw(8)[::2], True)),
        (graphmamba.map_rows_fused, (x.T.contiguous().T, weight.T.contiguous().T, None, False)),
        (graphmamba.rows_grad_fused, (grad, weight, x)),
        (graphmamba.rows_grad_fused, (grad, weight, None)),
        (graphmamba.relu_grad_fused, (grad, weight, x.T.contiguous().T)),
        (graphmamba.column_sums_fused, (grad,)),
        (graphmamba.selection_fused, (u, select.T.contiguous().T, step)),
        (graphmamba.raw_steps_fused, (out, select, step)),
        (graphmamba.selection_fused_backward, (u, u, state, state, u, out, select, step)),
    ):
        opcheck(operator.default, arguments, test_utils=CHECKS)


@only_interpreted
def test_operators_keep_the_rules_of_pytorch() -> None:
    run_apart(
        "import graphmamba.ops.linear, graphmamba.ops.selection\n"
        "from tests.ops.test_operators import *\n"
        "assert_rules_are_kept(5)\n"
        "assert_rules_are_kept(0)",
        TRITON_INTERPRET="1",
    )
