"""The Triton form of the batch norm."""

import pytest

from tests.helpers.norm_calls import LARGE, SMALL
from tests.helpers.norm_doors import assert_drop_right, assert_norm_right, assert_types_right
from tests.helpers.processes import only_interpreted, run_apart


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_the_reference() -> None:
    run_apart(
        "from tests.helpers.norm_calls import SMALL\n"
        "from tests.helpers.norm_doors import *\n"
        "from graphmamba.ops.batch_norm import fused\n"
        "from graphmamba.ops.batch_norm.triton import Tile, Tiles\n"
        "for case in SMALL.values():\n"
        "    assert_norm_right(case, is_repeated=False)\n"
        "few = Tile(rows=16, programs=4)\n"
        "fused.TILES = Tiles(few, Tile(rows=32, programs=6), few, Tile(rows=8, programs=8))\n"
        "for name in ('several programs', 'everything'):\n"
        "    assert_norm_right(SMALL[name])\n"
        "for activation in ('relu', 'gelu', 'none'):\n"
        "    for shape in ((70, 35), (0, 3)):\n"
        "        assert_drop_right(activation, shape)\n"
        "assert_types_right()\n"
        "check_operators()\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    assert_norm_right((SMALL | LARGE)[name], "cuda")


@pytest.mark.gpu
def test_kernels_promote_types_as_the_reference_does() -> None:
    assert_types_right("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["relu", "gelu", "none"])
def test_dropout_drops_the_same_entries_as_the_reference(activation: str) -> None:
    assert_drop_right(activation, (5000, 192), "cuda")
