"""The whole model: encoder, layers and head."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import relu
from torch_geometric.data import Data

from graphmamba.checks import check_is, check_least
from graphmamba.data.batch import Topology, column, required, topology_of
from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, Features, Task
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import DESCRIPTORS, LINKS
from graphmamba.data.transforms.precompute import Precompute
from graphmamba.errors import UserError
from graphmamba.nn.attention import Attention
from graphmamba.nn.base import (
    Edges,
    GlobalModel,
    LocalModel,
    Nodes,
    one_per_edge,
    required_edges,
)
from graphmamba.nn.bigbird import BigBird
from graphmamba.nn.choose_operator import runs_operator
from graphmamba.nn.config import (
    MEASURED,
    EncoderConfig,
    GlobalModelName,
    LocalModelName,
    ModelConfig,
)
from graphmamba.nn.encoders import EDGE_STATISTICS, NODE_STATISTICS, GraphEncoder
from graphmamba.nn.exphormer import ExphormerStack
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.gps import GPSLayer, ResidualLayer
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.nn.heads import GraphHead, HeadConfig, NodeHead
from graphmamba.nn.message_passing import GCN, GCNE, GINE, SAGE
from graphmamba.nn.norm import has_dropout
from graphmamba.nn.performer import Performer
from graphmamba.nn.spectral import SpectralFilter, SpectralLayer
from graphmamba.ops.checks import check_float_type, check_membership, check_pairs, check_rows
from graphmamba.ops.edge_layout import lay_out_edges
from graphmamba.ops.segments import sum_segments, take_rows
from graphmamba.ordering.permutation import NodeOrder, node_orders_of
from graphmamba.ordering.seed import NoiseSeed

ORDER_WALKS = 20
"""Walk length of the `random_walk` score."""


class GraphMamba(nn.Module):
    """Graph-Mamba: encoder, layers and head, for graphs, nodes or links.

    https://arxiv.org/abs/2402.00789. The defaults are the paper's model; its baselines are other
    values of `model`.

    Args:
        features: Features of the data.
        task: What is predicted.
        model: Options of the layers.
        encoder: Options of the encoder.
        head: Options of the head.
        seed: Random seed of node orders.

    Example:
        >>> task = Task("graph", outputs=2, loss="cross_entropy", metric="accuracy", classes=2)
        >>> model = GraphMamba(Features(node_columns=5), task, ModelConfig(channels=16, layers=2))
        >>> graph = Data(x=torch.randn(4, 5), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> model(graph).shape
        torch.Size([1, 2])
    """

    def __init__(
        self,
        features: Features,
        task: Task,
        model: ModelConfig | None = None,
        encoder: EncoderConfig | None = None,
        head: HeadConfig | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_is("features", features, Features)
        check_is("task", task, Task)
        model, encoder = model or ModelConfig(), encoder or EncoderConfig()
        check_parts_fit(features, model, encoder)
        if features.graph_columns and task.level != "graph":
            raise UserError(
                f"features.graph_columns must be 0 where {task.level}s are predicted, "
                f"got {features.graph_columns}"
            )
        self.features, self.task = features, task
        self.precompute = columns_read(model, encoder)
        self.has_measured_inputs = encoder.normalize_inputs in MEASURED
        self.backbone = Backbone(
            GraphEncoder(features, model.channels, encoder),
            build_layers(model, has_stable_gate=encoder.stable_gate_eigenvectors > 0),
            seed=seed,
            reverse_edges=ReverseEdges(model.channels) if encoder.reverse_edges else None,
            virtual_nodes=[
                VirtualNode(model.channels) for _ in range(model.layers - 1) if model.virtual_node
            ],
            has_jumping_knowledge=model.jumping_knowledge,
        )
        head = head or HeadConfig()
        self.head = (
            GraphHead(model.channels, task, head, features.graph_columns)
            if task.level == "graph"
            else NodeHead(model.channels, task, head)
        )
        self._head_drops = has_dropout(self.head)

    def forward(self, graphs: Data, check: bool | None = None) -> Float[Tensor, "rows outputs"]:
        """Predict one row per graph or node; for pairs, one embedding per node.

        Args:
            graphs: A graph or a batch of graphs, with the columns `x`, `edge_index`, `edge_attr`
                where the set has them, and those that
                `data.transforms.precompute.add_columns` makes of `precompute`.
            check: Whether to check the values of `batch`, `edge_index`, of their indices (`ptr`,
                `source_order`, `source_ptr`, `target_ptr`) and of categories; None checks on the
                CPU only, since reading them would wait for the GPU.
        """
        topology = topology_of(graphs)
        weight = next(self.parameters())
        check_columns(graphs, topology, self.features, self.precompute, weight)
        is_checked = topology.batch.device.type == "cpu" if check is None else check
        if is_checked and not torch.compiler.is_compiling():
            check_values(graphs, topology, self.features)
        seed = self.backbone.noise_seed()
        topology = replace(topology, seed=seed)
        x = self.backbone(graphs, topology)
        if self._head_drops and self.training:
            place = len(self.backbone.layers)
            (own,) = self.backbone.noise_seed.of_dropouts(seed, range(place, place + 1))
            topology = topology.with_dropout_seed(own)
        return self.head(x, topology)

    def measure_inputs(self, store: GraphStore) -> None:
        """Measure the input scaling on the training graphs, if the encoder needs it."""
        if store.is_streamed:
            # all of them at once would not fit where the batches go
            store = store.to("cpu")
        if self.has_measured_inputs:
            assert isinstance(self.backbone.encoder, GraphEncoder)
            self.backbone.encoder.measure_inputs(store.batch(store.split_ids("train")))
        if isinstance(self.head, GraphHead) and self.head.descriptors is not None:
            rows = store.tables["graphs"].given(DESCRIPTORS)
            self.head.descriptors.standardize.measure(rows[store.split_ids("train")])


def columns_read(model: ModelConfig, encoder: EncoderConfig) -> Precompute:
    """Precomputed columns that a model of this configuration reads."""
    laplacian, walks = encoder.laplacian, encoder.random_walk
    ordered_by = model.ordering.columns if model.global_model == "mamba" else {}
    is_sparse = model.global_model == "exphormer"
    return Precompute(
        num_eigenvectors=max(
            laplacian.num_eigenvectors if laplacian else 0,
            encoder.stable_gate_eigenvectors,
            model.ordering.num_eigenvectors if "laplacian_vectors" in ordered_by else 0,
            model.spectral.num_eigenvectors if model.spectral else 0,
        ),
        walk_length=max(
            walks.walk_length if walks else 0,
            ORDER_WALKS if "random_walk" in ordered_by else 0,
        ),
        expander_degree=model.attention.expander_degree if is_sparse else 0,
        has_centrality="centrality" in ordered_by,
        has_clusters="cluster" in ordered_by,
    )


class ReverseEdges(nn.Module):
    r"""Add the reverse of each edge, marked by a learned embedding.

    .. math:: e_{ji} = e_{ij} + r \quad\text{for each edge}\quad j \to i

    For directed graphs, on which messages otherwise flow one way only
    (https://arxiv.org/abs/2305.10498). In an undirected graph each edge would be there twice.

    Args:
        channels: Width of the edge embeddings.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.reverse = nn.Parameter(torch.randn(1, channels))

    def both_ways(self, topology: Topology) -> Topology:
        """Return the graphs with each edge followed by its twin, so that real ones stay first."""
        edge_index = topology.edge_index
        both = torch.stack([edge_index, edge_index.flip(0)], dim=2).flatten(1)
        real = topology.num_real_edges
        return replace(
            topology,
            edge_index=both,
            edge_layout=lay_out_edges(both, topology.batch.shape[0], check=False),
            num_real_edges=None if real is None else 2 * real,
        )

    def forward(self, e: Edges) -> Float[Tensor, "twice_edges channels"]:
        return torch.stack([e, e + self.reverse], dim=1).flatten(0, 1)


class VirtualNode(nn.Module):
    r"""Virtual node, an embedding of each graph (https://arxiv.org/abs/1704.01212).

    .. math::
        v^{l+1} = W_2\,\mathrm{ReLU}\Big(\mathrm{LN}\big(W_1 (v^l + \sum_i x_i)\big)\Big), \quad
        x'_i = x_i + v^{l+1}

    over the nodes of each graph, starting from zeros. LN is a LayerNorm, since a BatchNorm would
    see only one row per graph.

    Args:
        channels: Width of the rows.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(channels, channels), nn.Linear(channels, channels)
        self.norm = nn.LayerNorm(channels)

    def forward(
        self,
        x: Nodes,
        v: Float[Tensor, "graphs channels"] | None,
        topology: Topology,
    ) -> tuple[Nodes, Float[Tensor, "graphs channels"]]:
        """Return new embeddings of nodes and virtual nodes; `v` is None before the first."""
        ptr, batch = topology.starts(), topology.batch
        total = sum_segments(x, batch, ptr)
        hidden = self.fc1(total if v is None else v + total)
        v = self.fc2(relu(self.norm(hidden)))
        return x + take_rows(v, batch, ptr), v


class Backbone(nn.Module):
    """Encoder and layers.

    Args:
        encoder: Called with the batch; returns `Encoded` embeddings.
        layers: Each is called `layer(x, e, topology) -> (x, e)`.
        seed: Random seed of node orders and dropout in all layers.
        reverse_edges: Module that adds the reverse of each edge, or None.
        virtual_nodes: Modules after each layer except the last, or none.
        has_jumping_knowledge: Whether to return the mean over all layers instead of the last one
            (https://arxiv.org/abs/1806.03536).
    """

    def __init__(
        self,
        encoder: nn.Module,
        layers: Iterable[nn.Module],
        *,
        seed: int = 0,
        reverse_edges: ReverseEdges | None = None,
        virtual_nodes: Iterable[VirtualNode] = (),
        has_jumping_knowledge: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.layers = nn.ModuleList(layers)
        self.reverse_edges, self.virtual_nodes = reverse_edges, nn.ModuleList(virtual_nodes)
        self.has_jumping_knowledge = has_jumping_knowledge
        self.noise_seed = NoiseSeed(seed)
        self._reads_layout = any(isinstance(part, LocalModel) for part in self.layers.modules())
        self._has_dropout = has_dropout(self.layers)

    def forward(self, graphs: Data, topology: Topology) -> Nodes:
        """Encode the batch and run it through all layers.

        One seed serves the whole pass: drawn here, outside of the layers, it stays the same when
        activation checkpointing runs a layer a second time. A seed in `topology` comes first.
        """
        if topology.seed is None:
            topology = replace(topology, seed=self.noise_seed())
        edges = topology.edge_index.shape[1]
        if self.reverse_edges is not None:
            topology = self.reverse_edges.both_ways(topology)
        node_orders, seeds = self._node_orders(topology), self.dropout_seeds(topology)
        encoded = self.encoder(graphs)
        if encoded.gate is not None:
            columns = {**topology.columns, "gate_encoding": encoded.gate}
            topology = replace(topology, columns=columns)
        layout = topology.lay_out() if self._reads_layout else None
        topology = replace(topology, edge_layout=layout).with_cache()
        x, e = encoded.x, encoded.e
        v: Tensor | None = None
        # the operator of a layer reads one row for all edges as it is
        if e is not None and e.shape[0] != edges:
            is_read = self.reverse_edges is None and runs_operator(self.layers[0], x)
            e = e if is_read else one_per_edge(e, edges)
        if self.reverse_edges is not None:
            e = self.reverse_edges(required_edges(e, "reverse edges"))
        kept: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            # Heads read nodes only, so the last edge embeddings are not needed.
            wants_edges = number + 1 < len(self.layers)
            own = replace(topology, node_order=node_orders[number], wants_edges=wants_edges)
            x, e = layer(x, e, own.with_dropout_seed(seeds[number]))
            kept += [x] if self.has_jumping_knowledge else []
            if wants_edges and self.virtual_nodes:
                x, v = self.virtual_nodes[number](x, v, topology)
        return torch.stack(kept).mean(dim=0) if kept else x

    def dropout_seeds(self, topology: Topology) -> Sequence[Int[Tensor, ""] | None]:
        """Return the seeds of dropout in each layer; None where nothing is dropped."""
        parts = range(len(self.layers))
        if not (self.training and self._has_dropout) or topology.seed is None:
            return [None] * len(parts)
        return self.noise_seed.of_dropouts(topology.seed, parts)

    def _node_orders(self, topology: Topology) -> list[NodeOrder | None]:
        """Order the nodes for all layers by one sort; None for layers without Mamba."""
        # A compiler fuses what the layers do by themselves, and cannot look into a table.
        if torch.compiler.is_compiling():
            return [None] * len(self.layers)
        asked = [
            [part.request() for part in layer.modules() if isinstance(part, GraphMambaGlobal)]
            for layer in self.layers
        ]
        made = node_orders_of([each[0] for each in asked if len(each) == 1], topology)
        return [made[each[0]] if len(each) == 1 else None for each in asked]


LOCAL_MODELS: dict[LocalModelName, Callable[[ModelConfig, bool], LocalModel | None]] = {
    "gatedgcn": lambda c, has_gate: GatedGCN(
        c.channels, dropout=c.dropout, activation=c.activation, has_stable_gate=has_gate,
        is_centered=c.centered_sums,
    ),
    "gcn": lambda c, _: GCN(c.channels, has_bias=c.residual.has_bias),
    "gcne": lambda c, _: GCNE(c.channels, is_centered=c.centered_sums),
    "gine": lambda c, _: GINE(
        c.channels, activation=c.activation, dropout=c.dropout, is_centered=c.centered_sums
    ),
    "gin": lambda c, _: GINE(
        c.channels, activation=c.activation, dropout=c.dropout, reads_edges=False,
        is_centered=c.centered_sums,
    ),
    "sage": lambda c, _: SAGE(c.channels),
    "none": lambda _c, _has_gate: None,
}  # fmt: skip
GLOBAL_MODELS: dict[GlobalModelName, Callable[[ModelConfig, int], GlobalModel | None]] = {
    "mamba": lambda c, layer: GraphMambaGlobal(
        c.channels, c.ordering, c.mamba, c.input_norm, layer
    ),
    "transformer": lambda c, _: Attention(
        c.channels, c.attention.heads, dropout=c.attention.dropout
    ),
    "performer": lambda c, _: Performer(
        c.channels, c.attention.heads, dropout=c.attention.dropout,
        head_width=c.attention.head_width,
    ),
    "bigbird": lambda c, _: BigBird(c.channels, c.attention.heads, dropout=c.dropout),
    "none": lambda _c, _layer: None,
}  # fmt: skip


def build_layers(config: ModelConfig, has_stable_gate: bool = False) -> list[nn.Module]:
    """Make the layers, each called `layer(x, e, topology) -> (x, e)`.

    Args:
        config: Options of the layers.
        has_stable_gate: Whether GatedGCN reads the column `gate_encoding`.
    """
    check_layers(config, has_stable_gate)
    if config.global_model == "exphormer":
        return [
            ExphormerStack(
                config.channels,
                config.layers,
                config.attention.heads,
                dropout=config.dropout,
                has_expander=config.attention.expander_degree > 0,
                virtual_nodes=config.attention.virtual_nodes,
                has_stable_gate=has_stable_gate,
                norm=config.norm,
                activation=config.activation,
            )
        ]
    layers = [_layer(config, has_stable_gate, number) for number in range(config.layers)]
    if config.spectral is None:
        return layers
    return [
        SpectralLayer(layer, SpectralFilter(config.channels, config.spectral), config.dropout)
        for layer in layers
    ]


def _layer(config: ModelConfig, has_stable_gate: bool, number: int) -> nn.Module:
    local_model = LOCAL_MODELS[config.local_model](config, has_stable_gate)
    if config.global_model == "none" and isinstance(local_model, GatedGCN):
        return local_model
    global_model = GLOBAL_MODELS[config.global_model](config, number)
    if config.global_model != "none" and config.layer == "gps":
        return GPSLayer(
            config.channels,
            local_model,
            global_model,
            dropout=config.dropout,
            norm=config.norm,
            activation=config.activation,
            global_dropout=config.global_dropout,
        )
    assert local_model is not None
    return ResidualLayer(
        config.channels,
        local_model,
        activation=config.residual.activation,
        dropout=config.dropout,
        norm=config.residual.norm,
        global_model=global_model,
        has_residual=config.residual.has_residual,
        l2_normalize=config.residual.l2_normalize,
        has_zero_gate=config.residual.has_zero_gate,
    )


def check_layers(config: ModelConfig, has_stable_gate: bool) -> None:
    """Reject parts that do not fit together."""
    local_model, is_exphormer = config.local_model, config.global_model == "exphormer"
    has_extras = config.centered_sums or config.virtual_node or config.jumping_knowledge
    is_alone, is_plain = config.global_model == "none", config.layer == "residual"
    wrong = {
        "model.local_model must be 'gatedgcn' where positions modulate its gates": (
            has_stable_gate and local_model != "gatedgcn"
        ),
        "model.local_model must add up neighbours where model.centered_sums is true": (
            config.centered_sums and local_model in ("gcn", "sage", "none")
        ),
        "model.local_model must be 'gatedgcn' and model.layer 'gps' for Exphormer": (
            is_exphormer and (local_model != "gatedgcn" or is_plain)
        ),
        "model.centered_sums, virtual_node, jumping_knowledge and spectral must be off for "
        "Exphormer, and model.local_model 'gatedgcn'": (
            is_exphormer and (has_extras or config.spectral is not None)
        ),
        "model.local_model must not be 'none' without a global model or in plain layers": (
            (is_alone or is_plain) and local_model == "none"
        ),
        "model.local_model must be without a residual of its own in plain layers that have a "
        "global model": is_plain and not is_alone and local_model == "gatedgcn",
    }
    for message, is_wrong in wrong.items():
        if is_wrong:
            raise UserError(f"{message}, got {local_model!r}")


READ_EDGES: frozenset[LocalModelName] = frozenset({"gatedgcn", "gcne", "gine"})
"""Local models that need edge embeddings."""


def check_parts_fit(features: Features, model: ModelConfig, encoder: EncoderConfig) -> None:
    """Reject input statistics of other columns, and layers that read missing columns."""
    name, has_numbers = encoder.normalize_inputs, features.nodes == "numbers"
    if not encoder.has_edges and (model.local_model in READ_EDGES or encoder.reverse_edges):
        raise UserError(
            "encoder.has_edges must be true where model.local_model or encoder.reverse_edges read "
            f"a row for each edge, got False for {model.local_model!r}"
        )
    if not has_numbers and (encoder.has_degree or name == "bag_of_words"):
        raise UserError(
            "encoder.has_degree must be false and encoder.normalize_inputs 'none' or 'train' where "
            f"nodes are atoms, got {encoder.has_degree} and {name!r}"
        )
    if encoder.has_degree and name not in ("none", "train"):
        raise UserError(
            "encoder.normalize_inputs must be 'none' or 'train' with encoder.has_degree, "
            f"got {name!r}"
        )
    if name == "none" or name in MEASURED:
        return
    wanted = [len(table[name].mean) for table in (NODE_STATISTICS, EDGE_STATISTICS)]
    found = [
        features.node_columns if has_numbers else 0,
        # edges without columns, or that nobody encodes, leave nothing to standardise
        features.edge_columns if features.edges == "numbers" and encoder.has_edges else wanted[1],
    ]
    if found != wanted:
        raise UserError(
            f"encoder.normalize_inputs must be 'none' for other columns than those of {name}, "
            f"{wanted[0]} numbers a node and {wanted[1]} an edge, got {name!r} for "
            f"{found[0]} and {found[1]}"
        )


MADE_BY = "for this model: see data.transforms.precompute.add_columns"
LEFT_OVER = (
    ": if graphs.edge_index was changed, remove source_order, source_ptr and target_ptr, "
    "or take the batch from a GraphStore of the changed graphs"
)


def check_columns(
    graphs: Data, topology: Topology, features: Features, precompute: Precompute, weight: Tensor
) -> None:
    """Reject columns that are missing or of another shape or type; reads no values.

    Args:
        graphs: The batch.
        topology: Its graphs.
        features: Columns that the model was built for.
        precompute: Further columns that it reads.
        weight: A parameter, whose type floats must have.
    """
    check_rows("graphs.edge_index", topology.edge_index, [2, "edges"], is_integer=True)
    nodes, edges = graphs.x.shape[0], topology.edge_index.shape[1]
    check_rows("graphs.batch", topology.batch, [nodes], is_integer=True)
    is_category = {"x": features.nodes == "atoms", "edge_attr": features.edges == "bonds"}
    given = [("x", "as node features", [nodes, features.node_columns])]
    if features.edges != "none":
        given.append(("edge_attr", "as edge features", [edges, features.edge_columns]))
    if features.graph_columns:
        shape = [topology.num_graphs, features.graph_columns]
        given.append((DESCRIPTORS, "as numbers of each graph", shape))
    for name, why, shape in given:
        rows, is_integer = required(graphs, name, why), is_category.get(name, False)
        check_rows(f"graphs.{name}", rows, shape, is_integer=is_integer)
        if not is_integer:
            check_float_type(f"graphs.{name}", rows, weight)

    for name, least, axes in (
        ("laplacian_vectors", precompute.num_eigenvectors, (nodes, "columns")),
        ("laplacian_values", precompute.num_eigenvectors, (nodes, "columns")),
        ("random_walk", precompute.walk_length, (nodes, "columns")),
        ("expander_index", precompute.expander_degree, (2, "expanders")),
        ("centrality", precompute.has_centrality, (nodes,)),
        ("cluster", precompute.has_clusters, (nodes,)),
    ):
        if least:
            rows = required(graphs, name, MADE_BY)
            is_integer = name in ("expander_index", "cluster")
            check_rows(f"graphs.{name}", rows, axes, is_integer=is_integer)
            if axes == (nodes, "columns"):
                check_least(f"columns of graphs.{name}", rows.shape[1], least)
    for name, count in (
        ("source_order", edges),
        ("source_ptr", nodes + 1),
        ("target_ptr", nodes + 1),
    ):
        values = column(graphs, name)
        if values is not None:
            check_rows(f"graphs.{name}", values, [count], is_integer=True, hint=LEFT_OVER)


def check_values(graphs: Data, topology: Topology, features: Features) -> None:
    """Reject edges between graphs, and indices out of range."""
    check_membership(topology.edge_index, topology.batch, topology.num_graphs)
    starts = replace(topology, ptr=None).starts()
    if topology.ptr is not None and bool((topology.ptr != starts).any()):
        raise UserError(
            "graphs.ptr must hold the first node of each graph of graphs.batch, got other numbers"
        )
    if "source_order" in topology.columns:
        _check_layout(topology)
    for name in ("expander_index", LINKS):
        pairs = column(graphs, name)
        if pairs is not None:
            check_pairs(name, pairs, topology.batch)
    for name, is_category, vocabulary in (
        ("x", features.nodes == "atoms", ATOM_VOCABULARY),
        ("edge_attr", features.edges == "bonds", BOND_VOCABULARY),
    ):
        if is_category:
            rows = graphs[name]
            wrong = (rows < 0) | (rows >= torch.tensor(vocabulary, device=rows.device))
            if bool(wrong.any()):
                row, place = wrong.nonzero()[0].tolist()
                raise UserError(
                    f"graphs.{name} column {place} must be in 0 to {vocabulary[place] - 1}, "
                    f"got {int(rows[row, place])} in row {row}"
                )


def _check_layout(topology: Topology) -> None:
    """Reject `source_order` and pointers that belong to other edges."""
    nodes, order = topology.batch.shape[0], topology.columns["source_order"]
    try:
        found = lay_out_edges(topology.edge_index, nodes, order, check=True)
    except UserError as error:
        raise UserError(f"graphs.{error}{LEFT_OVER}") from error
    for name in ("source_ptr", "target_ptr"):
        given = topology.columns.get(name)
        if given is not None and bool((given != getattr(found, name)).any()):
            raise UserError(
                f"graphs.{name} must hold the first edge of each node, got other numbers{LEFT_OVER}"
            )
