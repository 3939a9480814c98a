"""Mamba on packed sequences: in-projection, short convolution, selective scan, out-projection."""

import math
from dataclasses import dataclass
from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear

from graphmamba.checks import check_choice, check_is, check_least, check_types
from graphmamba.errors import UserError
from graphmamba.ops import causal_conv1d, checks, selective_scan
from graphmamba.ops.backends import Backend
from graphmamba.ops.checks import MOST_TAPS, check_float_type
from graphmamba.ops.selective_scan.reference import Discretization
from graphmamba.ordering.policy import Direction

DT_MIN, DT_MAX = 1e-3, 1e-1
"""Step sizes at the start of training."""


@dataclass(frozen=True)
class MambaConfig:
    """Sizes and choices of a Mamba block; the defaults are those of every published number."""

    state: int = 16
    """State size per channel (d_state)."""
    width: int = 4
    """Kernel size of the causal convolution (d_conv)."""
    expand: int = 1
    """Inner width as a multiple of `model.channels`."""
    inner: int | None = None
    """Inner width in channels, in place of `expand`; null uses `expand`."""
    rank: int | None = None
    """Rank of the step-size projection (dt_rank); null for channels / 16, rounded up."""
    out_scale: float = 1.0
    """Factor on the initial weights of the out-projection: below 1 the block starts as a small
    addition to what stands beside it, at 0 as none."""
    discretization: Discretization = "euler"
    """Discretisation of the input: `euler` as in the published code, `zoh` (zero-order hold) as in
    the paper."""
    backend: Backend = "auto"
    """Implementation of the scan; `auto` chooses by device."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("state", "width", "expand"):
            check_least(name, getattr(self, name), 1)
        if self.width > MOST_TAPS:
            raise UserError(f"width must be at most {MOST_TAPS}, got {self.width!r}")
        for name in ("inner", "rank"):
            if getattr(self, name) is not None:
                check_least(name, getattr(self, name), 1)
        check_least("out_scale", self.out_scale, 0)

    def inner_width(self, channels: int) -> int:
        """Channels of convolution and scan in a block whose rows have so many `channels`."""
        return self.inner or self.expand * channels


class SelectivePath(nn.Module):
    """One way through the sequences: convolution and scan, without the projections around them.

    Args:
        channels: Width of the block, from which the default rank follows.
        options: Sizes and choices.
    """

    def __init__(self, channels: int, options: MambaConfig) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        self.options = options
        self.rank = options.rank or math.ceil(channels / 16)
        inner, state = options.inner_width(channels), options.state
        self.conv1d = nn.Conv1d(inner, inner, options.width, groups=inner)
        self.x_proj = nn.Linear(inner, self.rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, state))
        self.D = nn.Parameter(torch.empty(inner))
        self.reset_scan_parameters()

    @torch.no_grad()
    def reset_scan_parameters(self) -> None:
        """Start from Mamba's values: steps log-uniform in [0.001, 0.1], rates 1 to `state`."""
        bound = self.rank**-0.5
        self.dt_proj.weight.uniform_(-bound, bound)
        spread = math.log(DT_MAX) - math.log(DT_MIN)
        dt = torch.exp(torch.rand_like(self.D) * spread + math.log(DT_MIN))
        # The inverse of softplus, so that the scan starts with these steps.
        self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))
        rates = torch.arange(1, self.A_log.shape[1] + 1, dtype=self.A_log.dtype)
        self.A_log.copy_(rates.log().expand_as(self.A_log))
        self.D.fill_(1.0)

    def scan(
        self,
        x: Float[Tensor, "nodes inner"],
        z: Float[Tensor, "nodes inner"],
        cu_seqlens: Int[Tensor, " boundaries"],
        order: Int[Tensor, " tokens"] | None,
        reverse: bool,
    ) -> Float[Tensor, "tokens inner"]:
        """Run all sequences; the output of token `t` goes to slot `order[t]`."""
        backend = self.options.backend
        u = causal_conv1d(
            x, self.conv1d.weight.squeeze(1), self.conv1d.bias,
            cu_seqlens=cu_seqlens, order=order, permutation=order is not None,
            reverse=reverse, backend=backend, check=False,
        )  # fmt: skip
        dt, B, C = self.x_proj(u).split([self.rank, *[self.options.state] * 2], dim=-1)
        return selective_scan(
            u, linear(dt, self.dt_proj.weight), self.A_log, B, C, self.D, z, self.dt_proj.bias,
            cu_seqlens=cu_seqlens, order=order, scatter=order is not None, log_A=True,
            discretization=self.options.discretization, reverse=reverse, backend=backend,
            check=False,
        )  # fmt: skip


