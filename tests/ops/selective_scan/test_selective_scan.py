"""The scan through its public door, by the backend that `auto` picks on each device."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.ops import selective_scan
from graphmamba.ops.options import Discretization
from graphmamba.ops.selective_scan import reference
from tests.helpers.agreement import Results, assert_bit_equal
from tests.helpers.doors import assert_scan_right, scan_by_door
from tests.helpers.processes import run_apart
from tests.helpers.scan_calls import NAMES, Call, Case, Order, draw

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
PER_ROW = ("u", "delta", "B", "C", "z")
on_each_device = pytest.mark.parametrize("device", DEVICES)
both_ways = pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])


def leaves_of(call: Call) -> list[Tensor | None]:
    inputs = (call.inputs[name] for name in NAMES)
    return [None if x is None else x.detach().clone().requires_grad_() for x in inputs]


@st.composite
def cases(draw_one: st.DrawFn) -> Case:
    lengths = draw_one(st.lists(st.integers(0, 12), min_size=1, max_size=4))
    order: Order = draw_one(st.sampled_from(["none", "repeated", "permutation", "samples"]))
    if order == "repeated" and not any(lengths):
        order = "none"
    return Case(
        tuple(lengths * 3 if order == "samples" else lengths),
        inner=draw_one(st.sampled_from([1, 48, 52, 95])),
        state=draw_one(st.integers(1, 64)),
        absent=tuple(draw_one(st.sets(st.sampled_from(["D", "z", "delta_bias"])))),
        order=order,
        discretization=draw_one(st.sampled_from(["euler", "zoh"])),
        softplus=draw_one(st.booleans()),
        reverse=draw_one(st.booleans()),
    )


@on_each_device
@settings(max_examples=15)
@given(case=cases(), seed=st.integers(0, 100))
def test_output_and_gradients_are_as_exact_as_the_reference(
    device: str, case: Case, seed: int
) -> None:
    assert_scan_right(draw(case, seed), device=device)


@both_ways
@pytest.mark.parametrize("discretization", ["euler", "zoh"])
@pytest.mark.parametrize("order", ["none", "repeated", "permutation", "samples"])
def test_gradients_are_those_of_small_differences(
    order: Order, discretization: Discretization, reverse: bool
) -> None:
    case = Case((2, 0, 1, 3), 2, 2, (), order, discretization, reverse=reverse)
    call = draw(case)

    def scan(*inputs: Tensor) -> Tensor:
        return selective_scan(
            *inputs,
            cu_seqlens=case.cu_seqlens,
            order=call.order,
            scatter=case.scatter,
            discretization=discretization,
            reverse=reverse,
        )

    assert torch.autograd.gradcheck(scan, leaves_of(call))


@on_each_device
def test_a_gated_recurrence_is_a_special_case(device: str) -> None:
    # Theorem 1 of https://arxiv.org/abs/2312.00752: with N = 1, A = -1, B = 1 and zero-order hold,
    # h = (1 - g) h + g x with g = sigmoid(linear(x)).
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 1, generator=generator)
    delta = x * 0.7
    ones = torch.ones(40, 1)
    arguments = (x, delta, -torch.ones(1, 1), ones, ones)
    y = selective_scan(
        *(argument.to(device) for argument in arguments),
        cu_seqlens=torch.tensor([0, 40], device=device),
        discretization="zoh",
    )
    h, expected = torch.zeros(1), []
    for value, gate in zip(x, torch.sigmoid(delta), strict=True):
        h = (1 - gate) * h + gate * value
        expected.append(h)
    torch.testing.assert_close(y.cpu(), torch.stack(expected), rtol=1e-5, atol=1e-6)


@on_each_device
@both_ways
def test_the_scan_is_causal(reverse: bool, device: str) -> None:
    case = Case((70,), reverse=reverse)
    call, changed = draw(case).to(torch.float32), draw(case).to(torch.float32)
    for name in PER_ROW:
        changed.inputs[name][30] += 1
    seen = slice(31, 70) if reverse else slice(0, 30)
    ours, others = (scan_by_door(one, device=device)["y"] for one in (call, changed))
    assert torch.equal(ours[seen], others[seen])
    assert not torch.equal(ours[30], others[30])


@on_each_device
@both_ways
@pytest.mark.parametrize("order", ["none", "permutation"])
def test_sequences_do_not_leak_into_one_another(order: Order, reverse: bool, device: str) -> None:
    case = Case((33, 50, 90), order=order, reverse=reverse)
    clean, dirty = draw(case).to(torch.float32), draw(case).to(torch.float32)
    ill = torch.zeros(case.steps, dtype=torch.bool)
    ill[33:83] = True
    slots = torch.arange(case.steps) if dirty.order is None else dirty.order.long()
    ill_slots = torch.zeros_like(ill)
    ill_slots[slots[ill]] = True
    rows = {name: ill_slots if name in {"z", "y"} else ill for name in ("y", *PER_ROW)}
    for name in PER_ROW:
        dirty.inputs[name][rows[name]] = torch.nan
    dirty.grad[ill_slots] = torch.inf
    ours, others = scan_by_door(clean, device=device), scan_by_door(dirty, device=device)

    def well(results: Results) -> Results:
        return {name: results[name][~rows[name]] for name in rows}

    assert_bit_equal(well(ours), well(others))
    assert others["y"][ill_slots].isnan().all()


@on_each_device
@pytest.mark.parametrize("order", ["none", "repeated", "permutation", "samples"])
def test_repeats_are_bit_equal(order: Order, device: str) -> None:
    call = draw(Case((200, 3, 70, 81), inner=52, order=order)).to(torch.float32)
    first = scan_by_door(call, device=device)
    for _ in range(3):
        assert_bit_equal(first, scan_by_door(call, device=device))


@on_each_device
@both_ways
@pytest.mark.parametrize("order", ["none", "repeated", "samples"])
def test_all_that_is_allocated_is_written(
    order: Order, reverse: bool, device: str, poison: pytest.MonkeyPatch
) -> None:
    case = Case((0, 100, 1, 64), inner=52, state=3, order=order, reverse=reverse)
    call = draw(case).to(torch.float32)
    poisoned = scan_by_door(call, device=device)
    poison.undo()
    assert_bit_equal(scan_by_door(call, device=device), poisoned)


@on_each_device
@pytest.mark.parametrize("lengths", [(), (0,), (0, 0)], ids=["none", "one", "two"])
def test_empty_batches_give_empty_outputs_and_no_gradients(
    lengths: tuple[int, ...], device: str
) -> None:
    results = scan_by_door(draw(Case(lengths)).to(torch.float32), device=device)
    assert results["y"].shape == (0, 48)
    assert all((results[name] == 0).all() for name in ("A", "D", "delta_bias"))


@on_each_device
def test_bfloat16_is_float32_with_rounded_ends(device: str) -> None:
    rounded = draw(Case((40, 1, 80), order="permutation")).to(torch.bfloat16)
    parameters = {name: rounded.inputs[name].float() for name in ("A", "D", "delta_bias")}
    mixed = replace(rounded, inputs=rounded.inputs | parameters)
    wide = scan_by_door(rounded.to(torch.float32), device=device)
    for name, value in scan_by_door(mixed, device=device).items():
        assert value.dtype == (torch.float32 if name in parameters else torch.bfloat16)
        # Half of the last of eight bits.
        torch.testing.assert_close(value.float(), wide[name], rtol=2**-8, atol=2**-8)


@on_each_device
def test_views_and_columns_are_as_good_as_copies(device: str) -> None:
    call = draw(Case((40, 33), order="permutation")).to(torch.float32)
    views = {
        name: torch.cat([x, x], dim=1)[:, x.shape[1] :] if x.dim() == 2 else x
        for name, x in call.inputs.items()
    }
    columns = {name: x.t().contiguous().t() if x.dim() == 2 else x for name, x in views.items()}
    ours = scan_by_door(call, device=device)
    column_grad = call.grad.t().contiguous().t()
    assert_bit_equal(ours, scan_by_door(replace(call, inputs=views), device=device))
    other = replace(call, inputs=columns, grad=column_grad)
    assert_bit_equal(ours, scan_by_door(other, device=device))


@pytest.mark.parametrize("absent", [(), ("D", "z", "delta_bias")], ids=["full", "bare"])
@pytest.mark.parametrize("order", ["none", "samples"])
def test_operators_keep_the_rules_of_pytorch(absent: tuple[str, ...], order: Order) -> None:
    case = Case((5, 1, 6), inner=5, state=3, absent=absent, order=order)
    call = draw(case).to(torch.float32)
    operator = torch.ops.graphmamba.selective_scan_cpu.default
    settings = case.scatter, True, False, False, True, True
    arguments = (*leaves_of(call), case.cu_seqlens, call.order, *settings)
    torch.library.opcheck(operator, arguments)


def test_states_are_kept_only_for_a_gradient() -> None:
    call = draw(Case((70,))).to(torch.float32)
    inputs = [call.inputs[name] for name in NAMES]
    arguments = (*inputs, call.case.cu_seqlens, None, False, True, False, False, False)
    operator = torch.ops.graphmamba.selective_scan_cpu
    assert operator(*arguments, True)[1].numel() > 0
    assert operator(*arguments, False)[1].numel() == 0


def test_a_second_derivative_is_refused() -> None:
    call = draw(Case((5,)))
    leaves = leaves_of(call)
    y = selective_scan(*leaves, cu_seqlens=call.case.cu_seqlens)
    (gradient,) = torch.autograd.grad(y.sum(), leaves[0], create_graph=True)
    with pytest.raises(NotImplementedError, match="only once"):
        gradient.sum().backward()


TRACED = """
import torch
from graphmamba.ops import causal_conv1d, selective_scan
from tests.helpers.scan_calls import NAMES, Case, draw

