"""The paper's layer, GatedGCN beside Mamba, as one operator for a GPU."""

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
Named = Mapping[str, Tensor]
"""Parameters and statistics by the names that they have in `nn.GPSLayer`."""


class DropoutSite(NamedTuple):
    """A dropout: its rate, 0 in evaluation, and its number among those that share a seed."""

    rate: float = 0.0
    number: int = 0


@dataclass(frozen=True)
class Options:
    """What the layer is told besides tensors."""

    activation: Activation
    node_drop: DropoutSite
    edge_drop: DropoutSite
    global_drop: DropoutSite
    wide_drop: DropoutSite
    narrow_drop: DropoutSite
    has_input_norm: bool
    is_reverse: bool
    """Whether the (first) scan runs against the order."""
    is_bidirectional: bool
    zero_order_hold: bool
    is_training: bool
    wants_edges: bool
    """Whether new edge embeddings are asked for."""
    is_centered: bool = False
    """Whether what nodes receive is a sum centred by degree; see `message_passing.center_sums`."""
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
    r"""Run `nn.GPSLayer` with GatedGCN and Mamba, BatchNorms and a feed-forward network.

    .. math::
        s = N_1(\mathrm{GatedGCN}(x, e)) + N_2(x + \mathrm{Mamba}(x)), \quad
        x' = N_3(s + W_2 \sigma(W_1 s))

    It is one node of autograd, judged by the plain modules. Statistics of the BatchNorms move in
    place, as those of `torch.nn.functional.batch_norm` do.

    Args:
        x: Node embeddings, in float32, bfloat16 or float16; products follow their type.
        e: Edge embeddings of the same type, a row for each edge or one for all.
        parameters: By the names that they have in `nn.GPSLayer`, in float32.
        statistics: Buffers of its BatchNorms, likewise.
        graphs: Edges, sequences, and how many rows are real.
        options: All that is no tensor.

    Returns:
        New node embeddings, and new edge embeddings where they are asked for.
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
        ctx.given = transposed, graphs, options
        ctx.names = names
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
            dx, de, found = triton.backward(d_out, d_e_new, x, e, named, saved, *ctx.given)
        return None, None, None, None, dx, de, *(found.get(name) for name in names)
