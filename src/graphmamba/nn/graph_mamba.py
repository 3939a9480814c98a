"""Graph-Mamba: `MambaBlock` on packed sequences, and the global models built on it."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import linear

from graphmamba.checks import check_choice, check_is, check_least, check_types
from graphmamba.data.batch import Topology, count_up_to
from graphmamba.errors import UserError
from graphmamba.nn.base import GlobalModel, Nodes
from graphmamba.ops import causal_conv1d, selective_scan
from graphmamba.ops.backends import Backend
from graphmamba.ops.checks import MOST_TAPS, check_float_type, check_membership, check_rows
from graphmamba.ops.selective_scan.reference import Discretization
from graphmamba.ordering.permutation import Request, check_given, order_nodes
from graphmamba.ordering.policy import Direction, OrderPolicy
from graphmamba.ordering.seed import DrawnSeed

InputNorm = Literal["none", "layer"]
DT_MIN, DT_MAX = 1e-3, 1e-1
"""Range of initial step sizes."""


@dataclass(frozen=True)
class MambaConfig:
    """Options of a Mamba block; the defaults are those of the published models."""

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
    """Factor on the initial weights of the out-projection: below 1, the block starts as a small
    addition to the rest of the layer; at 0, as none."""
    discretization: Discretization = "euler"
    """Discretisation of the input: `euler` as in the published code, `zoh` (zero-order hold) as in
    the paper."""
    backend: Backend = "auto"
    """Implementation of the scan; `auto` chooses by device."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("state", "width", "expand", "inner", "rank"):
            if getattr(self, name) is not None:
                check_least(name, getattr(self, name), 1)
        if self.width > MOST_TAPS:
            raise UserError(f"width must be at most {MOST_TAPS}, got {self.width!r}")
        check_least("out_scale", self.out_scale, 0)


class SelectivePath(nn.Module):
    """Convolution and scan in one direction, without the in- and out-projection.

    Args:
        channels: Width of the block, from which the default rank follows.
        options: Sizes and choices.
    """

    def __init__(self, channels: int, options: MambaConfig) -> None:
        super().__init__()
        self.options = options
        self.rank = options.rank or math.ceil(channels / 16)
        inner, state = options.inner or options.expand * channels, options.state
        self.conv1d = nn.Conv1d(inner, inner, options.width, groups=inner)
        self.x_proj = nn.Linear(inner, self.rank + 2 * state, bias=False)
        self.dt_proj = nn.Linear(self.rank, inner)
        self.A_log = nn.Parameter(torch.empty(inner, state))
        self.D = nn.Parameter(torch.empty(inner))
        self.reset_scan_parameters()

    @torch.no_grad()
    def reset_scan_parameters(self) -> None:
        """Initialise as Mamba: step sizes log-uniform in [0.001, 0.1], A = -1, ..., -state."""
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
        check: bool | None = False,
    ) -> Float[Tensor, "tokens inner"]:
        """Run all sequences; the output of token `t` goes to slot `order[t]`."""
        backend = self.options.backend
        u = causal_conv1d(
            x, self.conv1d.weight.squeeze(1), self.conv1d.bias,
            cu_seqlens=cu_seqlens, order=order, permutation=order is not None,
            reverse=reverse, backend=backend, check=check,
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
        inner = self.D.shape[0]
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
        x: Nodes,
        cu_seqlens: Int[Tensor, " boundaries"],
        order: Int[Tensor, " tokens"] | None = None,
        samples: int = 1,
        check: bool | None = None,
    ) -> Nodes:
        """Run all sequences of all samples in one scan and average the samples.

        Args:
            x: One row per node.
            cu_seqlens: Boundaries of the sequences, one sample after another.
            order: Index `sample * nodes + node` of each token; None for the nodes as they are.
            samples: Node orders in `order`.
            check: Whether the values of `cu_seqlens` and `order` are checked, for which a GPU has
                to be waited for; None as in `ops.causal_conv1d`.
        """
        if order is None and samples > 1:
            order = torch.arange(samples * x.shape[0], device=x.device)
        u, z = self.in_proj(x).chunk(2, dim=-1)  # [nodes, inner] each
        y = self.scan(u, z, cu_seqlens, order, self.direction == "reverse", check)
        if self.reverse_path is not None:
            y = (y + self.reverse_path.scan(u, z, cu_seqlens, order, reverse=True)) / 2
        if samples > 1:  # The out-projection is linear: averaging before it spares all but one.
            y = y.view(samples, x.shape[0], y.shape[1]).mean(dim=0)
        return self.out_proj(y)


class GraphMambaGlobal(GlobalModel):
    """Mamba over the sorted nodes of each graph.

    https://arxiv.org/abs/2402.00789. All graphs, bins and samples go through one scan.

    Args:
        channels: Width of the node embeddings.
        policy: How nodes are ordered.
        options: Sizes and choices of the Mamba block.
        input_norm: `none`, as in the published models, or `layer`, the norm of the paper's
            Algorithm 1.
        layer: Number of the layer in its stack, so that layers draw different node orders.
    """

    def __init__(
        self,
        channels: int,
        policy: OrderPolicy | None = None,
        options: MambaConfig | None = None,
        input_norm: InputNorm = "none",
        layer: int = 0,
    ) -> None:
        super().__init__()
        check_is("channels", channels, int)
        check_least("channels", channels, 1)
        check_choice("input_norm", input_norm, get_args(InputNorm))
        check_least("layer", layer, 0)
        self.policy = policy or OrderPolicy()
        check_is("policy", self.policy, OrderPolicy)
        self.layer = layer
        self.norm = nn.LayerNorm(channels) if input_norm == "layer" else nn.Identity()
        self.mamba = MambaBlock(channels, options, self.policy.direction)

    def forward(self, x: Nodes, topology: Topology) -> Nodes:
        found = topology.node_order
        if found is None:
            policy, samples, layer = self.request()
            found = order_nodes(policy, topology, samples=samples, layer=layer)
        return self.mamba(self.norm(x), found.cu_seqlens, found.order, found.samples, check=False)

    def request(self) -> Request:
        """Request of the node order for the next forward pass."""
        return self.policy, self.policy.samples(self.training), self.layer


