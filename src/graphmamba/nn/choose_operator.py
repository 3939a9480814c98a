"""Decides whether a layer runs as one operator on a GPU, and prepares its arguments."""

from typing import Any

import torch
from torch import Tensor, nn

from graphmamba.data.batch import Topology
from graphmamba.nn.gated_gcn import GatedGCN
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.nn.norm import BatchNorm, Dropout, NodeNorm
from graphmamba.ops.activation import Activation, activation_function
from graphmamba.ops.backends import TRITON_TYPES, uses_triton
from graphmamba.ops.graph_mamba_layer import DropoutSite, Graphs, Options
from graphmamba.ordering.permutation import order_nodes

NAMES: dict[Any, Activation] = {activation_function(name): name for name in ("relu", "gelu")}


def has_operator(layer: Any) -> bool:
    """Whether a layer is GatedGCN beside Mamba with unsynchronised BatchNorms."""
    local, far = getattr(layer, "local_model", None), getattr(layer, "global_model", None)
    if not (isinstance(local, GatedGCN) and isinstance(far, GraphMambaGlobal)):
        return False
    backends = getattr(layer, "backend", "reference"), local.backend, far.mamba.options.backend
    return (
        all(backend in ("auto", "triton") for backend in backends)
        and local.stable_gate is None
        and layer.activation is local.activation
        and layer.activation in NAMES
        and not any(_is_other(part, layer.training) for part in layer.modules())
    )


def _is_other(part: nn.Module, training: bool) -> bool:
    """Whether a module is unknown to the operator, or frozen by itself."""
    if isinstance(part, BatchNorm):
        is_usual = (part.eps, part.momentum) == (Options.eps, Options.momentum)
        return part.is_synced or not is_usual or part.training != training
    if isinstance(part, Dropout):
        return part.training != training
    return isinstance(part, NodeNorm) and part.name != "batch"


def runs_operator(layer: Any, x: Tensor) -> bool:
    """Whether the operator replaces the modules of the layer for this input."""
    return (
        uses_triton(getattr(layer, "backend", "reference"), x.device)
        and not torch.compiler.is_compiling()
        and x.dtype in TRITON_TYPES
        and has_operator(layer)
        and layer.fc1.weight.dtype == torch.float32
    )


def operator_arguments(layer: Any, x: Tensor, e: Tensor, topology: Topology) -> tuple[Any, ...]:
    """Arguments of the operator, from a layer and a batch."""
    local, far = layer.local_model, layer.global_model
    node_order = topology.node_order
    if node_order is None:
        policy, samples, number = far.request()
        node_order = order_nodes(policy, topology, samples=samples, layer=number)
    order = node_order.order
    if order is None and node_order.samples > 1:
        order = torch.arange(node_order.samples * x.shape[0], device=x.device)
    seed = topology.dropout_seed
    if seed is None and layer.training:
        seed = torch.randint(1 << 62, (), device=x.device)
    graphs = Graphs(
        layout=topology.lay_out(),
        num_real_nodes=topology.num_real_nodes,
        num_real_edges=topology.num_real_edges,
        cu_seqlens=node_order.cu_seqlens,
        order=order,
        samples=node_order.samples,
        seed=seed,
        ptr=topology.starts(),
    )
    options = Options(
        activation=NAMES[layer.activation],
        node_drop=_site(local.node_dropout),
        edge_drop=_site(local.edge_dropout),
        global_drop=_site(layer.global_dropout),
        wide_drop=_site(layer.wide_dropout),
        narrow_drop=_site(layer.narrow_dropout),
        has_input_norm=isinstance(far.norm, nn.LayerNorm),
        is_reverse=far.mamba.direction == "reverse",
        is_bidirectional=far.mamba.direction == "bidirectional",
        zero_order_hold=far.mamba.options.discretization == "zoh",
        is_training=layer.training,
        wants_edges=topology.wants_edges,
        is_centered=local.is_centered,
    )
    if torch.is_autocast_enabled(x.device.type):
        dtype = torch.get_autocast_dtype(x.device.type)
        x, e = x.to(dtype), e.to(dtype)
    return x, e, dict(layer.named_parameters()), dict(layer.named_buffers()), graphs, options


def _site(dropout: Dropout) -> DropoutSite:
    return DropoutSite(dropout.rate if dropout.training else 0.0, dropout.site)
