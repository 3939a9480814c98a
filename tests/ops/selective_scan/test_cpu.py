from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmamba.ops import pieces
from graphmamba.ops.options import Discretization
from graphmamba.ops.selective_scan import cpu
from tests.helpers.agreement import (
    Results,
    assert_as_exact,
    assert_bit_equal,
    max_error,
    poison_allocations,
)
from tests.helpers.scan_calls import NAMES, Call, Case, Order, by_reference, draw

PER_STEP = ("y", "u", "delta", "B", "C")


def by_cpu(call: Call) -> Results:
    case, inputs = call.case, [call.inputs[name] for name in NAMES]
    flags = case.scatter, case.softplus, case.discretization == "zoh", case.reverse, case.is_log
    y, states = cpu.forward(*inputs, case.cu_seqlens, call.order, *flags, True)
    gradients = cpu.backward(call.grad, *inputs, case.cu_seqlens, call.order, states, *flags)
    for x, gradient in zip(inputs, gradients, strict=True):
        assert gradient.shape == ((0,) if x is None else x.shape)
        assert x is None or gradient.dtype == x.dtype
    named = zip(NAMES, gradients, strict=True)
    present = {name: gradient for name, gradient in named if call.inputs[name] is not None}
    return {"y": y, **present}


def assert_right(call: Call) -> None:
    truth, single = by_reference(call), call.to(torch.float32)
    assert_as_exact(by_cpu(single), by_reference(single), truth)
    for name, value in by_cpu(call).items():
        assert max_error(value, truth[name]) <= 1e-10 * max(1, float(truth[name].abs().max())), name


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even short sequences, and make many groups."""
    monkeypatch.setattr(pieces, "LIMIT", 40)
    monkeypatch.setattr(pieces, "GROUP", 50)


CASES = {
    "one step": Case((1,), inner=1, state=1),
    "logarithms of rates": Case((40, 3), inner=17, state=3, is_log=True),
    "single steps": Case((1, 1, 1), order="permutation"),
    "odd lengths": Case((63, 1, 130)),
    "empty sequences": Case((0, 7, 0, 0, 33, 0), inner=52),
    "odd channels": Case((65, 31), inner=95, state=3, order="repeated"),
    "one state": Case((40, 2), inner=52, state=1, order="samples"),
    "many states": Case((34,), inner=17, state=64),
    "bare": Case((50, 9), absent=("D", "z", "delta_bias"), order="permutation"),
    "no gate": Case((50, 10), absent=("z",), order="repeated"),
    "no skip": Case((50, 10), absent=("D", "delta_bias"), order="samples"),
    "no softplus": Case((50, 10), softplus=False, order="permutation"),
}


@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
@pytest.mark.parametrize("discretization", ["euler", "zoh"])
@pytest.mark.parametrize("name", CASES)
def test_as_exact_as_the_reference(
    name: str, discretization: Discretization, reverse: bool
) -> None:
    assert_right(draw(replace(CASES[name], discretization=discretization, reverse=reverse)))


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(0, 34), min_size=1, max_size=3).filter(any),
    inner=st.sampled_from([1, 15, 16, 48, 52, 95]),
    state=st.integers(1, 64),
    absent=st.sets(st.sampled_from(["D", "z", "delta_bias"])),
    order=st.sampled_from(["none", "repeated", "permutation", "samples"]),
    discretization=st.sampled_from(["euler", "zoh"]),
    softplus=st.booleans(),
    reverse=st.booleans(),
    seed=st.integers(0, 100),
)
def test_as_exact_as_the_reference_on_any_case(
    lengths: list[int],
    inner: int,
    state: int,
    absent: set[str],
    order: Order,
    discretization: Discretization,
    softplus: bool,
    reverse: bool,
    seed: int,
) -> None:
    if order == "samples":
        lengths = lengths * 3
    case = Case(
        tuple(lengths), inner, state, tuple(absent), order, discretization, softplus, reverse
    )
    assert_right(draw(case, seed))


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
@pytest.mark.parametrize("discretization", ["euler", "zoh"])
@pytest.mark.parametrize("order", ["none", "permutation"])
def test_as_exact_as_the_reference_in_pieces(
    order: Order, discretization: Discretization, reverse: bool
) -> None:
    lengths = (3, 41, 170, 0, 40, 81)
    assert_right(draw(Case(lengths, 20, 4, (), order, discretization, reverse=reverse)))


def test_what_many_cuts_hand_on_is_rounded_once() -> None:
    """What shrinks on the way from cut to cut, and what does not."""
    cuts, rates = 1000, np.array([[-1.0], [0.0]], np.float32)
    ends = np.full((cuts, 2, 1), 0.1, np.float32)
    sums = np.full((cuts, 2, 1), 20.3, np.float32)
    links = np.stack([np.arange(cuts), np.arange(cuts) - 1], axis=1)
    found = cpu._hand_on(ends, sums, rates, links)
    tenth, decay = np.float64(ends[0, 0, 0]), np.exp(-np.float64(sums[0, 0, 0]))
    assert found[-1, 1, 0] == np.float32(cuts * tenth)
    ends[1:, 0] = 0
    shrunk = cpu._hand_on(ends, sums, rates, links)[1:4, 0, 0]
    assert shrunk.tolist() == (tenth * decay ** np.arange(1, 4)).astype(np.float32).tolist()


@pytest.mark.parametrize("zoh", [False, True], ids=["euler", "zoh"])
def test_states_are_kept_only_on_demand(zoh: bool) -> None:
    call = draw(Case((70, 30))).to(torch.float32)
    inputs = [call.inputs[name] for name in NAMES]
    arguments = (*inputs, call.case.cu_seqlens, None, False, True, zoh, False, False)
    y, states = cpu.forward(*arguments, True)
    y_alone, none = cpu.forward(*arguments, False)
    assert torch.equal(y, y_alone)
    assert states.shape == cpu.states_shape(100, 48, 5)
    assert none.shape == cpu.states_shape(0, 48, 5)


def test_no_steps_give_no_rows_and_no_gradients() -> None:
    results = by_cpu(draw(Case((0, 0))).to(torch.float32))
    assert results["y"].shape == (0, 48)
    assert all((results[name] == 0).all() for name in ("A", "D", "delta_bias"))


def test_bfloat16_is_float32_with_rounded_ends() -> None:
    case = Case((40, 1, 80), order="repeated")
    rounded = draw(case).to(torch.bfloat16)
    parameters = {name: rounded.inputs[name].float() for name in ("A", "D", "delta_bias")}
    mixed = replace(rounded, inputs=rounded.inputs | parameters)
    wide = by_cpu(rounded.to(torch.float32))
    for name, value in by_cpu(mixed).items():
        assert value.dtype == (torch.float32 if name in parameters else torch.bfloat16)
        assert torch.equal(value, wide[name].to(value.dtype)), name


def test_views_of_wider_rows_are_as_good_as_copies() -> None:
    call = draw(Case((40, 33), order="permutation")).to(torch.float32)
    views = {
        name: torch.cat([x, x.flip(1), x], dim=1)[:, 2 * x.shape[1] :] if x.dim() == 2 else x
        for name, x in call.inputs.items()
        if x is not None
    }
    columns = views | {name: views[name].t().contiguous().t() for name in ("A", "B", "u")}
    assert_bit_equal(by_cpu(call), by_cpu(replace(call, inputs=views)))
    assert_bit_equal(by_cpu(call), by_cpu(replace(call, inputs=columns)))


@pytest.mark.parametrize("discretization", ["euler", "zoh"])
def test_a_rate_of_zero_has_the_gradient_of_rates_close_to_it(
    discretization: Discretization,
) -> None:
    call = draw(Case((30,), inner=4, state=3, discretization=discretization))
    for value in (0.0, 1e-40):
        call.inputs["A"][:, 1] = value
        at_zero = by_cpu(call)
        call.inputs["A"][:, 1] = 1e-7
        for name, close in by_reference(call).items():
            assert max_error(at_zero[name], close) <= 1e-4, name


@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
@pytest.mark.parametrize("limit", [4096, 40])
def test_sequences_do_not_leak_into_one_another(
    limit: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "LIMIT", limit)
    case = Case((33, 50, 90), reverse=reverse)
    clean = draw(case).to(torch.float32)
    dirty = draw(case).to(torch.float32)
    ill = slice(33, 83)
    for name in ("u", "delta", "B", "C", "z"):
        dirty.inputs[name][ill] = torch.nan
        dirty.inputs[name][40] = torch.inf
    dirty.grad[ill] = torch.nan
    ours, others = by_cpu(clean), by_cpu(dirty)
    well = torch.arange(case.steps)
    well = well[(well < ill.start) | (well >= ill.stop)]
    per_row = (*PER_STEP, "z")
    assert_bit_equal(
        {name: ours[name][well] for name in per_row}, {name: others[name][well] for name in per_row}
    )
    assert others["y"][ill].isnan().all()


@pytest.mark.parametrize("limit", [4096, 40])
def test_neighbours_do_not_change_a_sequence(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LIMIT", limit)
    both = draw(Case((37, 130))).to(torch.float32)
    per_row = ("u", "delta", "B", "C", "z")
    own = both.inputs | {name: both.inputs[name][37:] for name in per_row}
    alone = Call(Case((130,)), own, both.grad[37:], None)
    together, ours = by_cpu(both), by_cpu(alone)
    names = ("y", *per_row)
    assert_bit_equal(
        {name: ours[name] for name in names}, {name: together[name][37:] for name in names}
    )


@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
def test_the_scan_is_causal(reverse: bool) -> None:
    case = Case((70,), reverse=reverse)
    call, changed = draw(case).to(torch.float32), draw(case).to(torch.float32)
    for name in ("u", "delta", "B", "C", "z"):
        changed.inputs[name][30] += 1
    seen = slice(31, 70) if reverse else slice(0, 30)
    ours, others = by_cpu(call)["y"], by_cpu(changed)["y"]
    assert torch.equal(ours[seen], others[seen])
    assert not torch.equal(ours[30], others[30])


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("order", ["none", "repeated", "samples"])
def test_bits_do_not_depend_on_threads_nor_repeats(
    order: Order,
) -> None:
    call = draw(Case((200, 3, 70, 81), inner=52, order=order)).to(torch.float32)
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


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("order", ["none", "repeated", "samples"])
@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
def test_all_that_is_allocated_is_written(
    order: Order, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = draw(Case((0, 100, 1, 64), inner=52, state=3, order=order, reverse=reverse))
    call = call.to(torch.float32)
    clean = by_cpu(call)
    poison_allocations(monkeypatch)
    assert_bit_equal(clean, by_cpu(call))
    inputs = [call.inputs[name] for name in NAMES]
    flags = call.case.scatter, True, False, reverse, False
    _, states = cpu.forward(*inputs, call.case.cu_seqlens, call.order, *flags, True)
    assert states.isfinite().all()
