from dataclasses import replace
from importlib import import_module

import pytest
import torch
from torch import Tensor

from graphmamba.ops.options import Discretization
from tests.helpers.agreement import poison_allocations
from tests.helpers.doors import assert_scan_right, scan_by_door
from tests.helpers.processes import only_interpreted, run_apart
from tests.helpers.scan_calls import Case, draw

# Chunks have 16 steps here, so that a sequence passes one end of a chunk, or two.
SMALL = {
    "as it lies": Case((3, 0, 1, 30), 3, 2),
    "repeated, reverse": Case((2, 0, 1, 17), 3, 4, order="repeated", reverse=True),
    "permutation, zoh": Case((2, 0, 1, 17), 3, 3, order="permutation", discretization="zoh"),
    "samples": Case((2, 0, 1, 18), 2, 1, order="samples", is_log=True),
    "bare": Case((17, 2), 2, 2, absent=("D", "z", "delta_bias"), softplus=False, reverse=True),
    "ends of chunks": Case((16, 32), 3, 2, order="permutation"),
    "no steps": Case((0, 0), 3, 2),
}
LARGE = {
    "many sequences": Case((63, 1, 200, 0) * 10, 96, 16, order="permutation", is_log=True),
    "odd channels": Case((63, 1, 200) * 3, 95, 3, order="samples"),
    "many states": Case((100, 30), 48, 64, order="repeated"),
    "one state": Case((300, 1), 52, 1),
    "one long": Case((3000,), 64, 16, order="permutation"),
}


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_the_reference() -> None:
    run_apart(
        "from tests.helpers.doors import assert_scan_right\n"
        "from tests.helpers.scan_calls import draw\n"
        "from tests.ops.selective_scan.test_fused import SMALL\n"
        "for case in SMALL.values():\n"
        "    assert_scan_right(draw(case), 'fused')\n",
        TRITON_INTERPRET="1",
    )


# What the kernels do only with large inputs, asked of small ones: states kept far apart, blocks of
# channels one after another, walks over chunks in segments.
UNUSUAL = """
from importlib import import_module
import_module("graphmamba.ops.selective_scan.cut").SMALL_STATES = 0
import_module("graphmamba.ops.selective_scan.fused").SMALL_PARTS = 0
import_module("graphmamba.ops.selective_scan.chunk_links").SEGMENT = 2
"""


@only_interpreted
def test_interpreted_kernels_are_right_as_for_large_inputs() -> None:
    run_apart(
        UNUSUAL + "from tests.helpers.doors import assert_scan_right\n"
        "from tests.helpers.scan_calls import Case, draw\n"
        "assert_scan_right(draw(Case((34, 2), 34, 2, order='repeated')), 'fused')\n"
        "assert_scan_right(draw(Case((2, 65), 2, 2, reverse=True)), 'fused')\n",
        TRITON_INTERPRET="1",
    )


@only_interpreted
def test_interpreted_kernels_are_right_for_chunks_that_are_no_power_of_two() -> None:
    run_apart(
        UNUSUAL + "from dataclasses import replace\n"
        "from tests.helpers.doors import assert_scan_right\n"
        "from tests.helpers.scan_calls import Case, draw\n"
        "fused = import_module('graphmamba.ops.selective_scan.fused')\n"
        "powers = fused.cut\n"
        "for back in 48, 96:\n"
        "    chunks = {False: 48, True: back}\n"
        "    fused.cut = lambda *shape, back=False: replace(powers(*shape), chunk=chunks[back])\n"
        "    assert_scan_right(draw(Case((60, 2, 49), 2, 2, reverse=True)), 'fused')\n",
        TRITON_INTERPRET="1",
    )


@only_interpreted
def test_interpreted_kernels_write_all_they_own_and_keep_sequences_apart() -> None:
    run_apart(
        "from tests.ops.selective_scan.test_fused import check_apart\ncheck_apart('cpu')\n",
        TRITON_INTERPRET="1",
    )


@only_interpreted
def test_the_interpreted_operator_keeps_the_rules_of_pytorch() -> None:
    run_apart(
        "from tests.ops.selective_scan.test_fused import check_operator\ncheck_operator('cpu')\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_kernels_write_all_they_own_and_keep_sequences_apart() -> None:
    check_apart("cuda")
    check_operator("cuda")


def check_apart(device: str) -> None:
    """A NaN stays in its own sequence, a repeat is bit-equal, no memory is left unwritten."""
    whole = draw(Case((18, 3, 14), 3, 4)).to(torch.float32)
    at_ends = draw(Case((16, 17), 3, 4)).to(torch.float32)
    broken = replace(whole, inputs={name: _with_nan(name, x) for name, x in whole.inputs.items()})
    with pytest.MonkeyPatch.context() as patch:
        poison_allocations(patch)
        clean, again = (scan_by_door(whole, "fused", device) for _ in range(2))
        mixed = scan_by_door(broken, "fused", device)
        ends = scan_by_door(at_ends, "fused", device)
    for name, value in clean.items():
        assert torch.equal(value, again[name]), name
        assert torch.isfinite(value).all(), name
    # sequences that end with a chunk get nothing back from the next, which writes nothing
    assert all(torch.isfinite(value).all() for value in ends.values())
    others = torch.cat([torch.arange(18), torch.arange(21, 35)])
    for name in ("y", "u", "delta", "B", "C", "z"):
        assert torch.equal(clean[name][others], mixed[name][others]), name
    assert mixed["y"][18:21].isnan().any()


def check_operator(device: str) -> None:
    """The operator keeps the promises that tracing relies on."""
    call = draw(Case((2, 0, 3), 3, 2)).to(torch.float32)
    leaves = [None if x is None else x.to(device).requires_grad_() for x in call.inputs.values()]
    arguments = (*leaves, call.case.cu_seqlens.to(device), None)
    scan_by_door(call, "fused", device)
    torch.library.opcheck(
        torch.ops.graphmamba.selective_scan_fused.default,
        (*arguments, False, True, False, False, False, True),
    )


def _with_nan(name: str, x: Tensor | None) -> Tensor | None:
    if x is None or name not in {"u", "delta", "B", "C", "z"}:
        return x
    x = x.clone()
    x[19] = torch.nan
    return x


@pytest.mark.gpu
@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
@pytest.mark.parametrize("discretization", ["euler", "zoh"])
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(
    name: str, discretization: Discretization, reverse: bool
) -> None:
    case = replace((SMALL | LARGE)[name], discretization=discretization, reverse=reverse)
    assert_scan_right(draw(case), "fused", "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
@pytest.mark.parametrize("name", ["many sequences", "one long"])
def test_kernels_are_as_exact_as_for_large_inputs(
    name: str, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("graphmamba.ops.selective_scan.cut"), "SMALL_STATES", 0)
    monkeypatch.setattr(import_module("graphmamba.ops.selective_scan.fused"), "SMALL_PARTS", 0)
    assert_scan_right(draw(replace(LARGE[name], reverse=reverse)), "fused", "cuda")
