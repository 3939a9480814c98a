"""Launches the Triton kernels of the selective scan; README.md has the algorithm."""

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

BLOCK_CHANNELS = 32  # of a program: one per thread of a warp
TARGET_PROGRAMS = 2400  # warps that keep a large GPU busy
LONGEST_CHUNK = 512  # steps; longer chunks would leave too few programs
EVEN_CHUNKS = range(320, 481, 32)  # lengths tried instead of the longest, to fill whole waves
EVEN_BACKWARD_CHUNKS = range(320, 641, 32)  # longer: one wave of long programs is good, too
WAVE = 132 * 12  # programs of the last backward kernel that run on an H200 at a time
# Chunks of LONG_CHUNK steps grow further only while their final states take more than SMALL_LINKS
# bytes.
LONG_CHUNK, SMALL_LINKS = 128, 64 << 20
SMALL_STATES = 24 << 20  # bytes up to which a state is saved for each group of steps
SPARSE_INTERVAL = 16  # steps between saved states otherwise


@dataclass(frozen=True)
class Partition:
    """Division of the work into chunks of steps and tiles of channels."""

    chunk: int  # steps of one program: a power of two up to 32, else a multiple of 32
    group: int  # steps whose states the backward pass keeps in registers
    interval: int  # steps between saved states
    states: int  # of a tile, a power of two
    block: int  # channels of a tile
    blocks: int  # tiles along the channels

    @property
    def width(self) -> int:
        """Number of channels, padded to whole tiles."""
        return self.block * self.blocks

    def chunks(self, steps: int) -> int:
        """Number of chunks."""
        return -(-steps // self.chunk)


def partition(steps: int, inner: int, state: int, *, backward: bool = False) -> Partition:
    """Choose the partition of a pass from shapes alone, without a GPU synchronisation.

    Both passes use the same saved states, since chunks are multiples of the interval.
    """
    states, block, blocks, group = _tile(inner, state)
    chunk = 16
    # links / chunk: bytes of all that chunks pass on in both passes
    links = 3 * 4 * steps * states * block * blocks
    while chunk < LONGEST_CHUNK and steps * blocks > 1.4 * TARGET_PROGRAMS * chunk:
        if chunk >= LONG_CHUNK and links <= SMALL_LINKS * chunk:
            break
        chunk *= 2
    if chunk == LONGEST_CHUNK:
        lengths = EVEN_BACKWARD_CHUNKS if backward else EVEN_CHUNKS
        chunk = max(lengths, key=lambda length: _filled(-(-steps // length)))
    return Partition(chunk, group, _interval(steps, inner, state), states, block, blocks)


def states_shape(steps: int, inner: int, state: int) -> tuple[int, int, int]:
    """Shape of the saved tensor, in tiles of all channels: states, log2(e) A, start bits."""
    states, block, blocks, _ = _tile(inner, state)
    width = block * blocks
    tiles = -(-steps // _interval(steps, inner, state))
    return tiles + min(steps, 1) + -(-start_words(steps) // (states * width)), states, width


def start_words(steps: int) -> int:
    """Number of 32-bit words with one bit per step, set where a sequence starts."""
    return -(-steps // 32)


def _filled(programs: int) -> float:
    """Fraction of whole waves that `programs` fill."""
    return programs / (-(-programs // WAVE) * WAVE)


def _tile(inner: int, state: int) -> tuple[int, int, int, int]:
    states = 1 << (state - 1).bit_length()
    block = BLOCK_CHANNELS if states <= BLOCK_CHANNELS else BLOCK_CHANNELS // 2
    return states, block, -(-inner // block), max(1, min(4, 64 // states))


def _interval(steps: int, inner: int, state: int) -> int:
    states, block, blocks, group = _tile(inner, state)
    dense = -(-steps // group) * states * block * blocks * 4
    return group if dense <= SMALL_STATES else SPARSE_INTERVAL


SEGMENT = 32  # chunks per segment, where sequences have very many chunks
MANY = 256  # mean chunks per sequence above which the carry runs over segments in parallel
AHEAD = 8  # links loaded at a time
MOST_WALKS = 2048  # programs of the carry; with more sequences, each takes several
WORDS = 8  # words of start bits that one program writes

# Per chunk: final state for an initial state of 0, sum of dt, and whether the initial state reaches
# the end.
Links = tuple[Tensor, Tensor, Tensor]


class Prepared(NamedTuple):
    """Inputs of all kernels that `prepare` computes."""

    starts: Tensor  # a bit per step, set where a sequence starts
    A2: Tensor  # log2(e) A, transposed and padded: [states, width]


def prepared_in(tiles: Tensor, steps: int) -> Prepared:
    """View the last tiles of the saved tensor of `states_shape`."""
    count = -(-start_words(steps) // tiles[0].numel())
    starts = tiles[len(tiles) - count :].view(-1).view(torch.int32)
    return Prepared(starts, tiles[len(tiles) - count - 1])


def prepare(
    cu_seqlens: Tensor, A: Tensor, steps: int, plan: Partition, out: Prepared, *, log_A: bool,
    reverse: bool,
) -> None:  # fmt: skip
    """Write start bits and log2(e) A, or -log2(e) exp(A) if `log_A`, to `out`."""
    starts, A2 = out
    blocks = ceil_div(starts.shape[0], WORDS)
    prepare_kernel[(blocks + ceil_div(A2.numel(), 32 * WORDS),)](
        cu_seqlens, A, starts, A2, cu_seqlens.shape[0], steps, A.shape[0], A.shape[1], A.stride(0),
        blocks, starts.shape[0], WIDTH=plan.width, N=plan.states, WORDS=WORDS, LOG_A=log_A,
        REVERSE=reverse, num_warps=4, PDL=early(A.device)["PDL"],
    )  # fmt: skip


def early(device: torch.device) -> dict[str, bool]:
    """Launch options for programmatic dependent launch after another kernel of this file.

    The kernel has to call `follow`.
    """
    return {"PDL": True, "launch_pdl": True} if starts_early(device) else {"PDL": False}


def late(options: dict[str, Any]) -> dict[str, Any]:
    """Launch options of the first kernel of a pass, which may follow any other kernel."""
    return {name: value for name, value in options.items() if name != "launch_pdl"}


def empty_links(chunks: int, plan: Partition, device: torch.device) -> Links:
    """Allocate the links of `chunks` chunks."""
    ends = torch.empty((chunks, plan.states, plan.width), dtype=torch.float32, device=device)
    sums = torch.empty((chunks, plan.width), dtype=torch.float32, device=device)
    return ends, sums, torch.empty(chunks, dtype=torch.int8, device=device)


def carry(
    A2: Tensor, links: Links, enter: Tensor, cu_seqlens: Tensor, steps: int, plan: Partition,
    stride: int, *, reverse: bool, backward: bool,
) -> None:  # fmt: skip
    """Pass states on from chunk to chunk.

    Args:
        A2: log2(e) A from `prepare`.
        links: Links of the chunks.
        enter: Output: initial state of each chunk, `stride` tiles apart.
        cu_seqlens: Boundaries of the sequences.
        steps: Length of the packed axis.
        plan: The partition.
        stride: Tiles between the initial states of two chunks in `enter`.
        reverse: Whether each sequence is scanned from its end.
        backward: Whether to pass adjoints backwards instead of states forwards.
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


UNROLL = 4  # steps per loop iteration
SMALL_PARTS = 64 << 20  # bytes up to which blocks of channels run in parallel, each with own dB, dC
SPARSE_REGISTERS = 168  # per thread of the sparse backward kernel: three warps per scheduler
SPARSE_UNROLL = 2  # steps per loop iteration of the sparse backward kernel


def forward(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None,
    delta_bias: Tensor | None, cu_seqlens: Tensor, order: Tensor | None, scatter: bool,
    softplus: bool, zoh: bool, reverse: bool, log_A: bool, keep_states: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Return the output and the saved tensor, which is empty without `keep_states`."""
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
        prepared = prepared_in(states, steps)
    else:
        interval = plan.chunk
        states = u.new_empty((chunks, *nothing.shape[1:]), dtype=torch.float32)
        prepared = Prepared(
            u.new_empty(start_words(steps), dtype=torch.int32),
            u.new_empty((plan.states, plan.width), dtype=torch.float32),
        )
    prepare(cu_seqlens, A, steps, plan, prepared, log_A=log_A, reverse=reverse)
    starts, A2 = prepared
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
    """Partial sums from the programs of the backward pass."""

    parameters: Tensor  # dA, dD and gradient of the bias, per chunk
    B: Tensor  # dB, per block of channels: [blocks, steps, state]
    C: Tensor


def backward(
    grad: Tensor, states: Tensor, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor,
    D: Tensor | None, z: Tensor | None, delta_bias: Tensor | None, cu_seqlens: Tensor,
    order: Tensor | None, scatter: bool, softplus: bool, zoh: bool, reverse: bool, log_A: bool,
    keep_states: bool = True,  # noqa: ARG001
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of u, delta, A, B, C, D, z, delta_bias; shape (0,) for None."""
    dA, dB, dC, dD, dbias = (_empty_like(t, u) for t in (A, B, C, D, delta_bias))
    if u.shape[0] == 0:
        du, ddelta, dz = (_empty_like(t, u) for t in (u, delta, z))
        return du, ddelta, dA.zero_(), dB, dC, dD.zero_(), dz.zero_(), dbias.zero_()
    du, ddelta, dz, parts = backward_rows(
        grad, states, u, delta, A, B, C, D, z, delta_bias, cu_seqlens, order, scatter, softplus,
        zoh, reverse, dBC=(dB, dC),
    )  # fmt: skip
    add_parts(A, parts, (dA, dD, dbias, dB, dC), log_A=log_A)
    return du, ddelta, dA, dB, dC, dD, dz, dbias


def backward_rows(
    grad: Tensor, states: Tensor, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor,
    D: Tensor | None, z: Tensor | None, delta_bias: Tensor | None, cu_seqlens: Tensor,
    order: Tensor | None, scatter: bool, softplus: bool, zoh: bool, reverse: bool, *,
    dBC: tuple[Tensor, Tensor] | None = None, dz_out: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Parts]:  # fmt: skip
    """Return the gradients of u, delta and z, and partial sums of the others for `add_parts`.

    `dBC` are the final buffers of dB and dC, which need no partial sums if blocks of channels run
    in turn. `dz_out` is a buffer for the gradient of z, whose rows may be strided.
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

    # Gradients of several steps that read one row are summed in float32.
    is_summed = order is not None and (has_samples or not scatter)
    dz = dz_out
    if dz is None or is_summed:
        shape, dtype = (steps, inner), torch.float32 if is_summed else u.dtype
        dz = u.new_empty(shape if z is not None else (0,), dtype=dtype)
    across = plan.blocks if plan.blocks * steps * state * 4 <= SMALL_PARTS else 1
    dB, dC = dBC or (u.new_empty((steps, state)), u.new_empty((steps, state)))
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
        dz = dz if dz_out is None else dz_out.copy_(dz)
    return du, ddelta, dz, parts


def _run_backward(
    arguments: tuple[Any, ...], grid: tuple[int, int], plan: Partition, common: dict[str, Any]
) -> None:
    """Run the backward kernel over all blocks of channels, `grid[1]` at a time."""
    is_plain = plan.states == common["STATE"] == STATES and plan.block == CHANNELS
    halves = arguments[0].is_cuda and is_plain
    for first_block in range(0, plan.blocks, grid[1]):
        shape = common | {
            "GROUP": plan.group, "FIRST_BLOCK": first_block, "ACCUMULATE": first_block > 0,
        }  # fmt: skip
        compiled = _launch_backward(arguments, grid, plan, shape, halves=halves)
        # `compiled` is None while `precompile` only collects kernels
        if halves and compiled and not has_a_channel_a_thread(compiled.asm["ttgir"]):
            if first_block > 0:
                raise RuntimeError("Triton laid out two blocks of channels in different ways")
            # Another version of Triton may use another layout; plain sums do not depend on it.
            halves = False
            _launch_backward(arguments, grid, plan, shape, halves=False)


def _launch_backward(
    arguments: tuple[Any, ...], grid: tuple[int, int], plan: Partition, shape: dict[str, Any], *,
    halves: bool,
) -> Any:  # fmt: skip
    """Run the backward kernel once; return the compiled kernel."""
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
    """Add up the partial sums of the gradients.

    Args:
        A: Rates, or log(-rates) with `log_A`.
        parts: Partial sums of `backward_rows`.
        gradients: Outputs: gradients of A, D, bias, B and C; empty where not needed.
        log_A: Whether the rates are -exp(A).
        is_late: Whether the kernel before this one may be from another operator.
    """
    dA, dD, dbias, dB, dC = gradients
    inner, state = A.shape
    plan = partition(parts.B.shape[1], inner, state, backward=True)
    rows, columns = 256, plan.block
    sums = (plan.states + 2) * plan.width // columns
    is_final = parts.B.data_ptr() == dB.data_ptr()
    entries = 0 if is_final else ceil_div(dB.numel(), rows * columns)
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
    """Allocate partial sums of `across` blocks; for a single one, the gradient itself."""
    if across == 1 and gradient.dtype == torch.float32:
        return gradient.unsqueeze(0)
    return gradient.new_empty((across, *gradient.shape), dtype=torch.float32)


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
    """Return a view whose pointer is aligned to 16 bytes, `_shift` elements before the data.

    B and C are columns of one projection, so their own pointers are seldom aligned.
    """
    return tensor.as_strided((1,), (1,), tensor.storage_offset() - _shift(tensor))


def _vector(aligned: Tensor, stride: int, shift: int) -> int:
    """Vector width, at most 4, with which all rows can be read."""
    return gcd(stride, shift, 4) if aligned.data_ptr() % 16 == 0 else 1


def _shift(tensor: Tensor) -> int:
    return int(tensor.storage_offset()) % (16 // tensor.element_size())
