"""The convolution through its public door, by the backend that `auto` picks on each device."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.ops import causal_conv1d
from tests.helpers.agreement import Results, assert_bit_equal
from tests.helpers.conv_calls import Call, Order, by_reference, draw
from tests.helpers.doors import assert_conv_right, conv_by_door

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ORDERS = ["none", "repeated", "permutation", "samples"]
on_each_device = pytest.mark.parametrize("device", DEVICES)
both_ways = pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])


@st.composite
def calls(draw_one: st.DrawFn) -> Call:
    lengths = draw_one(st.lists(st.integers(0, 40), min_size=1, max_size=4))
    order: Order = draw_one(st.sampled_from(ORDERS))
    return draw(
        tuple(lengths * 3 if order == "samples" else lengths),
        draw_one(st.sampled_from([1, 48, 52, 95])),
        draw_one(st.integers(1, 8)),
        order,
        has_bias=draw_one(st.booleans()),
        activation=draw_one(st.booleans()),
        reverse=draw_one(st.booleans()),
        seed=draw_one(st.integers(0, 100)),
    )


@on_each_device
@settings(max_examples=20)
@given(call=calls())
def test_output_and_gradients_are_as_exact_as_the_reference(device: str, call: Call) -> None:
    assert_conv_right(call, device=device)


@both_ways
@pytest.mark.parametrize("order", ORDERS)
def test_gradients_are_those_of_small_differences(order: Order, reverse: bool) -> None:
    call = draw((2, 0, 1, 6), 2, order=order, reverse=reverse)

    def convolve(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return causal_conv1d(
            *(x, weight, bias),
            cu_seqlens=call.cu_seqlens,
            order=call.order,
            permutation=call.permutation,
            reverse=reverse,
        )

    leaves = [x.clone().requires_grad_() for x in (call.x, call.weight, call.bias)]
    assert torch.autograd.gradcheck(convolve, leaves)


@on_each_device
@both_ways
def test_the_convolution_is_causal(reverse: bool, device: str) -> None:
    call = draw((70,), reverse=reverse).to(torch.float32)
    changed = replace(call, x=call.x.clone())
    changed.x[30] += 1
    ours, others = (conv_by_door(one, device=device)["y"] for one in (call, changed))
    differs = (ours != others).any(1).nonzero().squeeze(1)
    assert differs.tolist() == ([27, 28, 29, 30] if reverse else [30, 31, 32, 33])


@on_each_device
@both_ways
def test_sequences_do_not_leak_into_one_another(reverse: bool, device: str) -> None:
    clean = draw((33, 50, 40), reverse=reverse).to(torch.float32)
    dirty = replace(clean, x=clean.x.clone(), grad=clean.grad.clone())
    dirty.x[33:83], dirty.grad[33:83] = torch.nan, torch.inf
    well = torch.cat([torch.arange(33), torch.arange(83, 123)])

    def rows_of(call: Call) -> Results:
        results = conv_by_door(call, device=device)
        return {name: results[name][well] for name in ("y", "x")}

    assert_bit_equal(rows_of(clean), rows_of(dirty))


@on_each_device
@pytest.mark.parametrize("order", ORDERS)
def test_repeats_are_bit_equal(order: Order, device: str) -> None:
    call = draw((1000, 3, 800, 81), order=order).to(torch.float32)
    first = conv_by_door(call, device=device)
    for _ in range(3):
        assert_bit_equal(first, conv_by_door(call, device=device))


@on_each_device
@both_ways
@pytest.mark.parametrize("order", ORDERS)
def test_all_that_is_allocated_is_written(
    order: Order, reverse: bool, device: str, poison: pytest.MonkeyPatch
) -> None:
    lengths = (0, 100, 1, 64)
    call = draw(lengths, order=order, reverse=reverse).to(torch.float32)
    poisoned = conv_by_door(call, device=device)
    poison.undo()
    assert_bit_equal(conv_by_door(call, device=device), poisoned)


@on_each_device
def test_empty_batches_give_empty_outputs_and_no_gradients(device: str) -> None:
    call = draw((0, 0)).to(torch.float32)
    results = conv_by_door(call, device=device)
    assert results["y"].shape == results["x"].shape == (0, 52)
    assert all((results[name] == 0).all() for name in ("weight", "bias"))
    never = replace(call, x=torch.ones(5, 52), order=torch.empty(0, dtype=torch.long))
    assert torch.equal(conv_by_door(never, device=device)["x"], torch.zeros(5, 52))


@on_each_device
def test_bfloat16_is_float32_with_rounded_ends(device: str) -> None:
    call = draw((40, 1, 80), order="repeated").to(torch.bfloat16)
    wide = conv_by_door(call.to(torch.float32), device=device)
    for name, value in conv_by_door(call, device=device).items():
        assert value.dtype == torch.bfloat16
        torch.testing.assert_close(value.float(), wide[name], rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize("has_bias", [False, True], ids=["bare", "bias"])
@pytest.mark.parametrize("order", ORDERS)
def test_operators_keep_the_rules_of_pytorch(order: Order, has_bias: bool) -> None:
    call = draw((5, 1, 6), 5, order=order, has_bias=has_bias).to(torch.float32)
    leaves = [None if x is None else x.requires_grad_() for x in (call.x, call.weight, call.bias)]
    settings = call.permutation, True, False
    operator = torch.ops.graphmamba.causal_conv1d_cpu.default
    torch.library.opcheck(operator, (*leaves, call.cu_seqlens, call.order, *settings))


@both_ways
def test_the_reference_lets_nothing_through_from_next_door(reverse: bool) -> None:
    clean = draw((33, 50, 40), reverse=reverse)
    dirty = replace(clean, x=clean.x.clone(), grad=clean.grad.clone())
    dirty.x[33:83], dirty.grad[33:83] = torch.nan, torch.inf
    ours, others = by_reference(clean), by_reference(dirty)
    for name in ("y", "x"):
        assert torch.equal(ours[name][:33], others[name][:33])
        assert torch.equal(ours[name][83:], others[name][83:])
