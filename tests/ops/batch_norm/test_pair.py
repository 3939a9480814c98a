"""Two batch norms that are added up as one operation, held to the two."""

import pytest
import torch

from graphmamba.errors import UserError
from graphmamba.ops.batch_norm import Drop, Running
from graphmamba.ops.batch_norm.pair import Norm, batch_norm_pair
from tests.helpers.agreement import assert_bit_equal
from tests.helpers.pair_calls import (
    LARGE,
    SMALL,
    assert_pair_right,
    assert_rounded_rows_right,
    assert_strided_rows_right,
    compute,
)
from tests.helpers.processes import only_interpreted, run_apart
from tests.helpers.typecheck import typecheck_off


@pytest.mark.parametrize("name", SMALL)
def test_the_reference_is_one_norm_after_the_other(name: str) -> None:
    case = SMALL[name]
    ours, apart = (compute(case, form, torch.float64) for form in ("reference", "apart"))
    assert_bit_equal(ours, apart)


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_two_norms() -> None:
    run_apart(
        "from tests.helpers.pair_calls import *\n"
        "from graphmamba.ops.batch_norm.pair import fused\n"
        "from graphmamba.ops.batch_norm.tiles import Tile, Tiles\n"
        "for case in SMALL.values():\n"
        "    assert_pair_right(case, is_repeated=False)\n"
        "assert_rounded_rows_right()\n"
        "assert_strided_rows_right()\n"
        "check_operators()\n"
        "few = Tile(rows=16, programs=4)\n"
        "fused.TILES = Tiles(few, Tile(rows=32, programs=6), few, Tile(rows=8, programs=8))\n"
        "for name in ('several programs', 'layer with dropout'):\n"
        "    assert_pair_right(SMALL[name])\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_two_norms(name: str) -> None:
    assert_pair_right((SMALL | LARGE)[name], "cuda")


@pytest.mark.gpu
def test_kernels_take_rows_of_any_type_and_stride() -> None:
    assert_rounded_rows_right("cuda")
    assert_strided_rows_right("cuda")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"b": torch.zeros(3, 4)}, r"b must have shape \[5, 4\].*got \[3, 4\]"),
        ({"before": torch.zeros(5, 3)}, r"before must have shape \[5, 4\].*got \[5, 3\]"),
        ({"drop": Drop(1.0, torch.tensor(1), 0)}, r"drop.rate must be in \[0, 1\), got 1.0"),
        ({"backend": "fused"}, "backend must be 'reference' for torch.float64"),
    ],
)
def test_refusals_name_the_argument(change: dict[str, object], message: str) -> None:
    rows, ones = torch.zeros(5, 4, dtype=torch.float64), torch.ones(4)
    norm = Norm(ones, ones, Running(ones.clone(), ones.clone()))
    with typecheck_off(), pytest.raises(UserError, match=message):
        batch_norm_pair(**{"a": rows, "b": rows, "first": norm, "second": norm, **change})
