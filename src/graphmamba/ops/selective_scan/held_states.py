"""States before a few steps, held in shared memory from the walk onward to the walk back.

Registers would do for four steps of one channel a thread, and then for nothing else. Each thread
takes back what it put there itself, so that nobody waits for anybody. As in `lane_sums`, the PTX is
right only where a thread of a single warp holds one channel with its 16 states in order.
"""

from typing import no_type_check

import triton
import triton.language as tl

from graphmamba.ops.selective_scan.lane_sums import CHANNELS, STATES

HELD = 8
"""Steps whose states are held."""
_WORD, _VECTOR = 4, 16


def _room() -> str:
    """Return PTX for the address of shared memory for HELD tiles, and as many rows."""
    size = HELD * (STATES + 1) * CHANNELS * _WORD
    return f"{{ .shared .align 16 .b8 held[{size}]; mov.u32 $0, held; }}"


def _vectors(first: int, address: str) -> list[tuple[str, str]]:
    """Return place and registers of the four vectors of a thread's states."""
    return [
        (
            f"[{address}+{k * CHANNELS * _VECTOR}]",
            "{" + ",".join(f"${first + 4 * k + i}" for i in range(4)) + "}",
        )
        for k in range(STATES // 4)
    ]


def _put() -> str:
    stores = [
        f"@p st.shared.v4.f32 {place}, {states};"
        for place, states in _vectors(STATES, f"${2 * STATES}")
    ]
    test = f"setp.ge.s32 p, ${3 * STATES}, 0;"
    return "\n".join(["{", ".reg .pred p;", test, *stores, "}"])


def _take() -> str:
    return "\n".join(
        f"ld.shared.v4.f32 {states}, {place};" for place, states in _vectors(0, f"${STATES}")
    )


ROOM, PUT, TAKE = tl.constexpr(_room()), tl.constexpr(_put()), tl.constexpr(_take())
TAKEN = tl.constexpr(",".join(["=f"] * STATES + ["r"] * STATES))
GIVEN = tl.constexpr(",".join(["=f"] * STATES + ["f"] * STATES + ["r"] * (2 * STATES)))
ROWS, ROW_BYTES = tl.constexpr(HELD * STATES * CHANNELS * _WORD), tl.constexpr(CHANNELS * _WORD)
TILE_BYTES, VECTOR = tl.constexpr(STATES * CHANNELS * _WORD), tl.constexpr(_VECTOR)


@no_type_check
@triton.jit
def room_for_states(zero, C: tl.constexpr):
    """Return where each thread's states are held, as an address of shared memory [1, C]."""
    # Not pure: there is one such room, however often the compiler might like to ask for it.
    room = tl.inline_asm_elementwise(ROOM, "=r,r", [zero], dtype=tl.int32, is_pure=False, pack=1)
    return room + tl.arange(0, C)[None, :] * VECTOR


@no_type_check
@triton.jit
def put_states(room, slot, states):
    """Hold a tile [16, 32], unless the slot is below 0: a branch would cost more."""
    place = tl.broadcast_to(room + slot * TILE_BYTES, states.shape)
    given = [states, place, tl.broadcast_to(slot, states.shape)]
    tl.inline_asm_elementwise(PUT, GIVEN, given, dtype=tl.float32, is_pure=False, pack=16)


@no_type_check
@triton.jit
def take_states(room, slot, N: tl.constexpr):
    """Return a tile that was put there."""
    place = tl.broadcast_to(room + slot * TILE_BYTES, [N, room.shape[1]])
    return tl.inline_asm_elementwise(TAKE, TAKEN, [place], dtype=tl.float32, is_pure=False, pack=16)


@no_type_check
@triton.jit
def row_place(room, slot, C: tl.constexpr):
    """Return where the row of a step lies, behind all tiles."""
    lane = tl.arange(0, C)[None, :]
    return tl.reshape(room - lane * VECTOR + lane * 4, [C]) + ROWS + slot * ROW_BYTES


@no_type_check
@triton.jit
def put_row(room, slot, row):
    """Hold one value for each channel, likewise."""
    place = row_place(room, slot, row.shape[0])
    tl.inline_asm_elementwise(
        "{ .reg .pred p; setp.ge.s32 p, $3, 0; @p st.shared.f32 [$2], $1; }", "=f,f,r,r",
        [row, place, tl.broadcast_to(slot, place.shape)], dtype=tl.float32, is_pure=False, pack=1,
    )  # fmt: skip


@no_type_check
@triton.jit
def take_row(room, slot, C: tl.constexpr):
    """Return what was put there."""
    return tl.inline_asm_elementwise(
        "ld.shared.f32 $0, [$1];", "=f,r", [row_place(room, slot, C)], dtype=tl.float32,
        is_pure=False, pack=1,
    )  # fmt: skip
