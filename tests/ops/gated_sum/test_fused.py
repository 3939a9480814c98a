import pytest

from tests.helpers.gated_calls import Call, assert_gated_right, draw
from tests.helpers.processes import only_interpreted, run_apart

SMALL = {
    "molecules": lambda: draw((2, 3, 1, 4) * 5, 33),
    "shuffled, scale": lambda: draw((2, 3, 0, 4) * 5, 5, is_sorted=False, has_scale=True),
    "hubs": lambda: draw((3, 90, 0, 1, 2, 150, 1), 6),
    "hubs, shuffled, scale": lambda: draw(
        (3, 90, 0, 1, 80, 1), 40, is_sorted=False, has_scale=True
    ),
    "dense": lambda: draw((70, 40, 65), 16, has_scale=True),
    "middle": lambda: draw((9, 14, 0, 100, 7, 9, 11), 3),
    "nothing comes back to the edges": lambda: draw((2, 20, 1), 4, ends=("d_x",)),
    "nothing comes back to the nodes": lambda: draw((2, 20, 1), 4, ends=("d_e",)),
    "one node": lambda: draw((1,), 1),
    "no edges": lambda: draw((0, 0, 0), 4, has_scale=True),
    "no nodes": lambda: draw((), 4),
}
LARGE = {
    "peptides": lambda: draw((2, 3, 1, 2, 1, 4) * 900, 96),
    "odd channels": lambda: draw((2, 3, 1, 2, 1, 4) * 90, 95, has_scale=True),
    "clusters": lambda: draw((45, 60, 52) * 70, 64),
    "thousands at a hub": lambda: draw((2, 1, 3, 0) * 200 + (5000,) + (1, 2) * 300, 64),
    "shuffled": lambda: draw((2, 1, 3, 0) * 200 + (500,), 52, is_sorted=False, has_scale=True),
}


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_the_reference() -> None:
    run_apart(
        "from tests.helpers.gated_calls import assert_gated_right\n"
        "from tests.ops.gated_sum.test_fused import SMALL\n"
        "for draw in SMALL.values():\n"
        "    assert_gated_right(draw(), 'fused')\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    call: Call = (SMALL | LARGE)[name]()
    assert_gated_right(call, "fused", "cuda")
