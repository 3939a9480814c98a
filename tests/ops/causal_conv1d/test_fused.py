import pytest

from tests.helpers.conv_calls import Call, draw
from tests.helpers.doors import assert_conv_right
from tests.helpers.processes import only_interpreted, run_apart

SMALL = {
    "as it lies": lambda: draw((5, 0, 1, 40), 3),
    "repeated, reverse": lambda: draw((5, 0, 1, 40), 3, order="repeated", reverse=True),
    "permutation, bare": lambda: draw(
        (40, 1, 5), 3, 3, "permutation", has_bias=False, activation=False
    ),
    "samples, eight taps": lambda: draw((5, 0, 1, 39), 2, 8, "samples", reverse=True),
    "one tap": lambda: draw((1, 33), 2, 1, "permutation"),
    "no activation": lambda: draw((35,), 33, 2, activation=False, reverse=True),
    "no steps": lambda: draw((0, 0), 3),
}
LARGE = {
    "many sequences": lambda: draw((63, 1, 200, 0) * 40, 96),
    "odd channels, samples": lambda: draw((63, 1, 200) * 9, 95, 4, "samples", reverse=True),
    "one long": lambda: draw((60_000,), 64, 4, "permutation"),
    "repeated": lambda: draw((1000, 3, 800), 52, 5, "repeated"),
}


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_the_reference() -> None:
    run_apart(
        "from tests.helpers.doors import assert_conv_right\n"
        "from tests.ops.causal_conv1d.test_fused import SMALL\n"
        "for draw in SMALL.values():\n"
        "    assert_conv_right(draw(), 'fused')\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    call: Call = (SMALL | LARGE)[name]()
    assert_conv_right(call, "fused", "cuda")
