"""Message passing with a gate for every channel of every edge."""

from typing import Any, ClassVar, get_args

from jaxtyping import Float
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_fraction, check_is, check_least
from graphmamba.data.topology import Topology
from graphmamba.encode.forgetting import Forgetting, is_worth_forgetting
from graphmamba.encode.linear import Linear, linear, linear_through
from graphmamba.encode.norm import BatchNorm, number_norms
from graphmamba.errors import UserError
from graphmamba.scan.options import Backend
from graphmamba.side_streams import Branch
from graphmamba.stack.edge_update import Gated, gate_edges, norm_edges
from graphmamba.stack.gated_sum import sent_rows
from graphmamba.stack.options import Activation
from graphmamba.stack.parts import LocalModel, required_edges

OWN, SENT = 0, 1
"""Places of the maps A and B among those of the nodes."""


class GatedGCN(LocalModel):
    r"""Residual gated graph convolution, https://arxiv.org/abs/1711.07553.

    .. math::
        \hat e_{ij} = D x_i + E x_j + C e_{ij}, \quad
        \hat x_i = A x_i + \frac{\sum_j \sigma(\hat e_{ij}) \odot B x_j}
                                {\sum_j \sigma(\hat e_{ij}) + \epsilon}

    over the edges j -> i; both sides then pass a BatchNorm, the activation, dropout and a residual.

    Args:
        channels: Width of node and edge rows.
        dropout: Rate before the residuals.
        activation: After the BatchNorms.
        has_stable_gate: Scale the gate of each edge by a learned function of the distance between
            its ends in `topology.gate_encoding` (https://arxiv.org/abs/2203.00199).
        backend: What runs the sums over the edges; `auto` is `fused` on a GPU and `cpu` elsewhere.
    """

    has_residual: ClassVar[bool] = True
    forgets: bool | None = None
    """Whether the maps of the nodes are computed anew for the backward pass; None as it pays."""

    def __init__(
        self,
        channels: int,
        *,
        dropout: float = 0.0,
        activation: Activation = "relu",
        has_stable_gate: bool = False,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        check_fraction("dropout", dropout)
        check_choice("backend", backend, get_args(Backend))
        self.dropout, self.backend = dropout, backend
        check_choice("activation", activation, get_args(Activation))
        self.activation = activation
        # The maps A, B, D, E of the node rows as one product; C is the one of the edge rows.
        self.nodes = Linear(channels, 4 * channels)
        self.edges = Linear(channels, channels)
        self.node_norm = BatchNorm(channels)
        self.edge_norm = BatchNorm(channels)
        number_norms(self)
        self.stable_gate = _stable_gate(channels) if has_stable_gate else None

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
        residual: Float[Tensor, "nodes channels"] | None = None,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Update node and edge rows.

        Args:
            x: Node rows.
            e: Edge rows.
            topology: The graphs.
            residual: The node rows once more, from `fan_out`; `x` if None.
        """
        e = required_edges(e, "GatedGCN")
        scale = None if self.stable_gate is None else self._stability(topology)
        layout, source = topology.lay_out(), x.detach()
        follow: dict[str, Any] = {
            "activation": self.activation, "rate_after": self.dropout, "seed": topology.dropout_seed
        }  # fmt: skip
        forgets = is_worth_forgetting(x, x.shape[1], self.forgets)
        # Large batches fill a GPU as it is, and are short of memory.
        branch = Branch([e], "edges", is_on=not forgets)
        with branch:
            maps = self.edges.weight, self.edges.bias
            edges, e = linear_through(e, *maps, backend=self.edges.backend)
        with Forgetting(forgets) as kept:
            nodes = self.nodes(x)
            branch.join(edges)
            gated = gate_edges(nodes, edges, layout, self.edge_norm, scale, backend=self.backend)
            # Made here, so that edges do not wait for the norm of the nodes.
            branch = Branch([gated.e_hat], "edges", is_on=topology.wants_edges and not forgets)
            kept.forget(sent_rows(nodes), lambda: self._map(source, SENT))
            del nodes, edges
            near = self.node_norm(
                gated.x_hat,
                topology.num_real_nodes,
                after=x if residual is None else residual,
                **follow,
            )
            if (mean := gated.mean) is not None:
                kept.forget(gated.x_hat, lambda: self._map(source, OWN).add_(mean))
        return near, self._finish_edges(gated, e, topology, branch, **follow)

    def _finish_edges(
        self,
        gated: Gated,
        e: Float[Tensor, "edges channels"],
        topology: Topology,
        branch: Branch,
        **follow: Any,
    ) -> Float[Tensor, "edges channels"] | None:
        """Normalise the edges, beside what becomes of the nodes; None if nobody reads them."""
        if not topology.wants_edges:
            return None
        with branch:
            out = norm_edges(gated, self.edge_norm, topology.num_real_edges, after=e, **follow)
        return branch.leave(out)

    def _map(
        self, x: Float[Tensor, "nodes channels"], number: int
    ) -> Float[Tensor, "nodes channels"]:
        """One of the maps A, B, D, E."""
        weight, bias = (
            each.unflatten(0, (4, -1))[number] for each in (self.nodes.weight, self.nodes.bias)
        )
        return linear(x, weight, bias, backend=self.nodes.backend)

    def _stability(self, topology: Topology) -> Float[Tensor, " edges"]:
        place = topology.gate_encoding
        if self.stable_gate is None or place is None:
            raise UserError("topology.gate_encoding must be given for a stable gate, got None")
        source, target = topology.edge_index
        distance = (place[target] - place[source]).square().sum(dim=-1, keepdim=True)
        return self.stable_gate(distance).squeeze(-1)


def _stable_gate(channels: int) -> nn.Sequential:
    return nn.Sequential(Linear(1, channels), nn.ReLU(), Linear(channels, 1), nn.Sigmoid())
