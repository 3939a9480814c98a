"""The selective scan: every backend against the reference, in float64 where that is the truth."""

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.ops import selective_scan
from graphmamba.ops.selective_scan import cpu
from graphmamba.ops.selective_scan.reference import Discretization
from tests.helpers.agreement import (
    assert_bit_equal,
    in_both_directions,
    max_error,
    on_each_device,
    poison_allocations,
)
from tests.helpers.processes import run_apart
from tests.helpers.sequences import (
    ORDERS,
    Call,
    Order,
    assert_right,
    boundaries_of,
    draw_order,
    run,
)

PER_ROW = ("u", "delta", "B", "C", "z")
PARAMETERS = ("A", "D", "delta_bias")
by_order = pytest.mark.parametrize("order", ORDERS)


@dataclass(frozen=True)
class Case:
    """Everything that decides a call, but for the numbers."""

    lengths: tuple[int, ...]
    inner: int = 48
    state: int = 5
    absent: tuple[str, ...] = ()
    order: Order = "none"
    discretization: Discretization = "euler"
    softplus: bool = True
    reverse: bool = False
    log_A: bool = False  # noqa: N815


def draw(case: Case, seed: int = 0) -> Call:
    """Numbers of the order of one, for which the rule's 1e-6 is meant."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return 0.5 * torch.randn(shape, generator=generator).double()

    inner, state, steps = case.inner, case.state, sum(case.lengths)
    rows = steps // 3 if case.order == "samples" else steps
    A = -(0.5 + torch.rand((inner, state), generator=generator) * state).double()
    inputs = {
        "u": normal(steps, inner),
        "delta": normal(steps, inner) - 1 if case.softplus else 0.4 * normal(steps, inner).abs(),
        "A": torch.log(-A) if case.log_A else A,
        "B": normal(steps, state),
        "C": normal(steps, state),
        "D": normal(inner),
        "z": normal(rows, inner),
        "delta_bias": normal(inner) if case.softplus else 0.2 * normal(inner).abs(),
    }
    order = draw_order(case.order, steps, rows, generator)
    # Rounded here, so that the truth starts from the same numbers as what it judges.
    exact = {
        name: None if name in case.absent else x.float().double() for name, x in inputs.items()
    }
    flags = {
        "scatter": case.order in {"permutation", "samples"},
        "softplus": case.softplus,
        "discretization": case.discretization,
        "reverse": case.reverse,
        "log_A": case.log_A,
    }
    grad = normal(steps, inner)
    return Call(selective_scan, exact, boundaries_of(case.lengths), order, flags, grad)


CASES = {
    "one step": Case((1,), inner=1, state=1),
    "logarithms of rates": Case((40, 3), inner=17, state=3, log_A=True, discretization="zoh"),
    "single steps": Case((1, 1, 1), order="permutation", reverse=True),
    "odd lengths": Case((63, 1, 130)),
    "empty sequences": Case((0, 7, 0, 0, 33, 0), inner=52, discretization="zoh", reverse=True),
    "odd channels": Case((65, 31), inner=95, state=3, order="repeated", reverse=True),
    "one state": Case((40, 2), inner=52, state=1, order="samples", discretization="zoh"),
    "many states": Case((34,), inner=17, state=64),
    "bare": Case((50, 9), absent=("D", "z", "delta_bias"), order="permutation"),
    "no gate": Case((50, 10), absent=("z",), order="repeated", discretization="zoh"),
    "no softplus": Case((50, 10), softplus=False, order="permutation", reverse=True),
}


@pytest.mark.parametrize("name", CASES)
def test_as_exact_as_the_reference(name: str) -> None:
    assert_right(draw(CASES[name]))


@st.composite
def cases(draw_one: st.DrawFn) -> Case:
    lengths = draw_one(st.lists(st.integers(0, 34), min_size=1, max_size=3).filter(any))
    order: Order = draw_one(st.sampled_from(["none", "repeated", "permutation", "samples"]))
    return Case(
        tuple(lengths * 3 if order == "samples" else lengths),
        inner=draw_one(st.sampled_from([1, 15, 16, 48, 52, 95])),
        state=draw_one(st.integers(1, 64)),
        absent=tuple(draw_one(st.sets(st.sampled_from(["D", "z", "delta_bias"])))),
        order=order,
        discretization=draw_one(st.sampled_from(["euler", "zoh"])),
        softplus=draw_one(st.booleans()),
        reverse=draw_one(st.booleans()),
    )


@on_each_device
@given(case=cases(), seed=st.integers(0, 100))
def test_as_exact_as_the_reference_on_any_case(device: str, case: Case, seed: int) -> None:
    assert_right(draw(case, seed), device=device)


@pytest.mark.parametrize(
    ("discretization", "reverse"), [("euler", False), ("euler", True), ("zoh", True)]
)
@pytest.mark.parametrize("order", ["none", "permutation"])
def test_as_exact_as_the_reference_in_partitions(
    order: Order, discretization: Discretization, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "MOST_STEPS", 40)
    monkeypatch.setattr(cpu, "GROUP_STEPS", 50)
    lengths = (3, 41, 170, 0, 40, 81)
    assert_right(draw(Case(lengths, 20, 4, (), order, discretization, reverse=reverse)))


@pytest.mark.parametrize(("discretization", "reverse"), [("euler", False), ("zoh", True)])
@by_order
def test_gradients_are_those_of_small_differences(
    order: Order, discretization: Discretization, reverse: bool
) -> None:
    call = draw(Case((2, 0, 1, 3), 2, 2, (), order, discretization, reverse=reverse))
    leaves = tuple(call.leaves().values())
    assert torch.autograd.gradcheck(lambda *x: selective_scan(*x, **call.settings()), leaves)


@on_each_device
def test_a_gated_recurrence_is_a_special_case(device: str) -> None:
    # Theorem 1 of https://arxiv.org/abs/2312.00752: with N = 1, A = -1, B = 1 and zero-order hold,
    # h = (1 - g) h + g x with g = sigmoid(linear(x)).
    x = torch.randn(40, 1)
    delta, ones = x * 0.7, torch.ones(40, 1)
    y = selective_scan(
        *(argument.to(device) for argument in (x, delta, -torch.ones(1, 1), ones, ones)),
        cu_seqlens=torch.tensor([0, 40], device=device),
        discretization="zoh",
    )
    h, expected = torch.zeros(1), []
    for value, gate in zip(x, torch.sigmoid(delta), strict=True):
        h = (1 - gate) * h + gate * value
        expected.append(h)
    torch.testing.assert_close(y.cpu(), torch.stack(expected), rtol=1e-5, atol=1e-6)


@on_each_device
@in_both_directions
def test_the_scan_is_causal(reverse: bool, device: str) -> None:
    case = Case((70,), reverse=reverse)
    call, changed = draw(case).to(torch.float32), draw(case).to(torch.float32)
    for name in PER_ROW:
        changed.inputs[name][30] += 1
    seen = slice(31, 70) if reverse else slice(0, 30)
    ours, others = (run(one, device=device)["y"] for one in (call, changed))
    assert torch.equal(ours[seen], others[seen])
    assert not torch.equal(ours[30], others[30])


@on_each_device
@pytest.mark.parametrize("lengths", [(), (0,), (0, 0)], ids=["none", "one", "two"])
def test_empty_batches_give_empty_outputs_and_no_gradients(
    lengths: tuple[int, ...], device: str
) -> None:
    results = run(draw(Case(lengths)).to(torch.float32), device=device)
    assert results["y"].shape == (0, 48)
    assert all((results[name] == 0).all() for name in PARAMETERS)


@on_each_device
@pytest.mark.parametrize("order", ["repeated", "permutation"])
def test_bfloat16_is_float32_with_rounded_ends(order: Order, device: str) -> None:
    rounded = draw(Case((40, 1, 80), order=order)).to(torch.bfloat16)
    parameters = {name: rounded.inputs[name].float() for name in PARAMETERS}
    mixed = replace(rounded, inputs=rounded.inputs | parameters)
    wide = run(rounded.to(torch.float32), device=device)
    for name, value in run(mixed, device=device).items():
        assert value.dtype == (torch.float32 if name in parameters else torch.bfloat16)
        # Half of the last of eight bits.
        torch.testing.assert_close(value.float(), wide[name], rtol=2**-8, atol=2**-8)


def operator_arguments(call: Call, device: str = "cpu") -> tuple[Any, ...]:
    settings = call.settings(device)
    zoh = settings["discretization"] == "zoh"
    flags = settings["scatter"], True, zoh, False, settings["log_A"], True
    return (*call.leaves(device).values(), settings["cu_seqlens"], settings["order"], *flags)


@pytest.mark.parametrize("absent", [(), ("D", "z", "delta_bias")], ids=["full", "bare"])
@pytest.mark.parametrize("order", ["none", "samples"])
def test_the_operator_keeps_the_rules_of_pytorch(absent: tuple[str, ...], order: Order) -> None:
    case = Case((5, 1, 6), 5, 3, absent, order, log_A=True)
    arguments = operator_arguments(draw(case).to(torch.float32))
    torch.library.opcheck(torch.ops.graphmamba.selective_scan_cpu.default, arguments)


def test_a_second_derivative_is_rejected() -> None:
    call = draw(Case((5,)))
    leaves = call.leaves()
    y = selective_scan(**leaves, cu_seqlens=call.cu_seqlens)
    (gradient,) = torch.autograd.grad(y.sum(), leaves["u"], create_graph=True)
    with pytest.raises(NotImplementedError, match="only once"):
        gradient.sum().backward()


TRACED = """
import torch
from graphmamba.ops import causal_conv1d, selective_scan
from tests.ops.test_selective_scan import Case, draw

