"""The causal convolution: every backend against the reference, in float64 where that is exact."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.ops import causal_conv1d
from tests.helpers.agreement import (
    in_both_directions,
    on_each_device,
)
from tests.helpers.sequences import (
    ORDERS,
    Call,
    Order,
    assert_right,
    boundaries_of,
    draw_order,
    run,
)

by_order = pytest.mark.parametrize("order", ORDERS)


def draw(
    lengths: tuple[int, ...],
    inner: int = 52,
    width: int = 4,
    order: Order = "none",
    *,
    has_bias: bool = True,
    activation: bool = True,
    reverse: bool = False,
    seed: int = 0,
) -> Call:
    generator = torch.Generator().manual_seed(seed)
    steps = sum(lengths)
    rows = {"samples": steps // 3, "repeated": steps // 2 + 1}.get(order, steps)

    def normal(*shape: int) -> Tensor:
        return 0.5 * torch.randn(shape, generator=generator).double()

    return Call(
        causal_conv1d,
        {
            "x": normal(rows, inner),
            "weight": normal(inner, width),
            "bias": normal(inner) if has_bias else None,
        },
        boundaries_of(lengths),
        draw_order(order, steps, rows, generator),
        {
            "permutation": order in {"permutation", "samples"},
            "activation": activation,
            "reverse": reverse,
        },
        normal(steps, inner),
    )


@st.composite
def calls(draw_one: st.DrawFn) -> Call:
    lengths = draw_one(st.lists(st.integers(0, 70), min_size=1, max_size=4).filter(any))
    order: Order = draw_one(st.sampled_from(ORDERS))
    return draw(
        tuple(lengths * 3 if order == "samples" else lengths),
        draw_one(st.sampled_from([1, 15, 16, 48, 52, 95])),
        draw_one(st.integers(1, 8)),
        order,
        has_bias=draw_one(st.booleans()),
        activation=draw_one(st.booleans()),
        reverse=draw_one(st.booleans()),
        seed=draw_one(st.integers(0, 100)),
    )


@on_each_device
@given(call=calls())
def test_output_and_gradients_are_as_exact_as_the_reference(device: str, call: Call) -> None:
    assert_right(call, device=device)


@in_both_directions
def test_sequences_longer_than_a_group_are_as_exact(reverse: bool) -> None:
    assert_right(draw((515, 1, 256), 20, order="permutation", reverse=reverse))


def test_gradients_of_taps_and_bias_lose_nothing_over_many_steps() -> None:
    steps = 51_200
    call = draw((steps,), 1, width=1, activation=False).to(torch.float32)
    # So few digits that blocks are added up exactly.
    value = round(0.7 * 2**21) / 2**21
    inputs = call.inputs | {"x": torch.ones(steps, 1)}
    results = run(replace(call, inputs=inputs, grad=torch.full((steps, 1), value)))
    for name in ("weight", "bias"):
        assert results[name].item() == torch.tensor(steps * value).item(), name


@in_both_directions
@by_order
def test_gradients_are_those_of_small_differences(order: Order, reverse: bool) -> None:
    call = draw((2, 0, 1, 6), 2, order=order, reverse=reverse)
    leaves = tuple(call.leaves().values())
    assert torch.autograd.gradcheck(lambda *x: causal_conv1d(*x, **call.settings()), leaves)


@on_each_device
@in_both_directions
def test_the_convolution_is_causal(reverse: bool, device: str) -> None:
    call = draw((70,), reverse=reverse).to(torch.float32)
    x = call.inputs["x"].clone()
    x[30] += 1
    changed = replace(call, inputs=call.inputs | {"x": x})
    ours, others = (run(one, device=device)["y"] for one in (call, changed))
    differs = (ours != others).any(1).nonzero().squeeze(1)
    assert differs.tolist() == ([27, 28, 29, 30] if reverse else [30, 31, 32, 33])


@on_each_device
def test_empty_batches_give_empty_outputs_and_no_gradients(device: str) -> None:
    call = draw((0, 0)).to(torch.float32)
    results = run(call, device=device)
    assert results["y"].shape == results["x"].shape == (0, 52)
    assert all((results[name] == 0).all() for name in ("weight", "bias"))
    inputs = call.inputs | {"x": torch.ones(5, 52)}
    never = replace(call, inputs=inputs, order=torch.empty(0, dtype=torch.long))
    assert torch.equal(run(never, device=device)["x"], torch.zeros(5, 52))


@on_each_device
def test_bfloat16_is_float32_with_rounded_ends(device: str) -> None:
    call = draw((40, 1, 80), order="repeated").to(torch.bfloat16)
    wide = run(call.to(torch.float32), device=device)
    for name, value in run(call, device=device).items():
        assert value.dtype == torch.bfloat16
        torch.testing.assert_close(value.float(), wide[name], rtol=2**-8, atol=2**-8)


@pytest.mark.parametrize(("order", "has_bias"), [("none", False), ("samples", True)])
def test_the_operator_keeps_the_rules_of_pytorch(order: Order, has_bias: bool) -> None:
    call = draw((5, 1, 6), 5, order=order, has_bias=has_bias).to(torch.float32)
    arguments = (*call.leaves().values(), *call.settings().values())
    torch.library.opcheck(torch.ops.graphmamba.causal_conv1d_cpu.default, arguments)


SMALL = {
    "as it lies": lambda: draw((5, 0, 1, 20), 3),
    "repeated, reverse": lambda: draw((5, 0, 1, 20), 3, order="repeated", reverse=True),
    "permutation, bare": lambda: draw(
        (20, 1, 5), 3, 3, "permutation", has_bias=False, activation=False
    ),
    "samples, eight taps": lambda: draw((5, 0, 1, 15), 2, 8, "samples", reverse=True),
    "one tap": lambda: draw((1, 17), 2, 1, "permutation"),
    "no activation": lambda: draw((19,), 33, 2, activation=False, reverse=True),
    "no steps": lambda: draw((0, 0), 3),
}
LARGE = {
    "many sequences": lambda: draw((63, 1, 200, 0) * 40, 96),
    "odd channels, samples": lambda: draw((63, 1, 200) * 9, 95, 4, "samples", reverse=True),
    "one long": lambda: draw((60_000,), 64, 4, "permutation"),
    "repeated": lambda: draw((1000, 3, 800), 52, 5, "repeated"),
}


def check_interpreted() -> None:
    for draw_one in SMALL.values():
        assert_right(draw_one(), "triton")


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    assert_right((SMALL | LARGE)[name](), "triton", "cuda")
