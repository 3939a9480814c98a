"""Layers: message passing in parallel with a global model (`GPSLayer`, `ResidualLayer`)."""

from typing import get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_fraction, check_is, check_least
from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.nn.base import LocalModel, required_edges
from graphmamba.nn.choose_operator import operator_arguments, runs_operator
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.graph_mamba import GraphMambaGlobal, InputNorm, MambaConfig
from graphmamba.nn.norm import Dropout, NodeNorm, NormName, norms_of, number_dropouts
from graphmamba.ops.activation import Activation, activation_function
from graphmamba.ops.backends import TritonBackend
from graphmamba.ops.checks import check_float_type, check_membership, check_rows
from graphmamba.ops.graph_mamba_layer import graph_mamba_layer
from graphmamba.ops.l2_normalize import l2_normalize
from graphmamba.ops.random import draw_bits
from graphmamba.ordering.policy import OrderPolicy


class GPSLayer(nn.Module):
    r"""GPS layer: local and global model in parallel, summed, then an MLP.

    .. math::
        s = N_1(\mathrm{local}(x, e)) + N_2(x + \mathrm{global}(x)), \quad
        x' = N_3(s + W_2 \sigma(W_1 s))

    https://arxiv.org/abs/2205.12454. A norm follows each residual sum. (The paper of Graph-Mamba
    prints no norms and no second residual; its parameter counts and its code have them.)

    Args:
        channels: Width of node and edge embeddings.
        local_model: Message passing, or None.
        global_model: Called `global_model(x, topology)`, or None.
        dropout: Rate after the global model, a local model without residual, and both linear maps.
        norm: Kind of all three norms.
        activation: Of the feed-forward network.
        global_dropout: Rate after the global model; None takes `dropout`.
        backend: `auto` and `triton` run GatedGCN beside Mamba as one operator on a GPU where
            `choose_operator.has_operator` says that it can, `reference` never does.
    """

    def __init__(
        self,
        channels: int,
        local_model: LocalModel | None,
        global_model: nn.Module | None,
        *,
        dropout: float = 0.0,
        norm: NormName = "batch",
        activation: Activation = "relu",
        global_dropout: float | None = None,
        backend: TritonBackend = "auto",
    ) -> None:
        super().__init__()
        check_choice("backend", backend, get_args(TritonBackend))
        self.backend = backend
        if local_model is None and global_model is None:
            raise UserError("local_model and global_model must not both be None")
        check_fraction("dropout", dropout)
        self.local_model, self.global_model = local_model, global_model
        self.norm_local = None if local_model is None else NodeNorm(norm, channels)
        self.norm_global = None if global_model is None else NodeNorm(norm, channels)
        self.fc1 = nn.Linear(channels, 2 * channels)
        self.fc2 = nn.Linear(2 * channels, channels)
        self.norm = NodeNorm(norm, channels)
        self.activation = activation_function(activation)
        self.local_dropout = Dropout(dropout)
        self.global_dropout = Dropout(dropout if global_dropout is None else global_dropout)
        self.wide_dropout, self.narrow_dropout = Dropout(dropout), Dropout(dropout)
        number_dropouts(self)
        for part in norms_of(self) if backend == "reference" else ():
            part.backend = "reference"

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edge_rows channels"] | None,
        topology: Topology,
        global_output: Float[Tensor, "nodes channels"] | None = None,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Return new node and edge embeddings.

        Args:
            x: Node embeddings.
            e: Edge embeddings; the operator takes one row for all edges as well.
            topology: The graphs.
            global_output: What the global model returned for `x`, where it was called before, as
                Exphormer does for its virtual nodes.
        """
        if global_output is None and e is not None and runs_operator(self, x):
            return graph_mamba_layer(*operator_arguments(self, x, e, topology))
        seed = topology.dropout_seed
        parts = []
        if self.local_model is not None and self.norm_local is not None:
            near, e = self.local_model(x, e, topology)
            if not self.local_model.has_residual:
                near = x + self.local_dropout(near, seed)
            parts.append(self.norm_local(near, topology))
        if self.global_model is not None and self.norm_global is not None:
            far = self.global_model(x, topology) if global_output is None else global_output
            parts.append(self.norm_global(x + self.global_dropout(far, seed), topology))
        s = sum(parts[1:], start=parts[0])
        return self.norm(s + self.feed_forward(s, seed), topology), e

    def feed_forward(
        self, s: Float[Tensor, "nodes channels"], seed: Int[Tensor, ""] | None
    ) -> Float[Tensor, "nodes channels"]:
        """Map each node by itself."""
        wide = self.wide_dropout(self.activation(self.fc1(s)), seed)  # [nodes, 2 channels]
        return self.narrow_dropout(self.fc2(wide), seed)


class GraphMambaLayer(GPSLayer):
    """The layer of the paper: GatedGCN beside Mamba over sorted nodes.

    https://arxiv.org/abs/2402.00789. A random policy needs `topology.seed`, such as
    `ordering.NoiseSeed` counts up; a `Backbone` of layers gives it.

    Args:
        channels: Width of node and edge embeddings.
        policy: How nodes are ordered.
        options: Sizes and choices of the Mamba block.
        layer: Number of the layer in its stack, so that layers draw different node orders and drop
            different entries.
        dropout: Rate of all dropouts.
        norm: Kind of the three norms.
        activation: Of the feed-forward network and of GatedGCN.
        input_norm: `none`, as in the published numbers, or `layer`, as in the paper's text.

    Example:
        >>> topology = Topology(
        ...     edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]),
        ...     batch=torch.zeros(3, dtype=torch.int64),
        ...     num_graphs=1,
        ...     seed=torch.tensor(0),
        ... )
        >>> x, e = GraphMambaLayer(16)(torch.randn(3, 16), torch.randn(3, 16), topology)
        >>> x.shape, e.shape
        (torch.Size([3, 16]), torch.Size([3, 16]))
    """

    def __init__(
        self,
        channels: int,
        policy: OrderPolicy | None = None,
        options: MambaConfig | None = None,
        *,
        layer: int = 0,
        dropout: float = 0.0,
        norm: NormName = "batch",
        activation: Activation = "relu",
        input_norm: InputNorm = "none",
    ) -> None:
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        super().__init__(
            channels,
            GatedGCN(channels, dropout=dropout, activation=activation),
            GraphMambaGlobal(channels, policy, options, input_norm, layer),
            dropout=dropout,
            norm=norm,
            activation=activation,
        )
        self.channels, self.layer = channels, layer

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
        global_output: Float[Tensor, "nodes channels"] | None = None,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Return new node and edge embeddings.

        Args:
            x: Node embeddings.
            e: Edge embeddings.
            topology: The graphs. Values are checked on a CPU only: on a GPU that would wait for
                the device.
            global_output: What the global model returned for `x`, where it was called before, as
                Exphormer does for its virtual nodes.
        """
        check_is(
            "topology", topology, Topology, "Topology(edge_index, batch, num_graphs) makes one"
        )
        check_rows("x", x, (topology.batch.shape[0], self.channels))
        check_float_type("x", x, self.fc1.weight)
        e = required_edges(e, "GatedGCN")
        check_rows("e", e, (topology.edge_index.shape[1], self.channels))
        check_float_type("e", e, self.fc1.weight)
        # an existing edge layout has been checked
        is_new = topology.edge_layout is None and topology.batch.device.type == "cpu"
        if is_new and not torch.compiler.is_compiling():
            check_membership(topology.edge_index, topology.batch, topology.num_graphs)
        if topology.dropout_seed is not None:
            # Layers that share a seed must drop different entries.
            topology = topology.with_dropout_seed(draw_bits(topology.dropout_seed, self.layer))
        return super().forward(x, e, topology, global_output)