class Both(torch.nn.Module):
    def forward(self, u, delta, A, B, C, D, z, delta_bias, cu_seqlens, order):
        u = causal_conv1d(u, A, D, cu_seqlens=cu_seqlens, order=order, permutation=True)
        return selective_scan(
            u, delta, A, B, C, D, z, delta_bias, cu_seqlens=cu_seqlens, order=order, scatter=True
        )

def arguments(lengths):
    call = draw(Case(lengths, inner=5, state=3, order="permutation")).to(torch.float32)
    return (*call.leaves().values(), call.cu_seqlens, call.order)

both, first, other = Both(), arguments((5, 0, 9)), arguments((30, 1))
compiled = torch.compile(both, fullgraph=True, dynamic=True, backend="aot_eager")
for given in (first, other):
    ours, plain = compiled(*given), both(*given)
    assert torch.equal(ours, plain)
    pairs = zip(*(torch.autograd.grad(y.square().sum(), given[:8]) for y in (ours, plain)))
    assert all(torch.equal(a, b) for a, b in pairs)

shapes = tuple({0: torch.export.Dim.AUTO} if i not in (2, 5, 7) else None for i in range(10))
with torch.no_grad():
    program = torch.export.export(both, first, dynamic_shapes=shapes)
    for given in (first, other):
        assert torch.equal(program.module()(*given), both(*given))
