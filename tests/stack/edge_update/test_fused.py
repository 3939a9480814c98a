"""The Triton form of the gated sum with the norm of its edges."""

import pytest
import torch

from tests.helpers.edge_calls import (
    LARGE,
    SMALL,
    assert_like_both,
    assert_update_right,
)
from tests.helpers.processes import only_interpreted, run_apart


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_the_reference() -> None:
    run_apart(
        "from tests.helpers.edge_calls import *\n"
        "for case in SMALL.values():\n"
        "    assert_update_right(case, is_repeated=False)\n"
        "assert_like_both(SMALL['hubs, shuffled, ghosts'], torch.bfloat16, 0.03)\n"
        "for name in ('molecules', 'ghosts'):\n"
        "    assert_update_right(SMALL[name])\n"
        "check_operators()\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    assert_update_right((SMALL | LARGE)[name], "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["peptides", "clusters"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_half_precision_agrees_with_both_operations(
    name: str, dtype: torch.dtype, tolerance: float
) -> None:
    assert_like_both(LARGE[name], dtype, tolerance, "cuda")
