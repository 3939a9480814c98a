"""One layer: message passing and global exchange side by side, then a feed-forward network."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import get_args

from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_fraction
from graphmamba.data.topology import Topology
from graphmamba.encode.forgetting import LEAST_BYTES, Forgetting, Make, is_worth_forgetting
from graphmamba.encode.linear import Linear
from graphmamba.encode.linear.feed_forward import feed_forward
from graphmamba.encode.linear.relu import linear_relu, linear_relu_through
from graphmamba.encode.norm import ActivationDropout, number_norms
from graphmamba.encode.norm_pair import NormPair, pair_of
from graphmamba.errors import UserError
from graphmamba.side_streams import Branch
from graphmamba.stack.fan_out import fan_out
from graphmamba.stack.graph_mamba_mixer import GraphMambaMixer
from graphmamba.stack.norm import NodeNorm
from graphmamba.stack.options import Activation, NormName
from graphmamba.stack.parts import GlobalMixer, LocalModel

READERS = 3
"""Who reads a layer's input, the mixer aside: the local model and two residuals."""
LEAST_TO_FORGET_INSIDE = 2 * LEAST_BYTES
"""Bytes of node rows from which the inside of the feed-forward network is forgotten: two products
make three of them anew, which is dear beside all else."""


class GPSLayer(nn.Module):
    r"""Local and global exchange, both from the layer's input, added up.

    .. math::
        s = N_1(\mathrm{local}(x, e)) + N_2(x + \mathrm{mixer}(x)), \quad
        x' = N_3(s + W_2 \sigma(W_1 s))

    https://arxiv.org/abs/2205.12454. A norm follows each residual sum. (The paper of Graph-Mamba
    prints no norms and no second residual; its parameter counts and its code have them.)

    Args:
        channels: Width of node and edge rows.
        local: Message passing, or None.
        mixer: Global exchange, called `mixer(x, topology)`, or None.
        dropout: Rate after the mixer, a local model without residual, and both linear maps.
        norm: Kind of all three norms.
        activation: Of the feed-forward network.
    """

    forgets: bool | None = None
    """Whether products are computed anew for the backward pass; None as it pays."""

    def __init__(
        self,
        channels: int,
        local: LocalModel | None,
        mixer: nn.Module | None,
        *,
        dropout: float = 0.0,
        norm: NormName = "batch",
        activation: Activation = "relu",
    ) -> None:
        super().__init__()
        if local is None and mixer is None:
            raise UserError("local and mixer must not both be None, got None for each")
        check_fraction("dropout", dropout)
        self.local, self.mixer = local, mixer
        self.dropout = dropout
        check_choice("activation", activation, get_args(Activation))
        self.local_norm = None if local is None else NodeNorm(norm, channels)
        self.mixer_norm = None if mixer is None else NodeNorm(norm, channels)
        self.widen = Linear(channels, 2 * channels)
        self.narrow = Linear(2 * channels, channels)
        self.norm = NodeNorm(norm, channels)
        self.activation = ActivationDropout(activation, dropout)
        number_norms(self)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Return new node and edge rows."""
        mixed, again, branch = None, None, None
        # Large batches fill a GPU one branch after the other, and take less memory so.
        forgets = self._forgets(x)
        if isinstance(self.mixer, GraphMambaMixer):
            is_on = self.local is not None and not forgets
            branch = Branch([x, *self.mixer.reads(topology)], is_on=is_on)
        far, *others = fan_out(x, 1 + READERS)
        with branch or nullcontext():
            if isinstance(self.mixer, GlobalMixer) and forgets:
                mixed, again = self.mixer.mix(far, topology)
            elif self.mixer is not None:
                mixed = self.mixer(far, topology)
        return self._finish(others, e, topology, mixed, again, branch)

    def combine(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
        mixed: Float[Tensor, "nodes channels"] | None,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Finish the layer, given what the mixer returned for `x`."""
        return self._finish(fan_out(x, READERS), e, topology, mixed)

    def _finish(
        self,
        inputs: Sequence[Float[Tensor, "nodes channels"]],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
        mixed: Float[Tensor, "nodes channels"] | None,
        again: Make | None = None,
        branch: Branch | None = None,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Do all but the mixer.

        Args:
            inputs: Node rows that came in, once for the local model and for each residual.
            e: Edge rows that came in.
            topology: The batch.
            mixed: What the mixer returned.
            again: What makes `mixed` anew.
            branch: Where `mixed` is still being made.
        """
        s, pair, (x, near_residual, far_residual) = None, None, inputs
        if self.local is not None and self.local_norm is not None:
            if self.local.has_residual:
                near, e = self.local(x, e, topology, near_residual)
                pair = self._pair(near, mixed)
                s = self.local_norm(near, topology) if pair is None else None
            else:
                near, e = self.local(x, e, topology)
                s = self.local_norm(near, topology, before=near_residual, rate=self.dropout)
        if mixed is not None and self.mixer_norm is not None:
            if branch is not None:
                branch.join(mixed)
            with Forgetting(again is not None) as kept:
                if pair is None:
                    s = self.mixer_norm(
                        mixed, topology, before=far_residual, after=s, rate=self.dropout
                    )
                else:
                    s = pair(
                        *(near, mixed, topology.num_real_nodes),
                        before=far_residual,
                        rate=self.dropout,
                        seed=topology.dropout_seed,
                    )
                if again is not None:
                    kept.forget(mixed, again)
        assert s is not None
        return self._feed_forward(s, topology), e

    def _pair(
        self, near: Float[Tensor, "nodes channels"], mixed: Float[Tensor, "nodes channels"] | None
    ) -> NormPair | None:
        """Return the norms of both as one operation, or None where each runs by itself."""
        if mixed is None or self.local_norm is None or self.mixer_norm is None:
            return None
        return pair_of(self.local_norm.norm, self.mixer_norm.norm, near, mixed)

    def _feed_forward(
        self, s: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        seed = topology.dropout_seed
        # Without a seed, dropout would drop other entries when it runs again.
        is_repeatable = seed is not None or not self.dropout
        forgets = is_repeatable and self._forgets(s, LEAST_TO_FORGET_INSIDE)
        if self._has_relu_alone and not forgets:
            maps = self.widen.weight, self.widen.bias, self.narrow.weight, self.narrow.bias
            found, s = feed_forward(s, *maps, backend=self.widen.backend)
            return self.norm(found, topology, before=s, rate=self.dropout)
        with Forgetting(forgets) as kept:
            wide, make, s = self._widen(s, seed, kept)
            found = self.narrow(wide)
            again = kept.forget(wide, make)
            del wide
            out = self.norm(found, topology, before=s, rate=self.dropout)
            kept.forget(found, lambda: self.narrow(again()))
        return out

    def _widen(
        self, s: Float[Tensor, "nodes channels"], seed: Int[Tensor, ""] | None, kept: Forgetting
    ) -> tuple[Float[Tensor, "nodes wide"], Make, Float[Tensor, "nodes channels"]]:
        """Return the activated rows between both linear maps, what makes them anew, and the rows.

        The residual has to take the rows from here: their gradients are added where one is found.
        """
        source, activation = s.detach(), self.activation
        if self._has_relu_alone:
            weights, backend = (self.widen.weight, self.widen.bias), self.widen.backend
            wide, s = linear_relu_through(s, *weights, backend=backend)
            return wide, lambda: linear_relu(source, *weights, backend=backend), s
        rows = self.widen(s)
        wide = activation(rows, seed)
        again = kept.forget(rows, lambda: self.widen(source))
        return wide, lambda: activation(again(), seed), s

    @property
    def _has_relu_alone(self) -> bool:
        """Whether there is nothing but a ReLU between both linear maps."""
        activation = self.activation
        return activation.activation == "relu" and not (activation.training and activation.rate)

    def _forgets(self, x: Float[Tensor, "nodes channels"], least: int = LEAST_BYTES) -> bool:
        return is_worth_forgetting(x, x.shape[1], self.forgets, least)