class MambaBlock(SelectivePath):
    r"""A selective state space model over packed sequences.

    .. math::
        h_t = \exp(\Delta_t A) h_{t-1} + \Delta_t B_t u_t, \quad
        y_t = W_{out} ((C_t h_t + D u_t) \odot \mathrm{SiLU}(z_t))

    with u the convolved and z the raw half of the in-projection, and Delta, B, C functions of u:
    https://arxiv.org/abs/2312.00752. Parameters have the names and initial values of the original
    code, so that its weights can be loaded.

    Args:
        channels: Width of the rows.
        options: Sizes and choices.
        direction: Along the sequences, against them, or the mean of both. The reverse direction of
            `bidirectional` has its own convolution and scan, and shares the projections.
    """

    def __init__(
        self,
        channels: int,
        options: MambaConfig | None = None,
        direction: Direction = "forward",
    ) -> None:
        options = options or MambaConfig()
        check_is("options", options, MambaConfig)
        check_choice("direction", direction, get_args(Direction))
        super().__init__(channels, options)
        inner = options.inner_width(channels)
        self.direction = direction
        self.in_proj = nn.Linear(channels, 2 * inner, bias=False)
        self.out_proj = nn.Linear(inner, channels, bias=False)
        with torch.no_grad():
            self.out_proj.weight.mul_(options.out_scale)
        self.reverse_path = (
            SelectivePath(channels, options) if direction == "bidirectional" else None
        )

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        cu_seqlens: Int[Tensor, " boundaries"],
        order: Int[Tensor, " tokens"] | None = None,
        samples: int = 1,
        check: bool | None = None,
    ) -> Float[Tensor, "nodes channels"]:
        """Run all sequences of all samples in one scan and average the samples.

        Args:
            x: One row per node.
            cu_seqlens: Where the sequences begin and end, samples one behind the other.
            order: Slot `sample * nodes + node` of each token; the nodes as they are if None.
            samples: Node orders in `order`.
            check: Whether the values of `cu_seqlens` and `order` are checked, for which a GPU has
                to be waited for; None as in `ops.selective_scan`.
        """
        if check is not False:
            _check_order(self.in_proj.weight, x, cu_seqlens, order, samples, check)
        if order is None and samples > 1:
            order = torch.arange(samples * x.shape[0], device=x.device)
        u, z = self.in_proj(x).chunk(2, dim=-1)  # [nodes, inner] each
        y = self.scan(u, z, cu_seqlens, order, reverse=self.direction == "reverse")
        if self.reverse_path is not None:
            y = (y + self.reverse_path.scan(u, z, cu_seqlens, order, reverse=True)) / 2
        if samples > 1:  # The out-projection is linear: averaging before it spares all but one.
            y = y.view(samples, x.shape[0], y.shape[1]).mean(dim=0)
        return self.out_proj(y)


def _check_order(
    weight: Tensor,
    x: Tensor,
    cu_seqlens: Tensor,
    order: Tensor | None,
    samples: int,
    check: bool | None,
) -> None:
    """Reject rows that the block cannot map, and orders that do not hold each row once a sample.

    Args:
        weight: That of the in-projection.
        x: Rows.
        cu_seqlens: Boundaries of the sequences.
        order: Slot of each token.
        samples: Node orders in `order`.
        check: Whether to look at the values, as in `ops.checks.are_values_checked`.
    """
    checks.device_of("x", x)
    checks.check_tensors("reference", {"x": x}, {}, {"cu_seqlens": cu_seqlens, "order": order})
    nodes, channels = x.shape[0], weight.shape[1]
    if x.shape[1] != channels:
        raise UserError(f"x must have shape (nodes, channels {channels}), got {tuple(x.shape)}")
    check_float_type("x", x, weight)
    check_is("samples", samples, int)
    check_least("samples", samples, 1)
    tokens, is_ordered = samples * nodes, order is not None
    rows = nodes if is_ordered else None
    checks.check_order(cu_seqlens, order, tokens, rows, ("order", is_ordered), "x")
    if checks.are_values_checked(check, x, weight):
        checks.check_values(cu_seqlens, order, tokens, nodes, is_ordered)
