"""The selective scan over packed sequences: the public function and its operators."""

from types import ModuleType
from typing import Any, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_choice
from graphmamba.ops import checks
from graphmamba.ops.backends import Backend, choose_backend
from graphmamba.ops.registration import SequenceOperator, reject_tangents
from graphmamba.ops.selective_scan import reference
from graphmamba.ops.selective_scan.reference import Discretization


def selective_scan(
    u: Float[Tensor, "steps inner"],
    delta: Float[Tensor, "steps inner"],
    A: Float[Tensor, "inner state"],
    B: Float[Tensor, "steps state"],
    C: Float[Tensor, "steps state"],
    D: Float[Tensor, " inner"] | None = None,
    z: Float[Tensor, "rows inner"] | None = None,
    delta_bias: Float[Tensor, " inner"] | None = None,
    *,
    cu_seqlens: Int[Tensor, " boundaries"],
    order: Int[Tensor, " steps"] | None = None,
    scatter: bool = False,
    softplus: bool = True,
    discretization: Discretization = "euler",
    reverse: bool = False,
    log_A: bool = False,
    backend: Backend = "auto",
    check: bool | None = None,
) -> Float[Tensor, "steps inner"]:
    r"""Run the selective state space model of Mamba over sequences laid end to end.

    .. math::
        h_t = \exp(\Delta_t A) h_{t-1} + \bar B_t u_t, \quad
        y_t = (C_t h_t + D u_t) \odot \mathrm{SiLU}(z_{o(t)})

    with :math:`\Delta_t = \mathrm{softplus}(delta_t + delta\_bias)`, and h = 0 where a sequence
    starts (https://arxiv.org/abs/2312.00752). The state is in float32, or in float64 if the inputs
    are. Output and gradients are bitwise reproducible.

    Args:
        u: Input of each step; float32 or bfloat16, on the CPU also float64.
        delta: Step size before bias and softplus.
        A: Decay rates, negative; with `log_A`, log(-A).
        B: Input weights of each step.
        C: Output weights of each step.
        D: Skip weights.
        z: Gate; a row per step, or the rows that `order` reads.
        delta_bias: Added to `delta`.
        cu_seqlens: Sequence `i` is steps `cu_seqlens[i]` to `cu_seqlens[i + 1]`; it may be empty.
        order: Row of `z` that each step reads; step `t` reads row `t` if None. With `scatter`
            it is a permutation of the steps, and step `t` reads row `order[t] % rows`. It does
            not reorder the other inputs.
        scatter: Whether the output of step `t` is written to row `order[t]` instead of row `t`.
        softplus: Whether softplus is applied to the step size.
        discretization: `euler` multiplies B by the step size, as the published code does; `zoh` is
            zero-order hold, as in the paper.
        reverse: Whether each sequence is scanned from its end.
        log_A: Whether the rates are -exp(A), as Mamba trains them.
        backend: `auto` is `triton` for tensors on a GPU and `cpu` for the others.
        check: Whether the values of `cu_seqlens` and `order` are checked, which synchronises a GPU.
            None checks on the CPU, and on a GPU if no gradient is recorded; never while a graph is
            compiled or captured.

    Returns:
        The output in the type of `u`.

    Raises:
        ValueError: An argument is invalid.
        ImportError: The backend needs a package that is not installed.

    Example:
        >>> import torch
        >>> u, delta = torch.randn(5, 8), torch.randn(5, 8)
        >>> A, B, C = -torch.rand(8, 16), torch.randn(5, 16), torch.randn(5, 16)
        >>> selective_scan(u, delta, A, B, C, cu_seqlens=torch.tensor([0, 2, 5])).shape
        torch.Size([5, 8])
    """
    name = choose_backend(backend, checks.device_of("u", u))
    rows, parameters = {"u": u, "delta": delta, "B": B, "C": C, "z": z}, {"A": A, "D": D}
    parameters["delta_bias"] = delta_bias
    checks.check_tensors(name, rows, parameters, {"cu_seqlens": cu_seqlens, "order": order})
    checks.check_scan_shapes(rows | parameters, cu_seqlens, order, scatter)
    check_choice("discretization", discretization, get_args(Discretization))
    leaves = u, delta, A, B, C, D, z, delta_bias
    if checks.are_values_checked(check, *leaves):
        num_rows = u.shape[0] if z is None else z.shape[0]
        checks.check_values(cu_seqlens, order, u.shape[0], num_rows, scatter, "scatter")

    if name == "reference":
        return reference.selective_scan(
            *leaves, cu_seqlens=cu_seqlens, order=order, scatter=scatter, softplus=softplus,
            discretization=discretization, reverse=reverse, log_A=log_A,
        )  # fmt: skip
    reject_tangents("selective_scan", *leaves)
    exact = torch.promote_types(u.dtype, torch.float32)
    A = A.to(exact)
    D, delta_bias = (None if x is None else x.to(exact) for x in (D, delta_bias))
    keep_states = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in leaves)
    settings = scatter, softplus, discretization == "zoh", reverse, log_A, keep_states
    out, _ = _OPERATORS[name](u, delta, A, B, C, D, z, delta_bias, cu_seqlens, order, *settings)
    return out


def _shapes(backend: ModuleType, *arguments: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    (steps, inner), state, keep_states = arguments[0].shape, arguments[2].shape[1], arguments[-1]
    return (steps, inner), backend.states_shape(steps if keep_states else 0, inner, state)


_OPERATOR = SequenceOperator(
    name="selective_scan",
    leaves=(
        *("Tensor u", "Tensor delta", "Tensor A", "Tensor B", "Tensor C"),
        *("Tensor? D", "Tensor? z", "Tensor? delta_bias"),
    ),
    settings=(
        *("bool scatter", "bool softplus", "bool zoh", "bool reverse", "bool log_A"),
        "bool keep_states",
    ),
    shapes=_shapes,
)
_OPERATORS = {backend: _OPERATOR.register(backend) for backend in ("cpu", "triton")}
