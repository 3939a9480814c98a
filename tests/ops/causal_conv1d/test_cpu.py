from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmamba.ops.causal_conv1d import cpu, cpu_kernels
from tests.helpers.agreement import (
    Results,
    assert_as_exact,
    assert_bit_equal,
    max_error,
    poison_allocations,
)
from tests.helpers.conv_calls import Call, Order, by_reference, draw


def by_cpu(call: Call) -> Results:
    inputs = call.x, call.weight, call.bias, call.cu_seqlens, call.order
    y = cpu.forward(*inputs, call.activation, call.reverse)
    d_x, d_weight, d_bias = cpu.backward(
        call.grad, *inputs, call.permutation, call.activation, call.reverse
    )
    results = {"y": y, "x": d_x, "weight": d_weight}
    if call.bias is None:
        assert d_bias.shape == (0,)
        return results
    return results | {"bias": d_bias}


def assert_right(call: Call) -> None:
    truth, single = by_reference(call), call.to(torch.float32)
    assert_as_exact(by_cpu(single), by_reference(single), truth)
    for name, value in by_cpu(call).items():
        assert max_error(value, truth[name]) <= 1e-10, name


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=4).filter(any),
    inner=st.sampled_from([1, 15, 16, 48, 52, 95]),
    width=st.integers(1, 6),
    order=st.sampled_from(["none", "repeated", "permutation", "samples"]),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    seed=st.integers(0, 100),
)
def test_as_exact_as_the_reference(
    lengths: list[int],
    inner: int,
    width: int,
    order: Order,
    flags: tuple[bool, bool, bool],
    seed: int,
) -> None:
    lengths = lengths * 3 if order == "samples" else lengths
    has_bias, activation, reverse = flags
    assert_right(
        draw(
            tuple(lengths),
            inner,
            width,
            order,
            has_bias=has_bias,
            activation=activation,
            reverse=reverse,
            seed=seed,
        )
    )


@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
def test_sequences_longer_than_a_group_are_as_exact(reverse: bool) -> None:
    steps = cpu_kernels.GROUP
    assert_right(draw((steps + 3, 1, steps // 2), 20, order="permutation", reverse=reverse))


def test_gradients_of_taps_and_bias_lose_nothing_over_many_steps() -> None:
    steps, inner = 100 * cpu_kernels.GROUP, 1
    call = draw((steps,), inner, width=1, activation=False).to(torch.float32)
    # So few digits that blocks are added up exactly.
    value = round(0.7 * 2**21) / 2**21
    call = replace(call, x=torch.ones(steps, inner), grad=torch.full((steps, inner), value))
    results = by_cpu(call)
    for name in ("weight", "bias"):
        assert results[name].item() == torch.tensor(steps * value).item(), name


def test_no_steps_give_no_rows_and_no_gradients() -> None:
    call = draw((0, 0)).to(torch.float32)
    results = by_cpu(call)
    assert results["y"].shape == (0, 52)
    assert results["x"].shape == (0, 52)
    assert (results["weight"] == 0).all()
    never = replace(call, x=torch.ones(5, 52), order=torch.empty(0, dtype=torch.long))
    assert (by_cpu(never)["x"] == torch.zeros(5, 52)).all()


def test_bfloat16_is_float32_with_rounded_ends() -> None:
    call = draw((40, 1, 80), order="repeated").to(torch.bfloat16)
    wide = by_cpu(call.to(torch.float32))
    for name, value in by_cpu(call).items():
        assert value.dtype == torch.bfloat16
        assert torch.equal(value, wide[name].bfloat16()), name


def test_views_of_wider_rows_are_as_good_as_copies() -> None:
    call = draw((40, 33), order="permutation").to(torch.float32)
    view = torch.cat([call.x.flip(1), call.x], dim=1)[:, 52:]
    assert_bit_equal(by_cpu(call), by_cpu(replace(call, x=view)))
    column = call.grad.t().contiguous().t()
    assert_bit_equal(by_cpu(call), by_cpu(replace(call, grad=column)))


@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
def test_sequences_do_not_leak_into_one_another(reverse: bool) -> None:
    clean = draw((33, 50, 40), reverse=reverse).to(torch.float32)
    dirty = replace(clean, x=clean.x.clone(), grad=clean.grad.clone())
    dirty.x[33:83], dirty.grad[33:83] = torch.nan, torch.inf
    ours, others = by_cpu(clean), by_cpu(dirty)
    well = torch.cat([torch.arange(33), torch.arange(83, 123)])
    assert_bit_equal(
        {name: ours[name][well] for name in ("y", "x")},
        {name: others[name][well] for name in ("y", "x")},
    )


@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
def test_the_convolution_is_causal(reverse: bool) -> None:
    call = draw((70,), reverse=reverse).to(torch.float32)
    changed = replace(call, x=call.x.clone())
    changed.x[30] += 1
    differs = (by_cpu(call)["y"] != by_cpu(changed)["y"]).any(1).nonzero().squeeze(1)
    assert differs.tolist() == ([27, 28, 29, 30] if reverse else [30, 31, 32, 33])


@pytest.mark.parametrize("order", ["none", "repeated", "samples"])
def test_bits_do_not_depend_on_threads_nor_repeats(order: Order) -> None:
    call = draw((1000, 3, 800, 81), order=order).to(torch.float32)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 2, 5):
            torch.set_num_threads(count)
            results.append(by_cpu(call))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert_bit_equal(results[0], other)


@pytest.mark.parametrize("order", ["none", "repeated", "samples"])
def test_all_that_is_allocated_is_written(order: Order, monkeypatch: pytest.MonkeyPatch) -> None:
    call = draw((0, 100, 1, 64), order=order).to(torch.float32)
    clean = by_cpu(call)
    poison_allocations(monkeypatch)
    assert_bit_equal(clean, by_cpu(call))