"""


def test_compiled_and_exported_graphs_give_the_same_bits() -> None:
    run_apart(TRACED)


@pytest.mark.parametrize("discretization", ["euler", "zoh"])
def test_a_rate_of_zero_has_the_gradient_of_rates_close_to_it(
    discretization: Discretization,
) -> None:
    call = draw(Case((30,), inner=4, state=3, discretization=discretization))
    for value in (0.0, 1e-40):
        call.inputs["A"][:, 1] = value
        at_zero = run(call)
        call.inputs["A"][:, 1] = 1e-7
        for name, close in run(call, "reference").items():
            assert max_error(at_zero[name], close) <= 1e-4, name


@pytest.mark.parametrize("a", [0.0, -1e-40, -1e-20, -1e-8, -1e-4, -0.05, -0.09, -0.11, -3.0, -1e30])
def test_the_reference_holds_where_a_state_hardly_decays(a: float) -> None:
    """By zero-order hold (exp(dt A) - 1) / A, whose digits are lost near 0."""
    found = []
    for dtype in (torch.float64, torch.float32):
        call = draw(Case((2, 3), 2, 3, ("D", "z", "delta_bias"), discretization="zoh")).to(dtype)
        call.inputs["A"].fill_(a)
        found.append(run(call, "reference"))
    for name, exact in found[0].items():
        torch.testing.assert_close(found[1][name].double(), exact, rtol=1e-4, atol=1e-5)


# The Triton kernels. Chunks have 16 steps here, so that a sequence passes one end of a chunk, or
# two.

SMALL = {
    "repeated, reverse": Case((2, 0, 1, 17), 3, 4, order="repeated", reverse=True),
    "permutation, zoh": Case((2, 0, 1, 17), 3, 3, order="permutation", discretization="zoh"),
    "samples": Case((2, 0, 1, 18), 2, 1, order="samples", log_A=True),
    "bare": Case((17, 2), 2, 2, ("D", "z", "delta_bias"), softplus=False, reverse=True),
    "ends of chunks": Case((16, 0, 1, 17), 3, 2),
    "no steps": Case((0, 0), 3, 2),
}
LARGE = {
    "many sequences": Case((63, 1, 200, 0) * 10, 96, 16, order="permutation", log_A=True),
    "odd channels": Case((63, 1, 200) * 3, 95, 3, order="samples"),
    "many states": Case((100, 30), 48, 64, order="repeated"),
    "one state": Case((300, 1), 52, 1),
    "one long": Case((3000,), 64, 16, order="permutation"),
}


def check_interpreted() -> None:
    """Everything that the kernels promise, on inputs that an interpreter can take."""
    for case in SMALL.values():
        assert_right(draw(case), "triton")
    check_apart("cpu")
    check_operator("cpu")
    triton = import_module("graphmamba.ops.selective_scan.triton")
    with pytest.MonkeyPatch.context() as patch:
        # What is done only with large inputs: states kept far apart, blocks of channels one after
        # another, segments of chunks side by side.
        patch.setattr(triton, "SMALL_STATES", 0)
        patch.setattr(triton, "SMALL_PARTS", 0)
        patch.setattr(triton, "SEGMENT", 2)
        assert_right(draw(Case((34, 2), 34, 2, order="repeated")), "triton")
        assert_right(draw(Case((2, 65), 2, 2, reverse=True)), "triton")
        partition = triton.partition
        patch.setattr(  # chunks that are no power of two
            triton,
            "partition",
            lambda *shape, backward=False: replace(partition(*shape), chunk=96 if backward else 48),
        )
        assert_right(draw(Case((60, 2, 49), 2, 2, reverse=True)), "triton")


def check_apart(device: str) -> None:
    """A NaN stays in its own sequence, a repeat is bit-equal, no memory is left unwritten."""
    whole = draw(Case((18, 3, 14), 3, 4)).to(torch.float32)
    at_ends = draw(Case((16, 17), 3, 4)).to(torch.float32)
    broken = replace(whole, inputs={name: x.clone() for name, x in whole.inputs.items()})
    for name in PER_ROW:
        broken.inputs[name][19] = torch.nan
    with pytest.MonkeyPatch.context() as patch:
        poison_allocations(patch)
        clean, again = (run(whole, "triton", device) for _ in range(2))
        mixed, ends = run(broken, "triton", device), run(at_ends, "triton", device)
    assert_bit_equal(clean, again)
    # sequences that end with a chunk get nothing back from the next, which writes nothing
    assert all(value.isfinite().all() for value in (*clean.values(), *ends.values()))
    others = torch.cat([torch.arange(18), torch.arange(21, 35)])
    for name in ("y", *PER_ROW):
        assert torch.equal(clean[name][others], mixed[name][others]), name
    assert mixed["y"][18:21].isnan().any()


def check_operator(device: str) -> None:
    call = draw(Case((2, 0, 3), 3, 2)).to(torch.float32)
    arguments = operator_arguments(call, device)
    torch.library.opcheck(torch.ops.graphmamba.selective_scan_triton.default, arguments)


@pytest.mark.gpu
def test_kernels_write_all_they_own_and_keep_sequences_apart() -> None:
    check_apart("cuda")
    check_operator("cuda")


@pytest.mark.gpu
@in_both_directions
@pytest.mark.parametrize("discretization", ["euler", "zoh"])
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(
    name: str, discretization: Discretization, reverse: bool
) -> None:
    case = replace((SMALL | LARGE)[name], discretization=discretization, reverse=reverse)
    assert_right(draw(case), "triton", "cuda")


@pytest.mark.gpu
@in_both_directions
@pytest.mark.parametrize("name", ["many sequences", "one long"])
def test_kernels_are_as_exact_as_for_large_inputs(
    name: str, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton = import_module("graphmamba.ops.selective_scan.triton")
    monkeypatch.setattr(triton, "SMALL_STATES", 0)
    monkeypatch.setattr(triton, "SMALL_PARTS", 0)
    assert_right(draw(replace(LARGE[name], reverse=reverse)), "triton", "cuda")