class Both(torch.nn.Module):
    def forward(self, u, delta, A, B, C, D, z, delta_bias, cu_seqlens, order):
        u = causal_conv1d(u, A, D, cu_seqlens=cu_seqlens, order=order, permutation=True)
        return selective_scan(
            u, delta, A, B, C, D, z, delta_bias, cu_seqlens=cu_seqlens, order=order, scatter=True
        )

def arguments(lengths):
    call = draw(Case(lengths, inner=5, state=3, order="permutation")).to(torch.float32)
    inputs = [call.inputs[name].requires_grad_() for name in NAMES]
    return (*inputs, call.case.cu_seqlens, call.order)

both, first, other = Both(), arguments((5, 0, 9)), arguments((30, 1))
"""
COMPILED = """
compiled = torch.compile(both, fullgraph=True, dynamic=True, backend="aot_eager")
for given in (first, other):
    leaves = given[:8]
    ours, plain = compiled(*given), both(*given)
    assert torch.equal(ours, plain)
    pairs = zip(*(torch.autograd.grad(y.square().sum(), leaves) for y in (ours, plain)))
    assert all(torch.equal(a, b) for a, b in pairs)
"""
EXPORTED = """
shapes = tuple({0: torch.export.Dim.AUTO} if i not in (2, 5, 7) else None for i in range(10))
with torch.no_grad():
    program = torch.export.export(both, first, dynamic_shapes=shapes)
    for given in (first, other):
        assert torch.equal(program.module()(*given), both(*given))