class GraphMambaBlock(nn.Module):
    """Global model in linear time, as a module for your own PyG models.

    Nodes are sorted by degree, ties at random, and pass a Mamba block; at evaluation five orders
    are averaged (https://arxiv.org/abs/2402.00789). Residual and norm are left to your model.

    Args:
        channels: Width of the node embeddings.
        policy: How nodes are ordered.
        options: Sizes and choices of the Mamba block.
        input_norm: `none`, as in the published numbers, or `layer`, as in the paper's text.
        seed: Random seed of node orders at evaluation; None draws it from torch's generator, as all
            node orders in training.

    Example:
        >>> block = GraphMambaBlock(channels=8)
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 4]])
        >>> block(torch.randn(5, 8), edge_index, torch.tensor([0, 0, 0, 1, 1])).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        channels: int,
        policy: OrderPolicy | None = None,
        options: MambaConfig | None = None,
        input_norm: InputNorm = "none",
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.global_model = GraphMambaGlobal(channels, policy, options, input_norm)
        self.noise_seed = DrawnSeed(seed)

    def forward(
        self,
        x: Float[Tensor, "nodes width"],
        edge_index: Int[Tensor, "two edges"],
        batch: Int[Tensor, " rows"] | None = None,
        *,
        num_graphs: int | None = None,
        graph_key: Int[Tensor, " graphs"] | None = None,
        centrality: Float[Tensor, " nodes"] | None = None,
        random_walk: Float[Tensor, "nodes steps"] | None = None,
        cluster: Int[Tensor, " nodes"] | None = None,
        laplacian_vectors: Float[Tensor, "nodes eigenvectors"] | None = None,
        laplacian_values: Float[Tensor, "nodes eigenvectors"] | None = None,
        check: bool | None = None,
    ) -> Float[Tensor, "nodes width"]:
        """Mix the nodes of each graph.

        Args:
            x: Node embeddings, those of a graph next to one another.
            edge_index: Sources and targets; only the count of edges leaving each node matters.
            batch: Graph of each node, ascending; one graph if None.
            num_graphs: Number of graphs, which must be given if the last ones have no nodes; read
                from `batch`, at the cost of a wait for the GPU, if None.
            graph_key: A number per graph that its random orders depend on, such as its index in the
                data set; None for the same in all graphs.
            centrality: Eigenvector centrality, for policies that sort by it.
            random_walk: Return probabilities of random walks, for policies that sort by them.
            cluster: Cluster of each node within its graph, for policies that read it.
            laplacian_vectors: Eigenvectors of the Laplacian, for policies that sort by
                low-frequency functions.
            laplacian_values: Their eigenvalues, given to each node.
            check: Whether to check the values of `batch` and `edge_index`; None checks on the CPU
                only, since reading them would wait for the GPU.
        """
        check_rows("x", x, ("nodes", self.channels))
        check_float_type("x", x, self.global_model.mamba.in_proj.weight)
        check_rows("edge_index", edge_index, (2, "edges"), is_integer=True)
        if batch is None:
            batch = torch.zeros(x.shape[0], dtype=torch.int64, device=x.device)
            num_graphs = 1 if num_graphs is None else num_graphs
        check_rows("batch", batch, x.shape[:1], is_integer=True)
        is_checked = x.device.type == "cpu" if check is None else check
        is_checked = is_checked and not torch.compiler.is_compiling()
        if num_graphs is None:
            # Keys tell the number without a wait for the GPU; a look at all values compares both.
            keys = None if is_checked else graph_key
            if keys is not None:
                num_graphs = len(keys)
            else:
                num_graphs = count_up_to(batch[-1]) if batch.numel() else 0
        nodes, columns = x.shape[0], {}
        given: list[tuple[str, Tensor | None, tuple[int | str, ...]]] = [
            ("graph_key", graph_key, (num_graphs,)),
            ("centrality", centrality, (nodes,)),
            ("cluster", cluster, (nodes,)),
            ("random_walk", random_walk, (nodes, "steps")),
            ("laplacian_vectors", laplacian_vectors, (nodes, "eigenvectors")),
            ("laplacian_values", laplacian_values, (nodes, "eigenvectors")),
        ]
        for name, column, shape in given:
            if column is not None:
                check_rows(name, column, shape, is_integer=name in ("graph_key", "cluster"))
                columns[name] = column
        policy = self.global_model.policy
        check_given(policy, columns, prefix="")
        if policy.score == "spectral":
            found = columns["laplacian_vectors"].shape[1]
            check_least("columns of laplacian_vectors", found, policy.num_eigenvectors)
        if is_checked:
            check_is("num_graphs", num_graphs, int)
            check_membership(edge_index, batch, num_graphs)
        # a call that is rejected draws nothing
        seed = self.noise_seed()
        return self.global_model(
            x, Topology(edge_index.long(), batch.long(), num_graphs, seed, columns)
        )
