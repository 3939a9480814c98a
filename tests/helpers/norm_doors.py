"""What the fused batch norm has to hold, on a GPU or interpreted."""

import torch

from tests.helpers.agreement import assert_as_exact, assert_bit_equal
from tests.helpers.norm_calls import Case, compute


def assert_norm_right(case: Case, device: str = "cpu") -> None:
    """As exact as plain PyTorch, and the same bits again."""
    truth = compute(case, "reference", torch.float64)
    plain = compute(case, "reference", torch.float32)
    ours = compute(case, "fused", torch.float32, device)
    assert_as_exact(ours, plain, truth)
    assert_bit_equal(ours, compute(case, "fused", torch.float32, device))


def check_operators() -> None:
    """PyTorch's own checks of both operators: what they change, alias and allocate."""
    x, before = torch.randn(70, 3), torch.randn(70, 3)
    weight, bias, seed = torch.rand(3), torch.rand(3), torch.tensor(5)
    places = seed, seed, torch.tensor(60)
    settings = "relu", [0.1, 0.2], [1, 2], True
    operators = torch.ops.graphmamba
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    statistics = torch.zeros(3), torch.ones(3), torch.tensor(0)
    inputs = (x, weight, bias, before, x, *places, *statistics, *settings, 0.1, 1e-5)
    torch.library.opcheck(operators.batch_norm_act_fused.default, inputs, test_utils=tests)
    kept = torch.stack([torch.zeros(3), torch.ones(3)])
    inputs = (x, kept, x, weight, bias, before, *places, *settings)
    backward = operators.batch_norm_act_fused_backward.default
    torch.library.opcheck(backward, inputs, test_utils=tests)
