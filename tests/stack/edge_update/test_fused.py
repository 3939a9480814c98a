"""The Triton form of the gated sum with the norm of its edges."""

import pytest
import torch

from tests.helpers.edge_calls import (
    LARGE,
    SMALL,
    assert_like_both,
    assert_mapped_close,
    assert_update_right,
)
from tests.helpers.processes import only_interpreted, run_apart


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_the_reference() -> None:
    run_apart(
        "from tests.helpers.edge_calls import *\n"
        "from graphmamba.stack.edge_update import fused\n"
        "for case in SMALL.values():\n"
        "    assert_update_right(case, is_repeated=False)\n"
        "assert_like_both(SMALL['hubs, shuffled, ghosts'], torch.bfloat16, 0.03)\n"
        "fused.JOINED, fused.MOST_JOINED = 2, 3\n"
        "for name in ('molecules', 'ghosts'):\n"
        "    assert_update_right(SMALL[name])\n"
        "check_operators()\n",
        TRITON_INTERPRET="1",
    )


@only_interpreted
def test_interpreted_kernels_map_edges_as_exactly_as_the_reference() -> None:
    run_apart(
        "from dataclasses import replace\n"
        "from tests.helpers.edge_calls import *\n"
        "from graphmamba.stack.edge_update import fused\n"
        "fused.MAP_TILE = replace(fused.MAP_TILE, programs=2)\n"
        "names = 'molecules', 'dense, dropped', 'shuffled', 'ghosts', 'one edge', 'no edges'\n"
        "for name in (*names, 'edges are not read', 'nodes are not read'):\n"
        "    assert_mapped_right(SMALL[name])\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["molecules", "ghosts", "clusters", "small clusters"])
def test_kernels_map_edges_as_exactly_as_tf32(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
    assert_mapped_close((SMALL | LARGE)[name], 0.02, "cuda")


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
