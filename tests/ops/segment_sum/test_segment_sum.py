import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.ops.segment_sum import sum_segments, take_rows
from tests.helpers.processes import only_interpreted, run_apart

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
on_each_device = pytest.mark.parametrize("device", DEVICES)
LENGTHS = {
    "graphs": (163, 1, 0, 600, 20),
    "nodes": (2, 3, 0, 1) * 9,
    "hubs": (2, 3, 0, 1, 300, 2, 2, 90) * 2,
    "nothing": (0, 0),
    "no place": (),
}


def segments(
    lengths: tuple[int, ...], channels: int = 33, is_sorted: bool = True
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Rows in float64, place of each, boundaries and order."""
    generator = torch.Generator().manual_seed(0)
    index = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths).long())
    ptr = torch.tensor([0, *lengths]).cumsum(0).int()
    rows = torch.randn(sum(lengths), channels, generator=generator).double()
    if is_sorted:
        return rows, index, ptr, None
    index = index[torch.randperm(len(index), generator=generator)]
    return rows, index, ptr, index.argsort(stable=True)


def truth_of(rows: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    return rows.new_zeros(len(ptr) - 1, rows.shape[1]).index_add(0, index, rows)


def assert_operator_right(lengths: tuple[int, ...], is_sorted: bool, device: str = "cpu") -> None:
    """The Triton kernel by itself."""
    rows, index, ptr, order = segments(lengths, is_sorted=is_sorted)
    leaf = rows.float().to(device).requires_grad_()
    places = [None if x is None else x.to(device) for x in (index, ptr, order)]
    out = torch.ops.graphmamba.segment_sum_fused(leaf, *places)
    truth = truth_of(rows, index, ptr)
    torch.testing.assert_close(out.double().cpu(), truth, rtol=1e-5, atol=1e-4)
    grad = torch.randn(out.shape, device=device)
    out.backward(grad)
    assert torch.equal(leaf.grad, grad[index.to(device)])
    # the other way round: what is summed here is the gradient there
    given = grad.clone().requires_grad_()
    taken = torch.ops.graphmamba.segment_take_fused(given, *places)
    assert torch.equal(taken, grad[index.to(device)])
    taken.backward(leaf.detach())
    torch.testing.assert_close(given.grad.double().cpu(), truth, rtol=1e-5, atol=1e-4)


@on_each_device
@settings(max_examples=20)
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
    torch.testing.assert_close(out.double().cpu(), truth_of(rows, index, ptr), rtol=1e-5, atol=1e-4)


@on_each_device
def test_rows_are_taken_and_their_gradients_are_sums(device: str) -> None:
    rows, index, ptr, order = segments(LENGTHS["hubs"], is_sorted=False)
    places = [x.to(device) for x in (index, ptr, order)]
    given = torch.randn(len(ptr) - 1, rows.shape[1], device=device, requires_grad=True)
    taken = take_rows(given, *places)
    assert torch.equal(taken, given[places[0]])
    taken.backward(rows.float().to(device))
    truth = truth_of(rows, index, ptr)
    torch.testing.assert_close(given.grad.double().cpu(), truth, rtol=1e-5, atol=1e-4)


@on_each_device
def test_repeats_are_bit_equal(device: str) -> None:
    rows, index, ptr, order = segments(LENGTHS["hubs"], is_sorted=False)
    places = [x.to(device) for x in (index, ptr, order)]
    given = torch.randn(len(ptr) - 1, rows.shape[1], device=device, requires_grad=True)
    rows = rows.float().to(device)
    for results in (
        [sum_segments(rows, *places) for _ in range(4)],
        [torch.autograd.grad(take_rows(given, *places), given, rows)[0] for _ in range(4)],
    ):
        assert all(torch.equal(results[0], other) for other in results[1:])


@only_interpreted
def test_the_interpreted_kernel_is_right() -> None:
    run_apart(
        "from tests.ops.segment_sum.test_segment_sum import LENGTHS, assert_operator_right\n"
        "for lengths in LENGTHS.values():\n"
        "    for is_sorted in (True, False):\n"
        "        assert_operator_right(lengths, is_sorted)\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.parametrize("name", LENGTHS)
def test_the_kernel_is_right(name: str, is_sorted: bool) -> None:
    assert_operator_right(LENGTHS[name], is_sorted, "cuda")


@pytest.mark.gpu
def test_the_operator_keeps_the_rules_of_pytorch() -> None:
    rows, index, ptr, order = (x.cuda() for x in segments((2, 0, 70, 1), is_sorted=False))
    torch.library.opcheck(
        torch.ops.graphmamba.segment_sum_fused.default,
        (rows.float().requires_grad_(), index, ptr, order),
    )
    given = torch.randn(4, rows.shape[1], device="cuda", requires_grad=True)
    torch.library.opcheck(
        torch.ops.graphmamba.segment_take_fused.default, (given, index, ptr, order)
    )
