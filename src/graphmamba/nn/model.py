"""The whole model: encoder, layers, head; a batch of graphs in, predictions out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba.checks import check_is, check_least
from graphmamba.data.batch import Topology, column, required, topology_of
from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, Features, Task
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import DESCRIPTORS, LINKS
from graphmamba.data.transforms.precompute import Precompute
from graphmamba.errors import UserError
from graphmamba.nn.attention import Attention
from graphmamba.nn.base import GlobalModel, LocalModel, required_edges
from graphmamba.nn.bigbird import BigBird
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
from graphmamba.nn.gcn import GCN, GCNE
from graphmamba.nn.gin import GINE
from graphmamba.nn.gps import GPSLayer, ResidualLayer
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.nn.heads import HEADS, GraphHead, HeadConfig
from graphmamba.nn.performer import Performer
from graphmamba.nn.reverse_edges import ReverseEdges
from graphmamba.nn.sage import SAGE
from graphmamba.nn.spectral import SpectralFilter, SpectralLayer
from graphmamba.nn.virtual_node import VirtualNode
from graphmamba.ops.checks import check_float_type, check_membership, check_pairs, check_rows
from graphmamba.ops.edge_layout import lay_out_edges
from graphmamba.ordering.permutation import NodeOrder, node_orders_of
from graphmamba.ordering.seed import NoiseSeed

ORDER_WALKS = 20
"""Walks that an order by return probabilities sums up."""


class GraphMamba(nn.Module):
    """Predict graphs, nodes or pairs of nodes: encoder, layers and head.

    https://arxiv.org/abs/2402.00789. The defaults are the paper's model; the baselines that it is
    compared with are other values of `model`.

    Args:
        features: Columns of the data.
        task: What is predicted.
        model: Layers.
        encoder: What comes before them.
        head: What comes after them.
        seed: What random node orders are drawn from.

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
        options = {"graph_columns": features.graph_columns} if features.graph_columns else {}
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
        self.head = HEADS[task.level](model.channels, task, head or HeadConfig(), **options)

    def forward(self, graphs: Data, check: bool | None = None) -> Float[Tensor, "rows outputs"]:
        """Predict one row per graph or node; for pairs, one embedding per node.

        Args:
            graphs: A graph or a batch of graphs, with the columns `x`, `edge_index`, `edge_attr`
                where the set has them, and those that
                `data.transforms.precompute.add_columns` makes of `precompute`.
            check: Whether to look at the values of `batch`, `edge_index`, of what points into them
                (`ptr`, `source_order`, `source_ptr`, `target_ptr`) and of categories; None looks at
                tensors on the CPU only, since a look at the GPU has to wait for it.
        """
        topology = topology_of(graphs)
        weight = next(self.parameters())
        check_columns(graphs, topology, self.features, self.precompute, weight)
        is_checked = topology.batch.device.type == "cpu" if check is None else check
        if is_checked and not torch.compiler.is_compiling():
            check_values(graphs, topology, self.features)
        topology = replace(topology, seed=self.backbone.noise_seed())
        x = self.backbone(graphs, topology)
        return self.head(x, topology.with_dropout_seed(self.backbone.dropout_seeds(topology)[-1]))

    def measure_inputs(self, store: GraphStore) -> None:
        """Take what scales raw inputs from the training graphs, where the encoder asks for it."""
        if self.has_measured_inputs:
            assert isinstance(self.backbone.encoder, GraphEncoder)
            self.backbone.encoder.measure_inputs(store.batch(store.split_ids("train")))
        if isinstance(self.head, GraphHead) and self.head.descriptors is not None:
            rows = store.tables["graphs"].given(DESCRIPTORS)
            self.head.descriptors.standardize.measure(rows[store.split_ids("train")])


def columns_read(model: ModelConfig, encoder: EncoderConfig) -> Precompute:
    """Pre-computed columns that such a model reads."""
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


