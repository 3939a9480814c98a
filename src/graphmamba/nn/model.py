"""The whole model: encoder, layers, head; a batch of graphs in, predictions out."""

from dataclasses import replace

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba.checks import check_is
from graphmamba.data.catalog import Features, Task
from graphmamba.data.columns import topology_of
from graphmamba.data.transforms.precompute import Precompute
from graphmamba.nn.backbone import Backbone
from graphmamba.nn.build import build_layers
from graphmamba.nn.checks import check_columns, check_values
from graphmamba.nn.config import StackConfig
from graphmamba.nn.encoder import GraphEncoder
from graphmamba.nn.encoder_config import EncoderConfig
from graphmamba.nn.heads import HEADS, HeadConfig
from graphmamba.nn.parts_fit import check_parts_fit

ORDER_WALKS = 20
"""Walks that an order by return probabilities sums up."""


class GraphMamba(nn.Module):
    """Predict graphs, nodes or pairs of nodes: encoder, layers and head.

    https://arxiv.org/abs/2402.00789. The defaults are the paper's model; the rivals that it is
    compared with are other values of `model`.

    Args:
        features: Columns of the data.
        task: What is predicted.
        model: Layers.
        encoder: What comes before them.
        head: What comes after them.
        seed: What random line-ups are drawn from.

    Example:
        >>> task = Task("graph", outputs=2, loss="cross_entropy", metric="accuracy", classes=2)
        >>> model = GraphMamba(Features(node_columns=5), task, StackConfig(channels=16, layers=2))
        >>> graph = Data(x=torch.randn(4, 5), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> model(graph).shape
        torch.Size([1, 2])
    """

    def __init__(
        self,
        features: Features,
        task: Task,
        model: StackConfig | None = None,
        encoder: EncoderConfig | None = None,
        head: HeadConfig | None = None,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_is("features", features, Features)
        check_is("task", task, Task)
        model, encoder = model or StackConfig(), encoder or EncoderConfig()
        check_parts_fit(features, model, encoder)
        self.features, self.task = features, task
        self.precompute = columns_read(model, encoder)
        self.backbone = Backbone(
            GraphEncoder(features, model.channels, encoder),
            build_layers(model, has_stable_gate=encoder.gate_frequencies > 0),
            seed=seed,
        )
        self.head = HEADS[task.level](model.channels, task, head or HeadConfig())

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
        seeds = self.backbone.dropout_seeds(topology)
        return self.head(x, topology if seeds is None else replace(topology, drop_seed=seeds[-1]))


def columns_read(model: StackConfig, encoder: EncoderConfig) -> Precompute:
    """Pre-computed columns that such a model reads."""
    laplacian, walks = encoder.laplacian, encoder.random_walk
    ordered_by = model.order.columns if model.mixer == "mamba" else {}
    is_sparse = model.mixer == "exphormer"
    return Precompute(
        frequencies=max(
            laplacian.frequencies if laplacian else 0,
            encoder.gate_frequencies,
            model.order.frequencies if "laplacian_vectors" in ordered_by else 0,
        ),
        walks=max(
            walks.walks if walks else 0,
            ORDER_WALKS if "random_walk" in ordered_by else 0,
        ),
        expander_degree=model.attention.expander_degree if is_sparse else 0,
        has_centrality="centrality" in ordered_by,
        has_clusters="cluster" in ordered_by,
    )
