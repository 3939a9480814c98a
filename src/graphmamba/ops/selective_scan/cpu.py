"""The selective scan on the CPU, in Numba."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import SymInt, Tensor

from graphmamba.ops.cpu_arrays import (
    LANES,
    add_groups,
    as_parameter,
    as_rows,
    fill_up,
    real_type,
    share_out,
    sum_by_row,
)
from graphmamba.ops.selective_scan.cpu_kernels import (
    ENTERS,
    HIGH,
    INTERVAL,
    LEAVES,
    LOW,
    PAIR,
    Gradients,
    How,
    Inputs,
    scan_backward,
    scan_forward,
    summarize_backward,
)

MOST_STEPS = 4096  # per part; longer sequences are divided, for any number of threads
GROUP_STEPS = 1024  # parts are gathered in groups of about so many steps


@dataclass(frozen=True)
class Partition:
    """Parts of sequences, by sequence and, within each, in scan order."""

    table: Int[np.ndarray, "parts 4"]
    groups: Int[np.ndarray, " groups_and_1"]  # first part of each group, then the number of parts
    cuts: int  # boundaries between parts of a sequence, each of which passes on a state

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return len(self.groups) - 1


def most_cuts(steps: int | SymInt) -> int | SymInt:
    """Upper bound on the number of cuts."""
    # Only a sequence of more than MOST_STEPS steps is divided, into fewer cuts than steps /
    # MOST_STEPS. Rounded up, so that torch.export can assume at least two saved states for any
    # number of steps, and does not restrict the exported program to larger graphs.
    return -(-steps // MOST_STEPS)


def partition(cu_seqlens: Int[Tensor, " boundaries"], *, reverse: bool) -> Partition:
    """Divide sequences longer than `MOST_STEPS` evenly, and gather short ones into groups."""
    bounds = cu_seqlens.to(torch.int64).numpy()
    start, length = bounds[:-1], np.diff(bounds)
    start, length = start[length > 0], length[length > 0]
    parts = -(-length // MOST_STEPS)

    sequence = np.repeat(np.arange(len(parts)), parts)
    part = np.arange(len(sequence)) - np.repeat(np.cumsum(parts) - parts, parts)
    size = -(-length // np.maximum(parts, 1))[sequence]
    begin, until = part * size, np.minimum((part + 1) * size, length[sequence])

    table = np.empty((len(sequence), 4), np.int64)
    first, last = start[sequence], (start + length)[sequence]
    table[:, LOW] = last - until if reverse else first + begin
    table[:, HIGH] = last - begin if reverse else first + until
    carried = np.cumsum(part > 0)
    table[:, ENTERS] = np.where(part > 0, carried - 1, -1)
    table[:, LEAVES] = np.where(part + 1 < parts[sequence], carried, -1)

    steps = until - begin
    group = (np.cumsum(steps) - steps) // GROUP_STEPS
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    groups = np.append(firsts, len(sequence))
    return Partition(table, groups, int(np.count_nonzero(part)))


def states_shape(
    steps: int | SymInt, inner: int | SymInt, state: int | SymInt
) -> tuple[int | SymInt, int | SymInt, int | SymInt]:
    """Shape of the saved states: one per block of steps, then one per possible cut."""
    blocks = fill_up(steps, INTERVAL) // INTERVAL
    return blocks + most_cuts(steps), fill_up(state, PAIR), fill_up(inner, LANES)


def forward(
    u: Float[Tensor, "steps inner"],
    delta: Float[Tensor, "steps inner"],
    A: Float[Tensor, "inner state"],
    B: Float[Tensor, "steps state"],
    C: Float[Tensor, "steps state"],
    D: Float[Tensor, " inner"] | None,
    z: Float[Tensor, "rows inner"] | None,
    delta_bias: Float[Tensor, " inner"] | None,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None,
    scatter: bool,
    softplus: bool,
    zoh: bool,
    reverse: bool,
    log_A: bool,
    keep_states: bool,
) -> tuple[Float[Tensor, "steps inner"], Float[Tensor, "kept filled_state filled_inner"]]:
    """Return the output and the saved states, none without `keep_states`."""
    (steps, inner), real = u.shape, real_type(u)
    A = -torch.exp(A) if log_A else A
    x = _inputs(u, delta, A, B, C, D, z, delta_bias, order, scatter)
    how = How(softplus, zoh, reverse, D is not None, z is not None)
    parts = partition(cu_seqlens, reverse=reverse)
    work = scan_forward(x.A.dtype), parts.group_count, parts.table, parts.groups, tuple(x), how

    out = torch.empty((steps, inner), dtype=real)
    states = torch.empty(states_shape(steps if keep_states else 0, inner, A.shape[1]), dtype=real)
    entering, sums = _blank_summary(parts, x)
    if parts.cuts > 0:
        share_out(*work, entering[:0], entering[:0], out.numpy()[:0], entering, sums)
        entering = carry(entering, sums, x.A, parts.table[:, [LEAVES, ENTERS]])
    share_out(*work, entering, states.numpy(), out.numpy(), entering[:0], sums[:0])

    carried = states[fill_up(steps, INTERVAL) // INTERVAL :].zero_()
    carried[: parts.cuts] = torch.from_numpy(entering[: len(carried)])
    return out.to(u.dtype), states


def backward(
    grad: Float[Tensor, "steps inner"],
    states: Float[Tensor, "kept filled_state filled_inner"],
    u: Float[Tensor, "steps inner"],
    delta: Float[Tensor, "steps inner"],
    A: Float[Tensor, "inner state"],
    B: Float[Tensor, "steps state"],
    C: Float[Tensor, "steps state"],
    D: Float[Tensor, " inner"] | None,
    z: Float[Tensor, "rows inner"] | None,
    delta_bias: Float[Tensor, " inner"] | None,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None,
    scatter: bool,
    softplus: bool,
    zoh: bool,
    reverse: bool,
    log_A: bool,
    keep_states: bool = True,  # noqa: ARG001
) -> tuple[Tensor, ...]:
    """Return the gradients of u, delta, A, B, C, D, z, delta_bias; shape (0,) for None."""
    A = -torch.exp(A) if log_A else A
    x = _inputs(u, delta, A, B, C, D, z, delta_bias, order, scatter)
    how = How(softplus, zoh, reverse, D is not None, z is not None)
    parts, real = partition(cu_seqlens, reverse=reverse), real_type(u)
    work = parts.group_count, parts.table, parts.groups, tuple(x), how, as_rows(grad, real)

    entering, sums = _blank_summary(parts, x)
    if parts.cuts > 0:
        share_out(summarize_backward(x.A.dtype), *work, entering, sums)
        entering = carry(entering, sums, x.A, parts.table[::-1, [ENTERS, LEAVES]])

    gates = u if z is not None else u[:0]
    d_u, d_delta, d_B, d_C, d_gates = (
        torch.empty(tensor.shape, dtype=real) for tensor in (u, delta, B, C, gates)
    )
    d_A, d_D, d_bias = (
        np.zeros((parts.group_count, *parameter.shape), parameter.dtype)
        for parameter in (x.A, x.D, x.delta_bias)
    )
    rows = [tensor.numpy() for tensor in (d_u, d_delta, d_B, d_C, d_gates)]
    written = Gradients._make([*rows, d_A, d_D, d_bias])
    share_out(scan_backward(x.A.dtype), *work, states.numpy(), entering, written)
    d_rates, d_z = add_groups(d_A.swapaxes(1, 2), A), torch.empty(0)
    if z is not None:
        d_z = sum_by_row(d_gates, order, len(z), is_permutation=scatter).to(z.dtype)
    return (
        d_u.to(u.dtype),
        d_delta.to(delta.dtype),
        d_rates * A if log_A else d_rates,
        d_B.to(B.dtype),
        d_C.to(C.dtype),
        add_groups(d_D, D),
        d_z,
        add_groups(d_bias, delta_bias),
    )


def _inputs(
    u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None, z: Tensor | None,
    delta_bias: Tensor | None, order: Tensor | None, scatter: bool,
) -> Inputs:  # fmt: skip
    """Convert all inputs to the arrays that kernels take."""
    (steps, inner), real = u.shape, real_type(u)
    identity, filled = torch.arange(steps), fill_up(inner, LANES)
    gates = u[:0] if z is None else z
    gate_rows = identity if order is None else order.long() % max(len(gates), 1)
    out_rows = order.long() if order is not None and scatter else identity
    return Inputs(
        u=as_rows(u, real),
        delta=as_rows(delta, real),
        A=as_parameter(A.t(), (fill_up(A.shape[1], PAIR), filled), real),
        B=as_rows(B, real),
        C=as_rows(C, real),
        D=as_parameter(D, (filled,), real),
        z=as_rows(gates, real),
        delta_bias=as_parameter(delta_bias, (filled,), real),
        gate_rows=gate_rows.numpy(),
        out_rows=out_rows.numpy(),
    )


def _blank_summary(
    parts: Partition, x: Inputs
) -> tuple[Float[np.ndarray, "cuts state inner"], Float[np.ndarray, "cuts 2 inner"]]:
    """Arrays for the state at each cut, and for the sum of dt with its rounding error."""
    shapes = (parts.cuts, *x.A.shape), (parts.cuts, 2, x.A.shape[1])
    return np.zeros(shapes[0], x.A.dtype), np.zeros(shapes[1], x.A.dtype)


def carry(
    ends: Float[np.ndarray, "cuts state inner"],
    sums: Float[np.ndarray, "cuts 2 inner"],
    A: Float[np.ndarray, "state inner"],
    links: Int[np.ndarray, "parts 2"],
) -> Float[np.ndarray, "cuts state inner"]:
    """Add to the state at each cut the decayed state of the cut before it, by `links`.

    A part multiplies the state by exp(A sum(dt)).
    """
    states = ends.astype(np.float64)
    with np.errstate(all="ignore"):
        decay = np.exp(A * sums[:, :1].astype(np.float64))
        for target, source in links:
            if target >= 0 and source >= 0:
                states[target] += decay[target] * states[source]
        return states.astype(ends.dtype)
