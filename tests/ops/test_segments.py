"""Sums and maxima over segments, by PyTorch and by kernels."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.ops.segments import max_segments, sum_segments, take_rows
from tests.helpers.agreement import on_each_device

LENGTHS = {
    "graphs": (163, 1, 0, 300, 20),
    "long": (1100, 0),
    "nodes": (2, 3, 0, 1) * 5,
    "hubs": (2, 3, 0, 1, 300, 2, 2, 90),
    "nothing": (0, 0),
    "no place": (),
}


def segments(
    lengths: tuple[int, ...], channels: int = 33, is_sorted: bool = True, levels: int = 10**6
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Rows in float64 of at most so many different sizes, place of each, boundaries and order."""
    generator = torch.Generator().manual_seed(0)
    index = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths).long())
    ptr = torch.tensor([0, *lengths]).cumsum(0).int()
    rows = torch.randint(-levels, levels + 1, (sum(lengths), channels), generator=generator)
    rows = rows.double() / levels
    if is_sorted:
        return rows, index, ptr, None
    index = index[torch.randperm(len(index), generator=generator)]
    return rows, index, ptr, index.argsort(stable=True)


def sums_of(rows: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    return rows.new_zeros(len(ptr) - 1, rows.shape[1]).index_add(0, index, rows)


def maxima_of(rows: Tensor, ptr: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Place by place: the greatest, and the gradient, shared evenly."""
    top, share = rows.new_zeros(len(ptr) - 1, rows.shape[1]), torch.zeros_like(rows)
    for place, (low, high) in enumerate(pairwise(ptr.tolist())):
        if high > low:
            own = rows[low:high]
            top[place] = own.amax(dim=0)
            is_top = (own == top[place]).to(rows)
            share[low:high] = is_top * (grad[place] / is_top.sum(dim=0))
    return top, share


@on_each_device
@given(
    lengths=st.lists(st.integers(0, 90), max_size=9),
    channels=st.sampled_from([1, 16, 52, 95]),
    is_sorted=st.booleans(),
)
def test_every_place_gets_its_rows(
    device: str, lengths: list[int], channels: int, is_sorted: bool
) -> None:
    rows, index, ptr, order = segments(tuple(lengths), channels, is_sorted)
    places = [None if x is None else x.to(device) for x in (index, ptr, order)]
    out = sum_segments(rows.float().to(device), *places)
    torch.testing.assert_close(out.double().cpu(), sums_of(rows, index, ptr), rtol=1e-5, atol=1e-4)


@on_each_device
def test_rows_are_taken_their_gradients_are_sums_and_repeats_are_bit_equal(device: str) -> None:
    rows, index, ptr, order = segments(LENGTHS["hubs"], is_sorted=False)
    places = [x.to(device) for x in (index, ptr, order)]
    given = torch.randn(len(ptr) - 1, rows.shape[1], device=device, requires_grad=True)
    assert torch.equal(take_rows(given, *places), given[places[0]])
    grad = rows.float().to(device)
    found = [torch.autograd.grad(take_rows(given, *places), given, grad)[0] for _ in range(3)]
    found += [sum_segments(grad, *places) for _ in range(3)]
    for same in (found[:3], found[3:]):
        assert all(torch.equal(same[0], other) for other in same)
        torch.testing.assert_close(
            same[0].double().cpu(), sums_of(rows, index, ptr), rtol=1e-5, atol=1e-4
        )


@on_each_device
@pytest.mark.parametrize("levels", [1, 1000])
@pytest.mark.parametrize("name", LENGTHS)
def test_the_greatest_and_its_gradient(name: str, levels: int, device: str) -> None:
    rows, index, ptr, _ = segments(LENGTHS[name], levels=levels)
    grad = torch.randn(len(ptr) - 1, 33)
    leaf = rows.float().to(device).requires_grad_()
    out = max_segments(leaf, index.to(device), ptr.to(device))
    out.backward(grad.to(device))
    top, share = maxima_of(rows.float(), ptr, grad)
    assert torch.equal(out.detach().cpu(), top)
    assert torch.equal(leaf.grad.cpu(), share)


def test_gradients_of_the_greatest_are_those_of_small_differences() -> None:
    rows, index, ptr, _ = segments((5, 0, 1, 3), 4)
    assert rows.unique().numel() == rows.numel()
    torch.autograd.gradcheck(lambda leaf: max_segments(leaf, index, ptr), rows.requires_grad_())


@on_each_device
def test_a_tie_at_zero_is_shared_by_its_rows_alone(device: str) -> None:
    rows = torch.tensor([[0.0], [0.0], [-1.0]], device=device, requires_grad=True)
    index, ptr = torch.zeros(3, dtype=torch.long), torch.tensor([0, 3])
    max_segments(rows, index.to(device), ptr.to(device)).sum().backward()
    assert rows.grad.flatten().tolist() == [0.5, 0.5, 0.0]


def check_sums(lengths: tuple[int, ...], is_sorted: bool, device: str = "cpu") -> None:
    """The Triton kernel by itself."""
    rows, index, ptr, order = segments(lengths, is_sorted=is_sorted)
    leaf = rows.float().to(device).requires_grad_()
    places = [None if x is None else x.to(device) for x in (index, ptr, order)]
    out = torch.ops.graphmamba.segment_sum_triton(leaf, *places)
    truth = sums_of(rows, index, ptr)
    torch.testing.assert_close(out.double().cpu(), truth, rtol=1e-5, atol=1e-4)
    grad = torch.randn(out.shape, device=device)
    out.backward(grad)
    assert torch.equal(leaf.grad, grad[index.to(device)])
    # the other way round: what is summed here is the gradient there
    given = grad.clone().requires_grad_()
    taken = torch.ops.graphmamba.segment_take_triton(given, *places)
    assert torch.equal(taken, grad[index.to(device)])
    taken.backward(leaf.detach())
    torch.testing.assert_close(given.grad.double().cpu(), truth, rtol=1e-5, atol=1e-4)


def check_maxima(
    lengths: tuple[int, ...], levels: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> None:
    """The Triton kernels by themselves, on rows that lie apart."""
    rows, index, ptr, _ = segments(lengths, 70, levels=levels)
    rows, index, ptr = (each.to(device) for each in (rows, index, ptr))
    wide = torch.cat([rows, rows], dim=1).to(dtype).requires_grad_()
    grad = torch.randn(len(lengths), 70, device=device).to(dtype)
    out, _ = torch.ops.graphmamba.segment_max_triton(wide[:, :70], index, ptr)
    out.backward(grad)
    top, share = maxima_of(wide.detach()[:, :70].float(), ptr, grad.float())
    assert torch.equal(out.detach(), top.to(dtype))
    assert torch.equal(wide.grad[:, :70], share.to(dtype))


def check_nan(device: str = "cpu") -> None:
    rows, index, ptr, _ = segments((70, 2), 5)
    rows[3, 1], rows[69, 2] = float("nan"), float("nan")
    out, _ = torch.ops.graphmamba.segment_max_triton(
        *(each.to(device) for each in (rows.float(), index, ptr))
    )
    assert out.isnan().nonzero().tolist() == [[0, 1], [0, 2]]


def check_operators(device: str = "cpu") -> None:
    rows, index, ptr, order = segments((2, 0, 70, 1), is_sorted=False)
    rows, *places = (x.to(device) for x in (rows.float(), index, ptr, order))
    rows.requires_grad_()
    given = torch.randn(4, rows.shape[1], device=device, requires_grad=True)
    operators = torch.ops.graphmamba
    torch.library.opcheck(operators.segment_sum_triton.default, (rows, *places))
    torch.library.opcheck(operators.segment_take_triton.default, (given, *places))
    index = places[0].sort().values
    torch.library.opcheck(operators.segment_max_triton.default, (rows, index, places[1]))


def check_interpreted() -> None:
    for lengths in LENGTHS.values():
        check_maxima(lengths, 1)
        if lengths != LENGTHS["long"]:
            for is_sorted in (True, False):
                check_sums(lengths, is_sorted)
    check_maxima(LENGTHS["graphs"], 1000, torch.float16)
    check_nan()


@pytest.mark.gpu
@pytest.mark.parametrize("name", LENGTHS)
def test_the_kernels_are_right(name: str) -> None:
    for is_sorted in (True, False):
        check_sums(LENGTHS[name], is_sorted, "cuda")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for levels in (1, 1000):
            check_maxima(LENGTHS[name], levels, dtype, "cuda")


@pytest.mark.gpu
def test_the_kernels_see_a_nan_and_keep_the_rules_of_pytorch() -> None:
    check_nan("cuda")
    check_operators("cuda")
