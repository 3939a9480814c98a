"""The layer of the paper, GatedGCN and Mamba in parallel, as one operator for a GPU."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.ops.activation import Activation
from graphmamba.ops.edge_layout import EdgeLayout
from graphmamba.ops.registration import as_dense

Nodes = Float[Tensor, "nodes channels"]
Edges = Float[Tensor, "edges channels"]
EdgeRows = Float[Tensor, "edge_rows channels"]
Named = Mapping[str, Tensor]  # parameters or buffers by their names in `nn.GPSLayer`


class DropoutSite(NamedTuple):
    """Rate of a dropout, 0 in evaluation, and its number among those that share a seed."""

    rate: float = 0.0
    number: int = 0


@dataclass(frozen=True)
class Options:
    """Options of the layer."""

    activation: Activation
    node_drop: DropoutSite
    edge_drop: DropoutSite
    global_drop: DropoutSite
    wide_drop: DropoutSite
    narrow_drop: DropoutSite
    has_input_norm: bool
    is_reverse: bool  # direction of the (first) scan
    is_bidirectional: bool
    zero_order_hold: bool
    is_training: bool
    wants_edges: bool  # whether to compute new edge embeddings
    is_centered: bool = False  # whether sums are centred: see `message_passing.center_sums`
    eps: float = 1e-5
    momentum: float = 0.1


class Graphs(NamedTuple):
    """The graphs of a batch and the order of their nodes."""

    layout: EdgeLayout
    num_real_nodes: Int[Tensor, ""] | None
    num_real_edges: Int[Tensor, ""] | None
    cu_seqlens: Int[Tensor, " boundaries"]
    order: Int[Tensor, " steps"] | None
    samples: int
    seed: Int[Tensor, ""] | None
    ptr: Int[Tensor, " boundaries"]


def graph_mamba_layer(
    x: Nodes, e: EdgeRows, parameters: Named, statistics: Named, graphs: Graphs,
    options: Options,
) -> tuple[Nodes, Edges | None]:  # fmt: skip
    r"""Compute `nn.GPSLayer` with GatedGCN, Mamba, BatchNorms and a feed-forward network.

    .. math::
        s = N_1(\mathrm{GatedGCN}(x, e)) + N_2(x + \mathrm{Mamba}(x)), \quad
        x' = N_3(s + W_2 \sigma(W_1 s))

    It is one node of the autograd graph; the modules are its reference. Running statistics are
    updated in place, as by `torch.nn.functional.batch_norm`.

    Args:
        x: Node embeddings; float32, bfloat16 or float16, which is the type of matrix products.
        e: Edge embeddings of the same type, a row per edge or one for all.
        parameters: Parameters in float32, by their names in `nn.GPSLayer`.
        statistics: Buffers of the BatchNorms, by their names in `nn.GPSLayer`.
        graphs: Edges, sequences, and numbers of real rows.
        options: Options of the layer.

    Returns:
        New node embeddings, and new edge embeddings with `options.wants_edges`.
    """
    from graphmamba.ops.graph_mamba_layer import triton

    x, e = as_dense((x, e))
    with torch.cuda.device_of(x):
        if torch.is_grad_enabled() and any(
            each.requires_grad for each in (x, e, *parameters.values())
        ):
            names = tuple(parameters)
            out, e_new = _Layer.apply(
                *(graphs, options, statistics, names, x, e), *parameters.values()
            )  # type: ignore[no-untyped-call]
            return out, e_new
        out, e_new, *_ = triton.forward(
            *(x, e, parameters, statistics, graphs, options), keeps_for_backward=False
        )
        return out, e_new


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, graphs: Graphs, options: Options, statistics: Named, names: tuple[str, ...],
        x: Tensor, e: Tensor, *parameters: Tensor,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        from graphmamba.ops.graph_mamba_layer import triton

        named = dict(zip(names, parameters, strict=True))
        out, e_new, saved, transposed = triton.forward(
            x, e, named, statistics, graphs, options, keeps_for_backward=True
        )
        ctx.settings, ctx.names = (transposed, graphs, options), names
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, e, *parameters, *saved)
        return out, e_new

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, d_out: Tensor | None, d_e_new: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        from graphmamba.ops.graph_mamba_layer import triton

        names, (x, e, *tensors) = ctx.names, ctx.saved_tensors
        named = dict(zip(names, tensors, strict=False))
        saved = triton.Saved(*tensors[len(names) :])
        d_out, d_e_new = as_dense((torch.zeros_like(x) if d_out is None else d_out, d_e_new))
        with torch.cuda.device_of(x):
            dx, de, d = triton.backward(d_out, d_e_new, x, e, named, saved, *ctx.settings)
        return None, None, None, None, dx, de, *(d.get(name) for name in names)
