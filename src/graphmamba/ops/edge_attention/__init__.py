"""Attention along given edges: the door, and the operators behind it."""

from jaxtyping import Float
from torch import Tensor

from graphmamba.checks import check_divides
from graphmamba.errors import UserError
from graphmamba.ops.edge_attention import reference
from graphmamba.ops.edge_attention.operators import register
from graphmamba.ops.edge_attention.wires import Wires, wire
from graphmamba.ops.fusing import why_unfused

__all__ = ["Wires", "attend", "wire"]

THREE = 3
"""Rows of a node: what it asks, what it is found by, and what it tells."""


def attend(
    nodes: Float[Tensor, "nodes three_channels"],
    features: Float[Tensor, "features channels"],
    wires: Wires,
    heads: int,
) -> Float[Tensor, "nodes channels"]:
    r"""Let each node attend to those that it has a wire from.

    .. math::
        w_{ij} = \exp \mathrm{clamp}(\langle k_j \odot q_i / \sqrt{c}, e_{ij} \rangle, -5, 5), \quad
        x'_i = \frac{\sum_j w_{ij} v_j}{\sum_j w_{ij} + 10^{-6}}

    for each head of c channels. Along wires that are laid out, one kernel computes it and two find
    all gradients, the same to the last bit whenever they run again; PyTorch has others.

    Args:
        nodes: The rows q, k and v of each node, side by side; float32, bfloat16 or float16 for
            kernels.
        features: Rows e in the same type; a wire says which is its own.
        wires: Who attends to whom.
        heads: Attention heads; must divide the channels.
    """
    _check(nodes, features, wires, heads)
    # Autocast may choose another type for either map.
    features = features.to(nodes.dtype)
    if not wires.is_laid_out:
        return reference.attend(nodes, features, wires, heads)
    if reason := why_unfused(nodes):
        raise UserError(f"wires must not be laid out {reason}, got wires that are")
    out: Tensor = _OPERATOR(
        *(nodes, features, wires.edge_index, wires.feature, wires.target_ptr),
        *(wires.source_ptr, wires.source_order, wires.shared, heads),
    )[0]
    return out


def _check(nodes: Tensor, features: Tensor, wires: Wires, heads: int) -> None:
    channels = features.shape[-1]
    check_divides("heads", heads, "channels", channels)
    if nodes.shape[1] != THREE * channels:
        raise UserError(
            "nodes must have three times the columns of features, got shapes "
            f"{tuple(nodes.shape)} and {tuple(features.shape)}"
        )
    if wires.nodes != nodes.shape[0] or wires.shared > features.shape[0]:
        raise UserError(
            f"wires must be those of {nodes.shape[0]} nodes and of at most {features.shape[0]} "
            f"shared features, got {wires.nodes} and {wires.shared}"
        )


_OPERATOR = register()
