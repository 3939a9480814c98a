"""What the fused batch norm has to hold, on a GPU or interpreted."""

from itertools import product

import torch

from graphmamba.ops.activation import Activation
from graphmamba.ops.batch_norm import Drop, Running, activate_drop, batch_norm_act
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


def assert_types_right(device: str = "cpu") -> None:
    """Rows of several types: the output has the type of their sum, gradients have their own."""
    for types in product((torch.float32, torch.bfloat16), repeat=3):
        found = []
        for backend in ("reference", "fused"):
            generator = torch.Generator().manual_seed(0)
            x, before, after = (
                torch.randn(70, 20, generator=generator).bfloat16().to(device, each)
                for each in types
            )
            leaves = [each.requires_grad_() for each in (x, before, after)]
            ones = [torch.ones(20, device=device) for _ in range(4)]
            out = batch_norm_act(
                *(x, *ones[:2], Running(*ones[2:])), before=before, after=after, backend=backend
            )
            assert out.dtype == (torch.float32 if torch.float32 in types else torch.bfloat16)
            out.backward(torch.randn(70, 20, generator=generator).to(device, out.dtype))
            assert all(each.grad.dtype == each.dtype for each in leaves)
            found.append([out.detach(), *(each.grad for each in leaves)])
        for ours, plain in zip(*reversed(found), strict=True):
            torch.testing.assert_close(ours.float(), plain.float(), rtol=2e-2, atol=2e-2)


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
    for given in (x, x.bfloat16()):
        inputs = (given, weight, bias, before, given, *places, *statistics, *settings, 0.1, 1e-5)
        torch.library.opcheck(operators.batch_norm_act_fused.default, inputs, test_utils=tests)
    kept = torch.stack([torch.zeros(3), torch.ones(3)])
    inputs = (x, kept, x, weight, bias, before, *places, *settings)
    backward = operators.batch_norm_act_fused_backward.default
    torch.library.opcheck(backward, inputs, test_utils=tests)
    inputs = (x, None, seed, "relu", 0.2, 1)
    torch.library.opcheck(operators.activate_drop_fused.default, inputs, test_utils=tests)
