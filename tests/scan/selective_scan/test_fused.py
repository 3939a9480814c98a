from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from graphmamba.scan.options import Discretization
from tests.helpers.doors import assert_scan_right
from tests.helpers.processes import run_apart
from tests.helpers.scan_calls import Case, draw

SMALL = {
    "as it lies": Case((5, 0, 1, 40), 3, 2),
    "repeated, reverse": Case((5, 0, 1, 40), 3, 4, order="repeated", reverse=True),
    "permutation, zoh": Case((5, 0, 1, 40), 3, 3, order="permutation", discretization="zoh"),
    "samples": Case((5, 0, 1, 39), 2, 1, order="samples"),
    "bare": Case((33, 2), 2, 2, absent=("D", "z", "delta_bias"), softplus=False, reverse=True),
    "no steps": Case((0, 0), 3, 2),
}
LARGE = {
    "many sequences": Case((63, 1, 200, 0) * 10, 96, 16, order="permutation"),
    "odd channels": Case((63, 1, 200) * 3, 95, 3, order="samples"),
    "many states": Case((100, 30), 48, 64, order="repeated"),
    "one state": Case((300, 1), 52, 1),
    "one long": Case((3000,), 64, 16, order="permutation"),
}


@pytest.mark.skipif(find_spec("triton") is None, reason="needs triton")
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run on the GPU itself")
def test_interpreted_kernels_are_as_exact_as_the_reference() -> None:
    run_apart(
        "from tests.helpers.doors import assert_scan_right\n"
        "from tests.helpers.scan_calls import draw\n"
        "from tests.scan.selective_scan.test_fused import SMALL\n"
        "for case in SMALL.values():\n"
        "    assert_scan_right(draw(case), 'fused')\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("reverse", [False, True], ids=["onward", "reverse"])
@pytest.mark.parametrize("discretization", ["euler", "zoh"])
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(
    name: str, discretization: Discretization, reverse: bool
) -> None:
    case = replace((SMALL | LARGE)[name], discretization=discretization, reverse=reverse)
    assert_scan_right(draw(case), "fused", "cuda")
