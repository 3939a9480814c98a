from itertools import pairwise

import pytest
import torch
from torch import Tensor

from graphmamba.ops.segment_max import max_segments
from tests.helpers.processes import only_interpreted, run_apart

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
on_each_device = pytest.mark.parametrize("device", DEVICES)
LENGTHS = {
    "graphs": (163, 1, 0, 300, 20),
    "long": (1100, 0),
    "nodes": (2, 3, 0, 1) * 3,
    "nothing": (0, 0),
    "no place": (),
}


def segments(
    lengths: tuple[int, ...], channels: int = 33, levels: int = 1000
) -> tuple[Tensor, Tensor, Tensor]:
    """Rows of few different numbers, place of each and boundaries."""
    generator = torch.Generator().manual_seed(0)
    index = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths).long())
    ptr = torch.tensor([0, *lengths]).cumsum(0)
    rows = torch.randint(-levels, levels + 1, (sum(lengths), channels), generator=generator)
    return rows.double() / levels, index, ptr


def truth_of(rows: Tensor, ptr: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Place by place: the greatest, and the gradient, shared evenly."""
    top, share = rows.new_zeros(len(ptr) - 1, rows.shape[1]), torch.zeros_like(rows)
    for place, (low, high) in enumerate(pairwise(ptr.tolist())):
        if high > low:
            own = rows[low:high]
            top[place] = own.amax(dim=0)
            is_top = (own == top[place]).to(rows)
            share[low:high] = is_top * (grad[place] / is_top.sum(dim=0))
    return top, share


def assert_right(lengths: tuple[int, ...], channels: int, levels: int, device: str) -> None:
    rows, index, ptr = segments(lengths, channels, levels)
    grad = torch.randn(len(lengths), channels, generator=torch.Generator().manual_seed(1))
    expected = truth_of(rows.float(), ptr, grad)
    leaf = rows.float().to(device).requires_grad_()
    out = max_segments(leaf, index.to(device), ptr.to(device))
    out.backward(grad.to(device))
    assert leaf.grad is not None
    assert torch.equal(out.detach().cpu(), expected[0])
    assert torch.equal(leaf.grad.cpu(), expected[1])


def assert_operator_right(
    lengths: tuple[int, ...], levels: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> None:
    """The Triton kernels by themselves, on rows that lie apart."""
    rows, index, ptr = (each.to(device) for each in segments(lengths, 70, levels))
    wide = torch.cat([rows, rows], dim=1).to(dtype).requires_grad_()
    grad = torch.randn(len(lengths), 70, device=device).to(dtype)
    out, _ = torch.ops.graphmamba.segment_max_fused(wide[:, :70], index, ptr)
    out.backward(grad)
    top, share = truth_of(wide.detach()[:, :70].float(), ptr, grad.float())
    assert wide.grad is not None
    assert torch.equal(out.detach(), top.to(dtype))
    assert torch.equal(wide.grad[:, :70], share.to(dtype))


def assert_a_nan_is_seen(device: str = "cpu") -> None:
    rows, index, ptr = (each.to(device) for each in segments((70, 2), 5))
    rows[3, 1], rows[69, 2] = float("nan"), float("nan")
    out, _ = torch.ops.graphmamba.segment_max_fused(rows.float(), index, ptr)
    assert out.isnan().nonzero().tolist() == [[0, 1], [0, 2]]


@on_each_device
@pytest.mark.parametrize("levels", [1, 1000])
@pytest.mark.parametrize("name", LENGTHS)
def test_the_greatest_and_its_gradient(name: str, levels: int, device: str) -> None:
    assert_right(LENGTHS[name], 33, levels, device)


def test_gradcheck() -> None:
    rows, index, ptr = segments((5, 0, 1, 3), 4, 100_000)
    assert rows.unique().numel() == rows.numel()
    torch.autograd.gradcheck(lambda leaf: max_segments(leaf, index, ptr), rows.requires_grad_())


@on_each_device
def test_a_tie_at_zero_is_shared_by_its_rows_alone(device: str) -> None:
    rows = torch.tensor([[0.0], [0.0], [-1.0]], device=device, requires_grad=True)
    index, ptr = torch.zeros(3, dtype=torch.long), torch.tensor([0, 3])
    max_segments(rows, index.to(device), ptr.to(device)).sum().backward()
    assert rows.grad is not None
    assert rows.grad.flatten().tolist() == [0.5, 0.5, 0.0]


@only_interpreted
def test_the_interpreted_kernels_are_right() -> None:
    run_apart(
        "import torch\n"
        "from tests.ops.segment_max.test_segment_max import *\n"
        "for lengths in LENGTHS.values():\n"
        "    assert_operator_right(lengths, 1)\n"
        "assert_operator_right(LENGTHS['graphs'], 1000, torch.float16)\n"
        "assert_a_nan_is_seen()\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LENGTHS)
def test_the_kernels_are_right(name: str, dtype: torch.dtype) -> None:
    for levels in (1, 1000):
        assert_operator_right(LENGTHS[name], levels, dtype, "cuda")


@pytest.mark.gpu
def test_a_gpu_sees_a_nan() -> None:
    assert_a_nan_is_seen("cuda")


@pytest.mark.gpu
def test_the_operator_keeps_the_rules_of_pytorch() -> None:
    rows, index, ptr = (each.cuda() for each in segments((2, 0, 70, 1)))
    operator = torch.ops.graphmamba.segment_max_fused.default
    torch.library.opcheck(operator, (rows.float().requires_grad_(), index, ptr))