class Backbone(nn.Module):
    """Encoder and layers.

    Args:
        encoder: Called with the batch; returns `Encoded` rows of nodes and edges.
        layers: Each is called `layer(x, e, topology) -> (x, e)`.
        seed: What the random orders and dropouts of all layers are drawn from.
        reverse_edges: What gives each edge a twin in the other direction, or None.
        virtual_nodes: What follows each layer but the last, or nothing.
        has_jumping_knowledge: Whether the mean of the rows after each layer is returned, and not
            the last ones (https://arxiv.org/abs/1806.03536).
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

    def forward(self, graphs: Data, topology: Topology) -> Float[Tensor, "nodes channels"]:
        """Encode the batch and run it through all layers.

        One seed serves the whole pass: drawn here, outside of the layers, it stays the same when
        activation checkpointing runs a layer a second time. A seed in `topology` comes first.
        """
        if topology.seed is None:
            topology = replace(topology, seed=self.noise_seed())
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
        if self.reverse_edges is not None:
            e = self.reverse_edges(required_edges(e, "reverse edges"))
        kept: list[Tensor] = []
        for number, layer in enumerate(self.layers):
            # Heads read nodes alone, so that nobody misses the last edges.
            wants_edges = number + 1 < len(self.layers)
            own = replace(topology, node_order=node_orders[number], wants_edges=wants_edges)
            x, e = layer(x, e, own.with_dropout_seed(seeds[number]))
            kept += [x] if self.has_jumping_knowledge else []
            if wants_edges and self.virtual_nodes:
                x, v = self.virtual_nodes[number](x, v, topology)
        return torch.stack(kept).mean(dim=0) if kept else x

    def dropout_seeds(self, topology: Topology) -> Sequence[Int[Tensor, ""] | None]:
        """Return what the dropouts of each layer, and of a head, follow; None in evaluation."""
        parts = len(self.layers) + 1
        if not self.training or topology.seed is None:
            return [None] * parts
        return self.noise_seed.of_dropouts(topology.seed, parts)

    def _node_orders(self, topology: Topology) -> list[NodeOrder | None]:
        """Order the nodes for all layers together; None for a layer that does not ask for one."""
        requests = []
        for layer in self.layers:
            asked = [
                part.request() for part in layer.modules() if isinstance(part, GraphMambaGlobal)
            ]
            requests.append(asked[0] if len(asked) == 1 else None)
        # A compiler fuses what the layers do by themselves, and cannot look into a table.
        if torch.compiler.is_compiling():
            return [None] * len(requests)
        made = node_orders_of([request for request in requests if request], topology)
        return [made[request] if request else None for request in requests]


LOCAL_MODELS: dict[LocalModelName, Callable[[ModelConfig, bool], LocalModel | None]] = {
    "gatedgcn": lambda config, has_gate: GatedGCN(
        config.channels,
        dropout=config.dropout,
        activation=config.activation,
        has_stable_gate=has_gate,
        is_centered=config.centered_sums,
    ),
    "gcn": lambda config, _: GCN(config.channels, has_bias=config.residual.has_bias),
    "gcne": lambda config, _: GCNE(config.channels, is_centered=config.centered_sums),
    "gine": lambda config, _: GINE(
        config.channels,
        activation=config.activation,
        dropout=config.dropout,
        is_centered=config.centered_sums,
    ),
    "gin": lambda config, _: GINE(
        config.channels,
        activation=config.activation,
        dropout=config.dropout,
        reads_edges=False,
        is_centered=config.centered_sums,
    ),
    "sage": lambda config, _: SAGE(config.channels),
    "none": lambda _config, _has_gate: None,
}
GLOBAL_MODELS: dict[GlobalModelName, Callable[[ModelConfig, int], GlobalModel]] = {
    "mamba": lambda config, layer: GraphMambaGlobal(
        config.channels, config.ordering, config.mamba, config.input_norm, layer
    ),
    "transformer": lambda config, _: Attention(
        config.channels, config.attention.heads, dropout=config.attention.dropout
    ),
    "performer": lambda config, _: Performer(
        config.channels,
        config.attention.heads,
        dropout=config.attention.dropout,
        head_width=config.attention.head_width,
    ),
    "bigbird": lambda config, _: BigBird(
        config.channels, config.attention.heads, dropout=config.dropout
    ),
}


def build_layers(config: ModelConfig, has_stable_gate: bool = False) -> list[nn.Module]:
    """Make the layers, each called `layer(x, e, topology) -> (x, e)`.

    Args:
        config: Which layers.
        has_stable_gate: Whether GatedGCN reads the column `gate_encoding`.
    """
    if has_stable_gate and config.local_model != "gatedgcn":
        raise UserError(
            f"model.local_model must be 'gatedgcn' where positions modulate its gates, "
            f"got {config.local_model!r}"
        )
    if config.centered_sums and config.local_model in ("gcn", "none"):
        raise UserError(
            "model.local_model must be one that adds up neighbours where model.centered_sums is "
            f"true, got {config.local_model!r}"
        )
    if config.global_model == "exphormer":
        return [_exphormer(config, has_stable_gate)]
    is_plain = config.global_model == "none" or config.layer == "residual"
    layer_of = _plain_layer if is_plain else _gps_layer
    layers = [layer_of(config, has_stable_gate, number) for number in range(config.layers)]
    if config.spectral is None:
        return layers
    return [
        SpectralLayer(layer, SpectralFilter(config.channels, config.spectral), config.dropout)
        for layer in layers
    ]


def _gps_layer(config: ModelConfig, has_stable_gate: bool, number: int) -> nn.Module:
    return GPSLayer(
        config.channels,
        LOCAL_MODELS[config.local_model](config, has_stable_gate),
        GLOBAL_MODELS[config.global_model](config, number),
        dropout=config.dropout,
        norm=config.norm,
        activation=config.activation,
        global_dropout=config.global_dropout,
    )


def _plain_layer(config: ModelConfig, has_stable_gate: bool, number: int) -> nn.Module:
    local_model = LOCAL_MODELS[config.local_model](config, has_stable_gate)
    global_model = (
        None
        if config.global_model == "none"
        else GLOBAL_MODELS[config.global_model](config, number)
    )
    if local_model is None and global_model is None:
        raise UserError(
            "model.local_model and model.global_model must not both be 'none', got 'none' for each"
        )
    if local_model is None:
        raise UserError(
            "model.local_model must be a local model where model.layer='residual', got 'none'"
        )
    if local_model.has_residual and global_model is None:
        return local_model
    if local_model.has_residual:
        raise UserError(
            "model.local_model must be a model without a residual of its own where "
            f"model.layer='residual' puts a global model beside it, got {config.local_model!r}"
        )
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


def _exphormer(config: ModelConfig, has_stable_gate: bool) -> nn.Module:
    if config.local_model != "gatedgcn":
        raise UserError(
            f"model.local_model must be 'gatedgcn' for Exphormer, got {config.local_model!r}"
        )
    if config.layer != "gps":
        raise UserError(f"model.layer must be 'gps' for Exphormer, got {config.layer!r}")
    for name in ("centered_sums", "virtual_node", "jumping_knowledge"):
        if getattr(config, name):
            raise UserError(f"model.{name} must be false for Exphormer, got True")
    if config.spectral is not None:
        raise UserError(f"model.spectral must be null for Exphormer, got {config.spectral!r}")
    return ExphormerStack(
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


READ_EDGES: frozenset[LocalModelName] = frozenset({"gatedgcn", "gcne", "gine"})
"""Local models that need a row for each edge."""


def check_parts_fit(features: Features, model: ModelConfig, encoder: EncoderConfig) -> None:
    """Reject statistics of other columns, and layers that would look for rows nobody makes."""
    if model.local_model in READ_EDGES and not encoder.has_edges:
        raise UserError(
            f"encoder.has_edges must be true for model.local_model={model.local_model!r}, which "
            "reads a row for each edge, got False"
        )
    if encoder.reverse_edges and not encoder.has_edges:
        raise UserError(
            "encoder.has_edges must be true where encoder.reverse_edges tells edges apart by their "
            "rows, got False"
        )
    name = encoder.normalize_inputs
    if name == "bag_of_words" and features.nodes != "numbers":
        raise UserError(
            "encoder.normalize_inputs must be 'none' or 'train' where nodes are atoms, "
            "got 'bag_of_words'"
        )
    if encoder.has_degree and (features.nodes != "numbers" or name not in ("none", "train")):
        raise UserError(
            "encoder.has_degree must be false but for nodes with numbers, raw ones or such as "
            f"normalize_inputs='train' scales, got {features.nodes!r} and {name!r}"
        )
    if name == "none" or name in MEASURED:
        return
    wanted = [len(table[name].mean) for table in (NODE_STATISTICS, EDGE_STATISTICS)]
    found = [
        features.node_columns if features.nodes == "numbers" else 0,
        # edges without columns, or that nobody encodes, leave nothing to standardise
        features.edge_columns if features.edges == "numbers" and encoder.has_edges else wanted[1],
    ]
    if found != wanted:
        raise UserError(
            f"encoder.normalize_inputs must be 'none' for other columns than those of {name}, "
            f"{wanted[0]} numbers a node and {wanted[1]} an edge, got {name!r} for "
            f"{found[0]} and {found[1]}"
        )


CATEGORIES = {"atoms", "bonds"}
MADE_BY = "for this model: see data.transforms.precompute.add_columns"
LEFT_OVER = (
    ": if graphs.edge_index was changed, remove source_order, source_ptr and target_ptr, "
    "or take the batch from a GraphStore of the changed graphs"
)


def check_columns(
    graphs: Data, topology: Topology, features: Features, precompute: Precompute, weight: Tensor
) -> None:
    """Reject columns that are missing, of another shape or type; looks at no value on the GPU.

    Args:
        graphs: The batch.
        topology: Its graphs.
        features: Columns that the model was built for.
        precompute: Further columns that it reads.
        weight: A parameter, whose type floats must have.
    """
    edge_index, nodes = topology.edge_index, topology.batch.shape[0]
    check_rows("graphs.edge_index", edge_index, [2, "edges"], is_integer=True)
    if topology.batch.shape != graphs.x.shape[:1]:
        raise UserError(
            f"graphs.batch must have shape [{graphs.x.shape[0]}], got {list(topology.batch.shape)}"
        )
    is_integer = features.nodes in CATEGORIES
    check_rows("graphs.x", graphs.x, [nodes, features.node_columns], is_integer=is_integer)
    if not is_integer:
        check_float_type("graphs.x", graphs.x, weight)
    if features.edges != "none":
        rows = required(graphs, "edge_attr", "as edge features")
        shape = [edge_index.shape[1], features.edge_columns]
        is_integer = features.edges in CATEGORIES
        check_rows("graphs.edge_attr", rows, shape, is_integer=is_integer)
        if not is_integer:
            check_float_type("graphs.edge_attr", rows, weight)
    if features.graph_columns:
        rows = required(graphs, DESCRIPTORS, "as numbers of each graph")
        check_rows(f"graphs.{DESCRIPTORS}", rows, [topology.num_graphs, features.graph_columns])
        check_float_type(f"graphs.{DESCRIPTORS}", rows, weight)
    _check_precomputed(graphs, nodes, precompute)
    lengths = {
        "source_order": edge_index.shape[1],
        "source_ptr": nodes + 1,
        "target_ptr": nodes + 1,
    }
    for name, count in lengths.items():
        values = column(graphs, name)
        if values is not None:
            check_rows(f"graphs.{name}", values, [count], is_integer=True, hint=LEFT_OVER)


def check_values(graphs: Data, topology: Topology, features: Features) -> None:
    """Reject edges between graphs, and numbers of graphs, nodes, atoms, ... that do not exist."""
    check_membership(topology.edge_index, topology.batch, topology.num_graphs)
    _check_pointers(topology)
    if "source_order" in topology.columns:
        _check_layout(topology, topology.columns["source_order"])
    for name in ("expander_index", LINKS):
        pairs = column(graphs, name)
        if pairs is not None:
            check_pairs(name, pairs, topology.batch)
    if features.nodes == "atoms":
        _check_categories("x", graphs.x, ATOM_VOCABULARY)
    if features.edges == "bonds":
        _check_categories("edge_attr", graphs.edge_attr, BOND_VOCABULARY)


def _check_pointers(topology: Topology) -> None:
    if topology.ptr is None:
        return
    starts = replace(topology, ptr=None).starts()
    wrong = (topology.ptr != starts).nonzero()
    if len(wrong):
        place = int(wrong[0])
        raise UserError(
            f"graphs.ptr must hold the first node of each graph of graphs.batch, "
            f"got {int(topology.ptr[place])} instead of {int(starts[place])} at {place}"
        )


def _check_layout(topology: Topology, source_order: Int[Tensor, " edges"]) -> None:
    """Reject an order of the edges that is not one, and pointers into other edges."""
    source, target = topology.edge_index
    if bool((target.diff() < 0).any()):
        raise UserError(
            "graphs.edge_index must be sorted by target where source_order is given, "
            f"got other edges{LEFT_OVER}"
        )
    edges = source.shape[0]
    is_edge = (source_order >= 0) & (source_order < edges)
    if not bool(is_edge.all()) or bool((source_order.bincount(minlength=edges) != 1).any()):
        raise UserError(f"graphs.source_order must hold each edge once, got others{LEFT_OVER}")
    if bool((source[source_order].diff() < 0).any()):
        raise UserError(f"graphs.source_order must sort edges by source, got others{LEFT_OVER}")
    found = lay_out_edges(topology.edge_index, topology.batch.shape[0], source_order, check=False)
    for name in ("source_ptr", "target_ptr"):
        given, truth = topology.columns.get(name), getattr(found, name)
        wrong = [] if given is None else (given != truth).nonzero()
        if given is not None and len(wrong):
            place = int(wrong[0])
            raise UserError(
                f"graphs.{name} must hold the first edge of each node, "
                f"got {int(given[place])} instead of {int(truth[place])} at {place}{LEFT_OVER}"
            )


def _check_precomputed(graphs: Data, nodes: int, precompute: Precompute) -> None:
    for name, least in (
        ("laplacian_vectors", precompute.num_eigenvectors),
        ("laplacian_values", precompute.num_eigenvectors),
        ("random_walk", precompute.walk_length),
    ):
        if least:
            rows = required(graphs, name, MADE_BY)
            check_rows(f"graphs.{name}", rows, [nodes, "columns"])
            check_least(f"columns of graphs.{name}", rows.shape[1], least)
    if precompute.expander_degree:
        pairs = required(graphs, "expander_index", MADE_BY)
        check_rows("graphs.expander_index", pairs, [2, "expanders"], is_integer=True)
    if precompute.has_centrality:
        check_rows("graphs.centrality", required(graphs, "centrality", MADE_BY), [nodes])
    if precompute.has_clusters:
        rows = required(graphs, "cluster", MADE_BY)
        check_rows("graphs.cluster", rows, [nodes], is_integer=True)


def _check_categories(
    name: str, rows: Int[Tensor, "rows columns"], vocabulary: tuple[int, ...]
) -> None:
    ends = torch.tensor(vocabulary, device=rows.device)
    wrong = (rows < 0) | (rows >= ends)
    if bool(wrong.any()):
        row, place = (int(index) for index in wrong.nonzero()[0])
        raise UserError(
            f"graphs.{name} column {place} must be in 0 to {vocabulary[place] - 1}, "
            f"got {int(rows[row, place])} in row {row}"
        )
