"""The selective scan on a GPU: which kernels run, on which chunks; README.md derives it."""

from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphmamba.ops.registration import either
from graphmamba.ops.selective_scan.triton_backward_kernels import (
    finish_bwd_kernel,
    selective_scan_bwd_kernel,
    sparse_scan_bwd_kernel,
)
from graphmamba.ops.selective_scan.triton_forward_kernels import (
    carry_kernel,
    local_bwd_kernel,
    local_fwd_kernel,
    prepare_kernel,
    segment_kernel,
    selective_scan_fwd_kernel,
)
from graphmamba.ops.selective_scan.triton_step_kernels import (
    CHANNELS,
    HELD,
    STATES,
    has_a_channel_a_thread,
)
from graphmamba.ops.triton_launch import ceil_div, starts_early, sum_rows

BLOCK_CHANNELS = 32
"""Channels of one program: one for each thread of a warp."""
TARGET_PROGRAMS = 2400
"""Warps that keep a large GPU busy; the packed axis is divided until there are about so many."""
LONGEST_CHUNK = 512
"""Steps of a chunk beyond which too few programs would be left."""
EVEN_CHUNKS = range(320, 481, 32)
"""Steps of a chunk instead of the longest, so that programs come in whole waves."""
EVEN_BACKWARD_CHUNKS = range(320, 641, 32)
"""The same in the backward pass, where one wave of long programs is as good as two of others."""
WAVE = 132 * 12
"""Programs of the last backward kernel that an H200 has room for at a time."""
LONG_CHUNK, SMALL_LINKS = 128, 64 << 20
"""Steps beyond which chunks grow only to save memory: when what they pass on takes more bytes."""
SMALL_STATES = 24 << 20
"""Up to so many bytes, states are kept as densely as the backward pass wants them."""
SPARSE_INTERVAL = 16
"""Steps from one kept state to the next where there are more."""


