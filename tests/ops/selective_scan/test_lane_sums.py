"""The sums over channels that are written in PTX, followed instruction by instruction."""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.helpers.processes import needs_triton

STATES, CHANNELS = 16, 32
Values = NDArray[Any]
Registers = dict[str, Values]
LANE = np.arange(CHANNELS)
OPERATIONS: dict[str, Callable[..., Values]] = {
    "mov.f32": lambda a: a,
    "mul.f32": lambda a, b: a * b,
    "add.f32": lambda a, b: a + b,
    "fma.rn.f32": lambda a, b, c: a * b + c,
    "and.b32": lambda a, b: a.astype(int) & b.astype(int),
    "setp.ne.u32": lambda a, b: a != b,
    "selp.f32": np.where,
    "shfl.sync.bfly.b32": lambda a, distance, *_: a[LANE ^ int(distance[0])],
}


def run_warp(ptx: str, tiles: list[Values]) -> Values:
    """Return the first result of each of 32 threads, whose other operands are tiles by channel."""
    names = [f"${STATES * (1 + k) + i}" for k in range(len(tiles)) for i in range(STATES)]
    registers: Registers = dict(zip(names, np.concatenate(tiles), strict=True))
    registers["%laneid"] = LANE

    def read(name: str) -> Values:
        if name in registers:
            return registers[name]
        return np.full(CHANNELS, int(name, 0))

    for line in ptx.strip().strip("{}").split(";"):
        if not (found := re.fullmatch(r"\s*([\w.]+) (\$?\w+), (.*)", line)):
            assert not line.strip() or line.strip().startswith(".reg")
            continue
        operation, to, operands = found.groups()
        given = [read(name) for name in operands.split(", ")]
        if operation == "selp.f32":
            given = [given[2], given[0], given[1]]
        if operation == "mov.u32":
            operation = "mov.f32"
        registers[to] = OPERATIONS[operation](*given)
    return registers["$0"]


def draw_tiles() -> tuple[Values, Values, Values, Values]:
    g, h, v, dy = np.random.default_rng(0).normal(size=(4, STATES, CHANNELS))
    return g, h, v, dy


@needs_triton
def test_halving_leaves_every_sum_in_a_thread() -> None:
    sums = import_module("graphmamba.ops.selective_scan.lane_sums")
    g, h, v, dy = draw_tiles()
    is_upper = LANE >= STATES
    send = np.where(is_upper, g * v, h * dy)
    kept, scale = np.where(is_upper, h, g), np.where(is_upper, dy, v)
    found = run_warp(sums.HALVING.value, [send, kept, scale])
    np.testing.assert_allclose(found, np.concatenate([(g * v).sum(1), (h * dy).sum(1)]))


@needs_triton
def test_swapped_states_are_summed_where_their_pointers_say() -> None:
    swapped = import_module("graphmamba.ops.selective_scan.swapped_states")
    g, h, v, dy = draw_tiles()
    state = np.arange(STATES)[:, None] ^ (LANE // STATES * 8)[None, :]
    tiles = [np.take_along_axis(tile, state, axis=0) for tile in (g, v, h, dy)]
    found = run_warp(swapped.SWAPPED_SUMS.value, tiles)
    place, is_of_B = LANE % 8 + LANE // STATES * 8, LANE // 8 % 2 == 0
    wanted = np.where(is_of_B, (g * v).sum(1)[place], (h * dy).sum(1)[place])
    np.testing.assert_allclose(found, wanted)


@needs_triton
@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
def test_each_thread_loads_its_half_first(width: int, kind: str) -> None:
    swapped = import_module("graphmamba.ops.selective_scan.swapped_states")
    language = import_module("triton.language")
    ptx = swapped.swapped_load(width, getattr(language, kind))
    size = 4 if kind == "float32" else 2
    found = [
        (int(first) // STATES - 1) * 8 * size + int(offset)
        for first, offset in re.findall(r"\[\$(\d+)\+(\d+)\]", ptx)
    ]
    # The second half lies behind a pointer of its own, here taken to follow the first.
    assert found == list(range(0, STATES * size, width * size))
    names = re.findall(r"ld\.global\S* \{?(.*?)\}?, \[", ptx)
    letter = "$" if kind == "float32" else "x"
    assert ",".join(names).split(",") == [f"{letter}{i}" for i in range(STATES)]
