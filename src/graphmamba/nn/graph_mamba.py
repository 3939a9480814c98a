"""Graph-Mamba: the exchange among all nodes, and a block for any model."""

from collections.abc import Mapping
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from graphmamba.checks import check_choice, check_is, check_least
from graphmamba.data.batch import Topology, count_up_to
from graphmamba.nn.base import GlobalModel
from graphmamba.nn.mamba import MambaBlock, MambaConfig
from graphmamba.ops.checks import check_float_type, check_membership, check_rows
from graphmamba.ordering.permutation import Request, check_given, order_nodes
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.ordering.seed import DrawnSeed

InputNorm = Literal["none", "layer"]


class GraphMambaGlobal(GlobalModel):
    """Mamba over the nodes of each graph, sorted by importance.

    https://arxiv.org/abs/2402.00789. All graphs, bins and samples go through one scan.

    Args:
        channels: Width of the node embeddings.
        policy: How nodes are ordered.
        options: Sizes and choices of the Mamba block.
        input_norm: `none`, as the published parameter counts prove, or the `layer` norm that the
            paper's Algorithm 1 puts before the projections.
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
        check_choice("input_norm", input_norm, get_args(InputNorm))
        check_least("layer", layer, 0)
        self.policy = policy or OrderPolicy()
        check_is("policy", self.policy, OrderPolicy)
        self.layer = layer
        self.norm = nn.LayerNorm(channels) if input_norm == "layer" else nn.Identity()
        self.mamba = MambaBlock(channels, options, self.policy.direction)

    def forward(
        self, x: Float[Tensor, "nodes channels"], topology: Topology
    ) -> Float[Tensor, "nodes channels"]:
        """Return what each node takes from those before it."""
        found = topology.node_order
        if found is None:
            policy, samples, layer = self.request()
            found = order_nodes(policy, topology, samples=samples, layer=layer)
        order = found.cu_seqlens, found.order, found.samples
        return self.mamba(self.norm(x), *order, check=False)

    def request(self) -> Request:
        """Say which node order the next pass asks for."""
        return self.policy, self.policy.samples(self.training), self.layer


class GraphMambaBlock(nn.Module):
    """Exchange among all nodes of a graph in linear time, for any model of PyTorch Geometric.

    Nodes are sorted by degree, ties at random, and run through a Mamba block; at evaluation five
    such passes are averaged (https://arxiv.org/abs/2402.00789). There is no residual and no norm
    after it: add those of your model.

    Args:
        channels: Width of the node embeddings.
        policy: How nodes are ordered.
        options: Sizes and choices of the Mamba block.
        input_norm: `none`, as in the published numbers, or `layer`, as in the paper's text.
        seed: What the random node orders at evaluation are drawn from; itself drawn by torch's
            generator, as all node orders in training are, if None.

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
            graph_key: A number for each graph that its random draws depend on, such as its place
                in the data set; all graphs draw alike if None.
            centrality: Eigenvector centrality, for policies that sort by it.
            random_walk: Return probabilities of random walks, for policies that sort by them.
            cluster: Cluster of each node within its graph, for policies that read it.
            laplacian_vectors: Eigenvectors of the Laplacian, for policies that sort by
                low-frequency functions.
            laplacian_values: Their eigenvalues, given to each node.
            check: Whether to look at the values of `batch` and `edge_index`; None looks at tensors
                on the CPU only, since a look at the GPU has to wait for it.
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
            num_graphs = _read_num_graphs(batch) if keys is None else len(keys)
        if graph_key is not None:
            check_rows("graph_key", graph_key, (num_graphs,), is_integer=True)
        given = {
            "graph_key": graph_key,
            "centrality": centrality,
            "random_walk": random_walk,
            "cluster": cluster,
            "laplacian_vectors": laplacian_vectors,
            "laplacian_values": laplacian_values,
        }
        columns = {name: each for name, each in given.items() if each is not None}
        _check_columns(self.global_model.policy, columns, x.shape[0])
        if is_checked:
            check_is("num_graphs", num_graphs, int)
            check_membership(edge_index, batch, num_graphs)
        # a call that is rejected draws nothing
        seed = self.noise_seed()
        return self.global_model(
            x, Topology(edge_index.long(), batch.long(), num_graphs, seed, columns)
        )


def _read_num_graphs(batch: Tensor) -> int:
    return count_up_to(batch[-1]) if batch.numel() else 0


def _check_columns(policy: OrderPolicy, columns: Mapping[str, Tensor], nodes: int) -> None:
    """Reject columns that a policy cannot read: missing ones, other shapes, other kinds."""
    check_given(policy, columns, prefix="")
    for name in ("centrality", "cluster"):
        if name in columns:
            check_rows(name, columns[name], (nodes,), is_integer=name == "cluster")
    if "random_walk" in columns:
        check_rows("random_walk", columns["random_walk"], (nodes, "walks"))
        check_least("walks of random_walk", columns["random_walk"].shape[1], 1)
    vectors, values = map(columns.get, ("laplacian_vectors", "laplacian_values"))
    if vectors is not None:
        least = policy.num_eigenvectors if policy.score == "spectral" else 1
        check_rows("laplacian_vectors", vectors, (nodes, "eigenvectors"))
        check_least("columns of laplacian_vectors", vectors.shape[1], least)
    if values is not None:
        shape = (nodes, "eigenvectors") if vectors is None else vectors.shape
        check_rows("laplacian_values", values, shape)