@dataclass(frozen=True)
class Partition:
    """One way to divide the work."""

    chunk: int
    """Steps of one program: a power of two up to 32, a multiple of 32 beyond."""
    group: int
    """Steps whose states the backward pass holds in registers."""
    interval: int
    """Steps from one kept state to the next."""
    states: int
    """States of a tile, a power of two."""
    block: int
    """Channels of a tile."""
    blocks: int
    """Tiles beside one another."""

    @property
    def width(self) -> int:
        """Channels, filled up to whole tiles."""
        return self.block * self.blocks

    def chunks(self, steps: int) -> int:
        """Return how many programs share the packed axis."""
        return -(-steps // self.chunk)


def partition(steps: int, inner: int, state: int, *, backward: bool = False) -> Partition:
    """Choose the partition of a pass from shapes alone: it never waits for the device.

    Both keep the same states, since chunks are whole intervals.
    """
    states, block, blocks, group = _tile(inner, state)
    chunk = 16
    # Longer chunks mean fewer states passed on, forward and backward, and fewer sums.
    links = 3 * 4 * steps * states * block * blocks
    while chunk < LONGEST_CHUNK and steps * blocks > 1.4 * TARGET_PROGRAMS * chunk:
        if chunk >= LONG_CHUNK and links <= SMALL_LINKS * chunk:
            break
        chunk *= 2
    if chunk == LONGEST_CHUNK:
        evens = EVEN_BACKWARD_CHUNKS if backward else EVEN_CHUNKS
        chunk = max(evens, key=lambda even: _filled(-(-steps // even)))
    return Partition(chunk, group, _interval(steps, inner, state), states, block, blocks)


def states_shape(steps: int, inner: int, state: int) -> tuple[int, int, int]:
    """Return the shape of what the backward pass starts from, in tiles of all channels.

    First come the states, then one tile for log2(e) A, then those that hold the bits of the starts.
    """
    states, block, blocks, _ = _tile(inner, state)
    width = block * blocks
    tiles = -(-steps // _interval(steps, inner, state))
    return tiles + min(steps, 1) + -(-start_words(steps) // (states * width)), states, width


def start_words(steps: int) -> int:
    """Return how many words of 32 bits tell the steps that start a sequence."""
    return -(-steps // 32)


def _filled(programs: int) -> float:
    """Return which share of their waves so many programs fill."""
    return programs / (-(-programs // WAVE) * WAVE)


def _tile(inner: int, state: int) -> tuple[int, int, int, int]:
    states = 1 << (state - 1).bit_length()
    block = BLOCK_CHANNELS if states <= BLOCK_CHANNELS else BLOCK_CHANNELS // 2
    return states, block, -(-inner // block), max(1, min(4, 64 // states))


def _interval(steps: int, inner: int, state: int) -> int:
    states, block, blocks, group = _tile(inner, state)
    dense = -(-steps // group) * states * block * blocks * 4
    return group if dense <= SMALL_STATES else SPARSE_INTERVAL


SEGMENT = 32
"""Chunks that are taken one after another where sequences have very many."""
MANY = 256
"""Chunks of an average sequence from which on segments of them are taken side by side."""
AHEAD = 8
"""Links that are loaded at a time."""
MOST_WALKS = 2048
"""Programs that go over chunks; where there are more sequences, each takes several."""
WORDS = 8
"""Words of 32 start bits that one program writes."""

Links = tuple[Tensor, Tensor, Tensor]
"""For each chunk: the state it passes on, its sum of dt, and whether anything passes through it."""


class Prepared(NamedTuple):
    """What all kernels of both passes read beside the inputs."""

    starts: Tensor
    """A bit for each step that starts a sequence, then zeros."""
    A2: Tensor
    """log2(e) A as the tiles read it."""


def prepared_in(tiles: Tensor, steps: int) -> Prepared:
    """Find them in the last tiles of what the backward pass starts from, as `states_shape` says."""
    count = -(-start_words(steps) // tiles[0].numel())
    starts = tiles[len(tiles) - count :].view(-1).view(torch.int32)
    return Prepared(starts, tiles[len(tiles) - count - 1])


def empty_prepared(steps: int, plan: Partition, device: torch.device) -> Prepared:
    """Return room for them alone, where no backward pass will follow."""
    starts = torch.empty(start_words(steps), dtype=torch.int32, device=device)
    shape = plan.states, plan.width
    return Prepared(starts, torch.empty(shape, dtype=torch.float32, device=device))


def prepare(
    cu_seqlens: Tensor, A: Tensor, steps: int, plan: Partition, room: Prepared, *, log_A: bool,
    reverse: bool,
) -> None:  # fmt: skip
    """Mark the starts and lay out A, or -exp(A) if `log_A`, in `room`."""
    starts, A2 = room
    blocks = ceil_div(starts.shape[0], WORDS)
    prepare_kernel[(blocks + ceil_div(A2.numel(), 32 * WORDS),)](
        cu_seqlens, A, starts, A2, cu_seqlens.shape[0], steps, A.shape[0], A.shape[1], A.stride(0),
        blocks, starts.shape[0], WIDTH=plan.width, N=plan.states, WORDS=WORDS, LOG_A=log_A,
        REVERSE=reverse, num_warps=4, PDL=early(A.device)["PDL"],
    )  # fmt: skip


def early(device: torch.device) -> dict[str, bool]:
    """Return the options of a kernel that is launched while the one before it is ending.

    Such a kernel has to `follow`; only the first of a row, which others may precede, starts late.
    """
    return {"PDL": True, "launch_pdl": True} if starts_early(device) else {"PDL": False}


def late(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the first kernel of a row, of which nobody knows what precedes it."""
    return {name: value for name, value in options.items() if name != "launch_pdl"}


def empty_links(chunks: int, plan: Partition, device: torch.device) -> Links:
    """Return room for the links of `chunks` chunks."""
    ends = torch.empty((chunks, plan.states, plan.width), dtype=torch.float32, device=device)
    sums = torch.empty((chunks, plan.width), dtype=torch.float32, device=device)
    return ends, sums, torch.empty(chunks, dtype=torch.int8, device=device)


def carry(
    A2: Tensor, links: Links, enter: Tensor, cu_seqlens: Tensor, steps: int, plan: Partition,
    stride: int, *, reverse: bool, backward: bool,
) -> None:  # fmt: skip
    """Pass states on from chunk to chunk.

    Args:
        A2: log2(e) A as `prepare` gives it.
        links: What each chunk passes on by itself.
        enter: Where the state that each chunk is entered with goes, `stride` tiles apart.
        cu_seqlens: Where sequences begin; where they have very many chunks each, segments of chunks
            are taken side by side.
        steps: Length of the packed axis.
        plan: The partition.
        stride: Tiles from one chunk's entry in `enter` to the next.
        reverse: Walk each sequence from its end.
        backward: Pass adjoints against time instead of states with it.
    """
    chunks, sequences = links[2].shape[0], cu_seqlens.shape[0] - 1
    tile: dict[str, Any] = {
        "WIDTH": plan.width, "N": plan.states, "C": plan.block, "BACKWARD": backward,
        "num_warps": 4, **early(A2.device),
    }  # fmt: skip
    along = tile | {"CHUNK": plan.chunk, "REVERSE": reverse, "AHEAD": AHEAD}
    step = plan.states * plan.width
    if chunks <= MANY * sequences:
        carry_kernel[(min(sequences, MOST_WALKS), plan.blocks)](
            A2, *links, enter, cu_seqlens, sequences, steps, chunks, stride * step,
            BY_SEQUENCE=True, **along,
        )  # fmt: skip
        return
    segments = ceil_div(chunks, SEGMENT)
    folded = empty_links(segments, plan, A2.device)
    segment_enter = torch.empty_like(folded[0])
    launch = segment_kernel[(segments, plan.blocks)]
    arguments = (A2, *links, enter, stride * step, *folded, segment_enter, chunks)
    shape: dict[str, Any] = tile | {"SEGMENT": SEGMENT, "AHEAD": min(AHEAD, SEGMENT)}
    if segments > 1:
        launch(*arguments, FOLDS=True, **shape)
        carry_kernel[(1, plan.blocks)](
            A2, *folded, segment_enter, cu_seqlens, 1, steps, segments, step, BY_SEQUENCE=False,
            **along,
        )  # fmt: skip
    launch(*arguments, FOLDS=False, **shape)


__all__ = ["backward", "forward", "states_shape"]

UNROLL = 4
"""Steps that a kernel unrolls before it loops."""
SMALL_PARTS = 64 << 20
"""Up to so many bytes, all blocks of channels write their share of dB and dC side by side."""


SPARSE_REGISTERS = 168
"""Registers of a thread where states are held in shared memory: three warps to a scheduler."""
SPARSE_UNROLL = 2
"""Steps that the backward kernel of long inputs unrolls before it loops."""


def forward(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None,
    delta_bias: Tensor | None, cu_seqlens: Tensor, order: Tensor | None, scatter: bool,
    softplus: bool, zoh: bool, reverse: bool, log_A: bool, keep_states: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the output and what `backward` starts from (nothing if `keep_states` is false)."""
    (steps, inner), state = u.shape, A.shape[1]
    y = torch.empty_like(u, memory_format=torch.contiguous_format)
    nothing = u.new_empty(states_shape(0, inner, state), dtype=torch.float32)
    if steps == 0:
        return y, nothing
    plan = partition(steps, inner, state)
    chunks = plan.chunks(steps)
    if keep_states:
        interval = plan.interval
        states = u.new_empty(states_shape(steps, inner, state), dtype=torch.float32)
        room = prepared_in(states, steps)
    else:
        interval = plan.chunk
        states = u.new_empty((chunks, *nothing.shape[1:]), dtype=torch.float32)
        room = empty_prepared(steps, plan, u.device)
    prepare(cu_seqlens, A, steps, plan, room, log_A=log_A, reverse=reverse)
    starts, A2 = room
    common = _shape(plan, inner, state, u.device) | {
        "HAS_BIAS": delta_bias is not None, "SOFTPLUS": softplus, "ZOH": zoh, "REVERSE": reverse,
        "U_STRIDE": u.stride(0), "DELTA_STRIDE": delta.stride(0), "B_STRIDE": B.stride(0),
        "B_SHIFT": _shift(B),
    }  # fmt: skip
    if chunks > 1:
        links = empty_links(chunks, plan, u.device)
        local_fwd_kernel[(chunks - 1, plan.blocks)](
            u, delta, A2, _aligned(B), either(delta_bias, u), starts, *links, steps, GROUP=UNROLL,
            **common,
        )  # fmt: skip
        stride = plan.chunk // interval
        carry(A2, links, states, cu_seqlens, steps, plan, stride, reverse=reverse, backward=False)
    selective_scan_fwd_kernel[(chunks, plan.blocks)](
        u, delta, A2, _aligned(B), _aligned(C), either(D, u), either(z, u), either(delta_bias, u),
        starts, either(order, starts), states, y, steps, _rows(z), C_STRIDE=C.stride(0),
        C_SHIFT=_shift(C), Z_STRIDE=_stride(z), INTERVAL=interval,
        GROUP=min(UNROLL, interval) if steps >= UNROLL else 1, HAS_D=D is not None,
        HAS_Z=z is not None, HAS_ORDER=order is not None, SCATTER=scatter,
        HAS_SAMPLES=_has_samples(z, order, scatter, steps), **common,
    )  # fmt: skip
    return y, states if keep_states else nothing


class Parts(NamedTuple):
    """What the programs of the backward pass found, to be added up."""

    parameters: Tensor
    """For each chunk: its share of dA, dD and the gradient of the bias."""
    B: Tensor
    """For each block of channels: its share of dB [steps, state]."""
    C: Tensor


def backward(
    grad: Tensor, states: Tensor, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor,
    D: Tensor | None, z: Tensor | None, delta_bias: Tensor | None, cu_seqlens: Tensor,
    order: Tensor | None, scatter: bool, softplus: bool, zoh: bool, reverse: bool, log_A: bool,
    keep_states: bool = True,  # noqa: ARG001 - they are here
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of u, delta, A, B, C, D, z, delta_bias; empty for what is absent."""
    dA, dB, dC, dD, dbias = (_empty_like(t, u) for t in (A, B, C, D, delta_bias))
    if u.shape[0] == 0:
        du, ddelta, dz = (_empty_like(t, u) for t in (u, delta, z))
        return du, ddelta, dA.zero_(), dB, dC, dD.zero_(), dz.zero_(), dbias.zero_()
    du, ddelta, dz, parts = backward_rows(
        grad, states, u, delta, A, B, C, D, z, delta_bias, cu_seqlens, order, scatter, softplus,
        zoh, reverse, rooms=(dB, dC),
    )  # fmt: skip
    add_parts(A, parts, (dA, dD, dbias, dB, dC), log_A=log_A)
    return du, ddelta, dA, dB, dC, dD, dz, dbias


def backward_rows(
    grad: Tensor, states: Tensor, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor,
    D: Tensor | None, z: Tensor | None, delta_bias: Tensor | None, cu_seqlens: Tensor,
    order: Tensor | None, scatter: bool, softplus: bool, zoh: bool, reverse: bool, *,
    rooms: tuple[Tensor, Tensor] | None = None, room_z: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Parts]:  # fmt: skip
    """Return the gradients of u, delta and z, and what `add_parts` adds up for the others.

    `rooms` is where dB and dC will go, which are parts themselves where one block finds all;
    `room_z` is where that of z goes, between others in wider rows.
    """
    (steps, inner), state = u.shape, A.shape[1]
    du, ddelta = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (u, delta))
    plan = partition(steps, inner, state, backward=True)
    chunks = plan.chunks(steps)
    starts, A2 = prepared_in(states, steps)
    has_samples = _has_samples(z, order, scatter, steps)
    common = _shape(plan, inner, state, u.device) | {
        "HAS_BIAS": delta_bias is not None, "HAS_Z": z is not None, "HAS_ORDER": order is not None,
        "HAS_SAMPLES": has_samples, "SCATTER": scatter, "SOFTPLUS": softplus, "REVERSE": reverse,
        "GRAD_STRIDE": grad.stride(0), "DELTA_STRIDE": delta.stride(0), "C_STRIDE": C.stride(0),
        "C_SHIFT": _shift(C), "Z_STRIDE": _stride(z),
    }  # fmt: skip
    adjoints = u.new_empty((chunks, plan.states, plan.width), dtype=torch.float32)
    if chunks > 1:
        links = empty_links(chunks, plan, u.device)
        local_bwd_kernel[(chunks, plan.blocks)](
            grad, delta, A2, _aligned(C), either(z, u), either(delta_bias, u), starts,
            either(order, starts), *links, steps, _rows(z), GROUP=UNROLL, **late(common),
        )  # fmt: skip
        carry(A2, links, adjoints, cu_seqlens, steps, plan, 1, reverse=reverse, backward=True)

    # Where gradients of a row's steps have to be summed, that is done in full precision.
    is_summed = order is not None and (has_samples or not scatter)
    dz = room_z
    if dz is None or is_summed:
        shape, dtype = (steps, inner), torch.float32 if is_summed else u.dtype
        dz = u.new_empty(shape if z is not None else (0,), dtype=dtype)
    across = plan.blocks if plan.blocks * steps * state * 4 <= SMALL_PARTS else 1
    dB, dC = rooms or (u.new_empty((steps, state)), u.new_empty((steps, state)))
    parts = Parts(
        u.new_empty((chunks, plan.states + 2, plan.width), dtype=torch.float32),
        *(_parts_of(t, across) for t in (dB, dC)),
    )
    _run_backward(
        (grad, u, delta, A2, _aligned(B), _aligned(C), either(D, u), either(z, u),
         either(delta_bias, u), starts, either(order, starts), states, adjoints, du,
         ddelta, parts.B, parts.C, dz, parts.parameters, steps, _rows(z), chunks),
        (chunks, across), plan,
        (common if chunks > 1 else late(common))
        | {"U_STRIDE": u.stride(0), "B_STRIDE": B.stride(0), "B_SHIFT": _shift(B),
           "HAS_D": D is not None, "ZOH": zoh, "NATIVE": u.is_cuda, "DZ_STRIDE": dz.stride(0)},
    )  # fmt: skip
    if z is not None and order is not None and is_summed:
        dz = sum_rows(dz, order, z.shape[0], is_permutation=scatter).to(z.dtype)
        dz = dz if room_z is None else room_z.copy_(dz)
    return du, ddelta, dz, parts


def _run_backward(
    arguments: tuple[Any, ...], grid: tuple[int, int], plan: Partition, common: dict[str, Any]
) -> None:
    """Run the backward kernel over all blocks of channels, as many at a time as `grid` has."""
    is_plain = plan.states == common["STATE"] == STATES and plan.block == CHANNELS
    halves = arguments[0].is_cuda and is_plain
    for first_block in range(0, plan.blocks, grid[1]):
        shape = common | {
            "GROUP": plan.group, "FIRST_BLOCK": first_block, "ACCUMULATE": first_block > 0,
        }  # fmt: skip
        compiled = _launch_backward(arguments, grid, plan, shape, halves=halves)
        # without one, the kernel has only been asked for
        if halves and compiled and not has_a_channel_a_thread(compiled.asm["ttgir"]):
            if first_block > 0:
                raise RuntimeError("Triton laid out two blocks of channels in different ways")
            # Another version of Triton may lay tiles out in another way; plain sums are right then.
            halves = False
            _launch_backward(arguments, grid, plan, shape, halves=False)


def _launch_backward(
    arguments: tuple[Any, ...], grid: tuple[int, int], plan: Partition, shape: dict[str, Any], *,
    halves: bool,
) -> Any:  # fmt: skip
    """Run the backward kernel once, and return what Triton compiled for it."""
    if plan.interval == plan.group:
        return selective_scan_bwd_kernel[grid](*arguments, HALVES=halves, **shape)
    tiles = 0 if halves else grid[0] * grid[1] * HELD
    scratch = arguments[0].new_empty((tiles, plan.states, plan.block), dtype=torch.float32)
    registers = {"maxnreg": SPARSE_REGISTERS} if halves else {}
    B, C = arguments[4:6]
    return sparse_scan_bwd_kernel[grid](
        *arguments, scratch, INTERVAL=plan.interval, HELD=HELD, HALVES=halves,
        B_VECTOR=_vector(B, shape["B_STRIDE"], shape["B_SHIFT"]),
        C_VECTOR=_vector(C, shape["C_STRIDE"], shape["C_SHIFT"]),
        **shape | {"GROUP": min(plan.group, SPARSE_UNROLL)}, **registers,
    )  # fmt: skip


def add_parts(
    A: Tensor, parts: Parts, gradients: tuple[Tensor, ...], *, log_A: bool,
    is_late: bool = False,
) -> None:  # fmt: skip
    """Sum what the programs found for the parameters, and what the blocks found for B and C.

    Args:
        A: The rates.
        parts: All that is added up.
        gradients: Those of A, D, the bias, and of B and C, empty where they are not wanted.
        log_A: Whether the rates are -exp(A).
        is_late: Whether other kernels than those of the scan precede this one.
    """
    dA, dD, dbias, dB, dC = gradients
    inner, state = A.shape
    plan = partition(parts.B.shape[1], inner, state, backward=True)
    rows, columns = 256, plan.block
    sums = (plan.states + 2) * plan.width // columns
    entries = 0 if _is_part(parts.B, dB) else ceil_div(dB.numel(), rows * columns)
    start = {"PDL": False} if is_late else early(A.device)
    finish_bwd_kernel[(sums + entries,)](
        A, parts.parameters, parts.B, parts.C, dA, dD, dbias, dB, dC, parts.parameters.shape[0],
        dB.numel(), A.stride(0), INNER=inner, STATE=state, WIDTH=plan.width, N=plan.states,
        BLOCKS=parts.B.shape[0], ROWS=rows, COLUMNS=columns, LOG_A=log_A,
        HAS_D=dD.numel() > 0, HAS_BIAS=dbias.numel() > 0, num_warps=8, **start,
    )  # fmt: skip


def _shape(plan: Partition, inner: int, state: int, device: torch.device) -> dict[str, Any]:
    return {
        "INNER": inner, "STATE": state, "CHUNK": plan.chunk, "WIDTH": plan.width,
        "N": plan.states, "C": plan.block, "num_warps": 1, **early(device),
    }  # fmt: skip


def _parts_of(gradient: Tensor, across: int) -> Tensor:
    """Return room for the shares of `across` blocks: the gradient itself if there is one alone."""
    if across == 1 and gradient.dtype == torch.float32:
        return gradient.unsqueeze(0)
    return gradient.new_empty((across, *gradient.shape), dtype=torch.float32)


def _is_part(parts: Tensor, gradient: Tensor) -> bool:
    return parts.data_ptr() == gradient.data_ptr()


def _has_samples(z: Tensor | None, order: Tensor | None, scatter: bool, steps: int) -> bool:
    return scatter and z is not None and order is not None and z.shape[0] != steps


def _empty_like(tensor: Tensor | None, u: Tensor) -> Tensor:
    if tensor is None:
        return u.new_empty(0)
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def _rows(z: Tensor | None) -> int:
    return 1 if z is None else z.shape[0]


def _stride(z: Tensor | None) -> int:
    return 0 if z is None else z.stride(0)


def _aligned(tensor: Tensor) -> Tensor:
    """Give the kernel a pointer that 16 bytes can be read from; `_shift` says where data begins.

    B and C are columns of one projection, so that their own pointers are seldom aligned.
    """
    return tensor.as_strided((1,), (1,), tensor.storage_offset() - _shift(tensor))


def _vector(aligned: Tensor, stride: int, shift: int) -> int:
    """Return how many values at most can be read at once, up to 4, wherever a row begins."""
    return gcd(stride, shift, 4) if aligned.data_ptr() % 16 == 0 else 1


def _shift(tensor: Tensor) -> int:
    return int(tensor.storage_offset()) % (16 // tensor.element_size())