GLOBAL_NORM_WEIGHT = 0.1
"""Initial weight of the norm after a global model: with 1, the output of the untrained model would
be as large as the messages."""


class ResidualLayer(nn.Module):
    r"""Plain layer: a local model, optionally with a global model in parallel, norm and activation.

    .. math::
        x' = x + \sigma(N_1(\mathrm{local}(x, e)) + N_2(\mathrm{global}(x)))

    Layers of the published models (GatedGCN is a layer by itself):

    ========== =============== ======================================================
    stack      local           this layer
    ========== =============== ======================================================
    GCN        no bias         `norm="batch"`, no residual, L2-normalized rows
    GCN tuned  `GCN`           `activation="gelu"`, dropout
    GCN+       `GCNE`          `norm="batch"`, `activation="gelu"`, dropout, no residual
    GINE       `GINE`          `activation="relu"`, dropout
    GINE tuned GINE with gelu  `activation="none"`, dropout
    ========== =============== ======================================================

    Args:
        channels: Width of the node embeddings.
        local_model: Message passing without a residual of its own.
        activation: After the norm.
        dropout: Rate after the activation.
        norm: Before the activation.
        global_model: Called `global_model(x, topology)`, or None.
        has_residual: Whether the input is added.
        l2_normalize: Whether to L2-normalise the result.
        has_zero_gate: Whether the output of the global model is multiplied by a learned weight per
            channel that starts at 0 (ReZero, https://arxiv.org/abs/2003.04887).
    """

    def __init__(
        self,
        channels: int,
        local_model: LocalModel,
        *,
        activation: Activation = "relu",
        dropout: float = 0.0,
        norm: NormName = "none",
        global_model: nn.Module | None = None,
        has_residual: bool = True,
        l2_normalize: bool = False,
        has_zero_gate: bool = False,
    ) -> None:
        super().__init__()
        check_fraction("dropout", dropout)
        self.local_model, self.global_model = local_model, global_model
        self.norm = NodeNorm(norm, channels)
        self.norm_global = (
            None if global_model is None else NodeNorm(norm, channels, GLOBAL_NORM_WEIGHT)
        )
        self.activation, self.dropout = activation_function(activation), Dropout(dropout)
        self.has_residual, self.l2_normalize = has_residual, l2_normalize
        self.zero_gate = nn.Parameter(torch.zeros(channels)) if has_zero_gate else None
        number_dropouts(self)

    def forward(
        self,
        x: Float[Tensor, "nodes channels"],
        e: Float[Tensor, "edges channels"] | None,
        topology: Topology,
    ) -> tuple[Float[Tensor, "nodes channels"], Float[Tensor, "edges channels"] | None]:
        """Return new node embeddings, and the edge embeddings of the local model."""
        near, e = self.local_model(x, e, topology)
        rows = self.norm(near, topology)
        if self.global_model is not None and self.norm_global is not None:
            far = self.norm_global(self.global_model(x, topology), topology)
            rows = rows + (far if self.zero_gate is None else far * self.zero_gate)
        rows = self.dropout(self.activation(rows), topology.dropout_seed)
        new = x + rows if self.has_residual else rows
        return l2_normalize(new) if self.l2_normalize else new, e
