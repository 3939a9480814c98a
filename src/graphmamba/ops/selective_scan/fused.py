"""The selective scan on a GPU: which Triton kernels run, into what memory; README.md derives it."""

from math import gcd
from typing import Any

import torch
import triton
from torch import Tensor

from graphmamba.ops.operators import either
from graphmamba.ops.row_sums import sum_rows
from graphmamba.ops.selective_scan.backward_kernels import (
    finish_bwd_kernel,
    selective_scan_bwd_kernel,
)
from graphmamba.ops.selective_scan.chunk_links import (
    carry,
    early,
    empty_links,
    empty_prepared,
    late,
    prepare,
    prepared_in,
)
from graphmamba.ops.selective_scan.cut import Cut, cut, states_shape
from graphmamba.ops.selective_scan.forward_kernels import selective_scan_fwd_kernel
from graphmamba.ops.selective_scan.held_states import HELD
from graphmamba.ops.selective_scan.lane_sums import CHANNELS, STATES, has_a_channel_a_thread
from graphmamba.ops.selective_scan.local_kernels import local_bwd_kernel, local_fwd_kernel
from graphmamba.ops.selective_scan.sparse_backward_kernels import sparse_scan_bwd_kernel

__all__ = ["backward", "forward", "states_shape"]

UNROLL = 4
"""Steps that a kernel walks before it loops."""
SMALL_PARTS = 64 << 20
"""Up to so many bytes, all blocks of channels write their share of dB and dC side by side."""


SPARSE_REGISTERS = 168
"""Registers of a thread where states are held in shared memory: three warps to a scheduler."""
SPARSE_UNROLL = 2
"""Steps that the backward kernel of long inputs walks ahead before it loops."""


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
    plan = cut(steps, inner, state)
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


def backward(
    grad: Tensor, u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None,
    z: Tensor | None, delta_bias: Tensor | None, cu_seqlens: Tensor, order: Tensor | None,
    states: Tensor, scatter: bool, softplus: bool, zoh: bool, reverse: bool, log_A: bool,
    into: Tensor | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Return the gradients of u, delta, A, B, C, D, z, delta_bias; empty for what is absent.

    That of z is written into `into` where that is given, and no row of z is visited twice.
    """
    (steps, inner), state = u.shape, A.shape[1]
    du, ddelta, dA, dB, dC, dD, dbias = (
        _empty_like(t, u) for t in (u, delta, A, B, C, D, delta_bias)
    )
    if steps == 0:
        dz = _empty_like(z, u)
        return du, ddelta, dA.zero_(), dB, dC, dD.zero_(), dz.zero_(), dbias.zero_()

    plan = cut(steps, inner, state, back=True)
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

    # Where visits of a row have to be summed, that is done in full precision.
    is_summed = order is not None and (has_samples or not scatter)
    shape, dtype = (steps, inner), torch.float32 if is_summed else u.dtype
    dz = u.new_empty(shape if z is not None else (0,), dtype=dtype) if into is None else into
    across = plan.blocks if plan.blocks * steps * state * 4 <= SMALL_PARTS else 1
    dBs, dCs = (_parts_of(t, across) for t in (dB, dC))
    parts = u.new_empty((chunks, plan.states + 2, plan.width), dtype=torch.float32)
    _walk_back(
        (grad, u, delta, A2, _aligned(B), _aligned(C), either(D, u), either(z, u),
         either(delta_bias, u), starts, either(order, starts), states, adjoints, du,
         ddelta, dBs, dCs, dz, parts, steps, _rows(z), chunks),
        (chunks, across), plan,
        (common if chunks > 1 else late(common))
        | {"U_STRIDE": u.stride(0), "B_STRIDE": B.stride(0), "B_SHIFT": _shift(B),
           "HAS_D": D is not None, "ZOH": zoh, "NATIVE": u.is_cuda, "DZ_STRIDE": dz.stride(0)},
    )  # fmt: skip
    _finish(A, parts, dBs, dCs, (dA, dD, dbias, dB, dC), plan, log_A=log_A)
    if z is not None and order is not None and is_summed:
        dz = sum_rows(dz, order, z.shape[0], is_permutation=scatter).to(z.dtype)
    return du, ddelta, dA, dB, dC, dD, dz, dbias


def _walk_back(
    arguments: tuple[Any, ...], grid: tuple[int, int], plan: Cut, common: dict[str, Any]
) -> None:
    """Run the backward kernel over all blocks of channels, as many at a time as `grid` has."""
    is_plain = plan.states == common["STATE"] == STATES and plan.block == CHANNELS
    halves = arguments[0].is_cuda and is_plain
    for first_block in range(0, plan.blocks, grid[1]):
        shape = common | {
            "GROUP": plan.group, "FIRST_BLOCK": first_block, "ACCUMULATE": first_block > 0,
        }  # fmt: skip
        compiled = _launch_back(arguments, grid, plan, shape, halves=halves)
        if halves and not has_a_channel_a_thread(compiled.asm["ttgir"]):
            if first_block > 0:
                raise RuntimeError("Triton laid out two blocks of channels in different ways")
            # Another version of Triton may lay tiles out in another way; plain sums are right then.
            halves = False
            _launch_back(arguments, grid, plan, shape, halves=False)


def _launch_back(
    arguments: tuple[Any, ...], grid: tuple[int, int], plan: Cut, shape: dict[str, Any], *,
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


def _finish(
    A: Tensor, parts: Tensor, dBs: Tensor, dCs: Tensor, gradients: tuple[Tensor, ...], plan: Cut,
    *, log_A: bool,
) -> None:  # fmt: skip
    """Sum what the programs found for the parameters, and what the blocks found for B and C."""
    dA, dD, dbias, dB, dC = gradients
    rows, columns = 256, plan.block
    sums = (plan.states + 2) * plan.width // columns
    entries = 0 if _is_part(dBs, dB) else triton.cdiv(dB.numel(), rows * columns)
    finish_bwd_kernel[(sums + entries,)](
        A, parts, dBs, dCs, dA, dD, dbias, dB, dC, parts.shape[0], dB.numel(), A.stride(0),
        INNER=dA.shape[0], STATE=dA.shape[1], WIDTH=plan.width, N=plan.states,
        BLOCKS=dBs.shape[0], ROWS=rows, COLUMNS=columns, LOG_A=log_A,
        HAS_D=dD.numel() > 0, HAS_BIAS=dbias.numel() > 0, num_warps=8, **early(parts.device),
    )  # fmt: skip


def _shape(plan: Cut, inner: int, state: int, device: torch.device) -> dict[str, Any]:
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