"""


@pytest.mark.parametrize("code", [COMPILED, EXPORTED], ids=["compiled", "exported"])
def test_whole_graphs_pass_through(code: str) -> None:
    run_apart(TRACED + code)


@pytest.mark.parametrize("a", [0.0, -1e-40, -1e-20, -1e-8, -1e-4, -0.05, -0.09, -0.11, -3.0, -1e30])
def test_the_reference_holds_as_a_state_forgets_less_and_less(a: float) -> None:
    """By zero-order hold (exp(dt A) - 1) / A, whose digits are lost near 0."""

    def gradients(dtype: torch.dtype) -> list[Tensor]:
        generator = torch.Generator().manual_seed(0)
        shapes = {"u": (5, 2), "delta": (5, 2), "B": (5, 3), "C": (5, 3)}
        leaves = {
            name: torch.randn(shape, generator=generator).to(dtype).requires_grad_()
            for name, shape in shapes.items()
        }
        leaves["A"] = torch.full((2, 3), a, dtype=dtype, requires_grad=True)
        out = reference.selective_scan(
            **leaves, cu_seqlens=torch.tensor([0, 2, 5]), discretization="zoh"
        )
        return [out, *torch.autograd.grad(out.sum(), list(leaves.values()))]

    for exact, rounded in zip(gradients(torch.float64), gradients(torch.float32), strict=True):
        torch.testing.assert_close(rounded.double(), exact, rtol=1e-4, atol=1e-5)


def test_the_series_of_the_reference_is_as_exact_as_float64() -> None:
    """Just below the bound, where what it leaves out is largest."""
    ends = torch.tensor([-0.0999999, 0.0999999], dtype=torch.float64)[:, None]
    one = torch.ones(1, 2, dtype=torch.float64)
    y = reference.selective_scan(
        *(one, one, ends, one[:, :1], one[:, :1]),
        cu_seqlens=torch.tensor([0, 1]),
        softplus=False,
        discretization="zoh",
    )
    torch.testing.assert_close(y, (ends.expm1() / ends).T, rtol=1e-15, atol=0)


def test_the_reference_of_no_steps_can_be_differentiated() -> None:
    u, B = torch.zeros(0, 2, requires_grad=True), torch.zeros(0, 3, requires_grad=True)
    A = torch.full((2, 3), -1.0, requires_grad=True)
    reference.selective_scan(u, u, A, B, B, cu_seqlens=torch.tensor([0, 0])).sum().backward()
    assert torch.equal(A.grad, torch.zeros(2, 3))
