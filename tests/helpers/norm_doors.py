"""What the fused batch norm has to hold, on a GPU or interpreted."""

import torch

from graphmamba.encode.activation import Activation
from graphmamba.encode.batch_norm import Drop, activate_drop
from tests.helpers.agreement import assert_as_exact, assert_bit_equal
from tests.helpers.norm_calls import Case, compute


def assert_norm_right(case: Case, device: str = "cpu", is_repeated: bool = True) -> None:
    """As exact as plain PyTorch, and the same bits again."""
    truth = compute(case, "reference", torch.float64)
    plain = compute(case, "reference", torch.float32)
    ours = compute(case, "fused", torch.float32, device)
    assert_as_exact(ours, plain, truth)
    if is_repeated:
        assert_bit_equal(ours, compute(case, "fused", torch.float32, device))


def assert_drop_right(activation: Activation, shape: tuple[int, int], device: str = "cpu") -> None:
    """Activation and dropout: the same masks as the reference, gradients too."""
    found = []
    for backend in ("reference", "fused"):
        generator = torch.Generator().manual_seed(0)
        x, grad = (torch.randn(shape, generator=generator).to(device) for _ in range(2))
        x.requires_grad_()
        drop = Drop(0.3, torch.tensor(-99, device=device), 5)
        out = activate_drop(x, activation, drop, backend=backend)
        out.backward(grad)
        found.append({"y": out.detach(), "dx": x.grad})
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, msg=name)


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
    inputs = (x, None, seed, "relu", 0.2, 1)
    torch.library.opcheck(operators.activate_drop_fused.default, inputs, test_utils=tests)
