"""Both operations with gradients that go hand in hand.

What autograd hands from the norm to the sum as the gradient of e_hat is that of the new edges: the
link tells the sum how to make one of the other. So the sums of the norm need not wait for the
gradients of the nodes, nor those for them.
"""

from typing import Any

import torch
from torch import Tensor

from graphmamba.operators import add_operator, as_dense
from graphmamba.stack.gated_sum.operators import LAYOUT, sent_rows
from graphmamba.stack.gated_sum.slopes import Slopes

LAYOUT_PARTS = 5
"""Arguments that are a layout."""
OF_SUM = 6 + LAYOUT_PARTS
"""Arguments of the backward operator that are those of the sum alone."""
_SETTINGS = "str activation, float rate, int site"
_PLACES = "Tensor? seed, Tensor? count"
_SUMS = (
    "edge_norm_sums_fused(Tensor grad, Tensor kept, Tensor e_hat, Tensor weight, Tensor bias, "
    f"{_PLACES}, {_SETTINGS}) -> (Tensor, Tensor)"
)
_BACKWARD = (
    "edge_update_fused_backward(Tensor d_x_hat, Tensor grad, Tensor e_hat, Tensor kept, "
    f"Tensor sent, Tensor? scale, {LAYOUT}, Tensor norm_kept, Tensor weight, Tensor bias, "
    f"Tensor d_weight, Tensor d_bias, {_PLACES}, {_SETTINGS}) -> (Tensor, Tensor, Tensor)"
)


class Link:
    """What the backward pass of a norm leaves for that of the sum before it."""

    slopes: Slopes | None = None


def _sums(*arguments: Any) -> tuple[Tensor, Tensor]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.stack.edge_update import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.norm_sums(*as_dense(arguments))


def _backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    from graphmamba.stack.gated_sum import fused

    dense = as_dense(arguments)
    with torch.cuda.device_of(arguments[0]):
        return fused.backward(*dense[:OF_SUM], slopes=Slopes(*dense[OF_SUM:]))


def _fake_sums(_: Tensor, kept: Tensor, *__: Any) -> tuple[Tensor, Tensor]:
    return kept.new_empty(kept.shape[1]), kept.new_empty(kept.shape[1])


def _fake_backward(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    e_hat, kept, sent, scale = arguments[2:6]
    rows, channels = sent.shape
    d_scale = kept.new_empty(0 if scale is None else scale.shape)
    return sent.new_empty((rows, 4 * channels)), e_hat.new_empty(e_hat.shape), d_scale


for _schema, _compute, _fake in (
    (_SUMS, _sums, _fake_sums),
    (_BACKWARD, _backward, _fake_backward),
):
    add_operator(_schema, _compute, _fake)


class LinkedSum(torch.autograd.Function):
    """The gated sum; given the link, nodes, edges, scale and the layout."""

    @staticmethod
    def forward(ctx: Any, link: Link, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Run the kernel; x_hat, e_hat and what it keeps."""
        x_hat, e_hat, kept = torch.ops.graphmamba.gated_sum_fused(*arguments)
        nodes, _, scale, *layout = arguments
        ctx.link = link
        ctx.mark_non_differentiable(kept)
        # Else rows of zeros would be made for an output that nobody reads.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(e_hat, kept, sent_rows(nodes), scale, *layout)
        return x_hat, e_hat, kept

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, d_x_hat: Tensor | None, grad: Tensor | None, _: None
    ) -> tuple[Tensor | None, ...]:
        """Run the kernels of the backward pass; those of the sum alone if no edge is read."""
        others = [None] * LAYOUT_PARTS
        if d_x_hat is None and grad is None:
            return None, None, None, None, *others
        sent, scale = ctx.saved_tensors[2:4]
        d_x_hat = sent.new_zeros(sent.shape) if d_x_hat is None else d_x_hat
        given, operators = (d_x_hat, grad, *ctx.saved_tensors), torch.ops.graphmamba
        if grad is None:
            found = operators.gated_sum_fused_backward(*given)
        else:
            found = operators.edge_update_fused_backward(*given, *ctx.link.slopes.fields)
        d_nodes, d_edges, d_scale = found
        return None, d_nodes, d_edges, None if scale is None else d_scale, *others


class EdgeNorm(torch.autograd.Function):
    """The norm in training; arguments from the link on as `norm_edges` has them.

    Where the new edges are mapped at once (`linear_through`), the sums are found with the product
    that makes their gradient, and handed here (`handed_sums.py`).
    """

    @staticmethod
    def forward(ctx: Any, link: Link, e_hat: Tensor, *arguments: Any) -> Tensor:
        """Run the kernels of the norm."""
        weight, bias, after, seed, count, *running = arguments[:8]
        activation, rate, site, momentum, eps = arguments[8:]
        out, kept = torch.ops.graphmamba.batch_norm_act_fused(
            *(e_hat, weight, bias, None, after, None, seed, count, *running),
            *(activation, [0.0, rate], [0, site], True, momentum, eps),
        )
        ctx.link, ctx.settings = link, (activation, rate, site)
        ctx.handed = None
        ctx.has_after = after is not None
        ctx.save_for_backward(kept, e_hat, weight, bias, seed, count)
        result: Tensor = out
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        """Find the sums, and leave the rest to the sum before it."""
        kept, _, weight, bias, *places = ctx.saved_tensors
        sums = None if ctx.handed is None else ctx.handed.of(grad)
        ctx.handed = None
        if sums is None:
            given = grad, *ctx.saved_tensors, *ctx.settings
            sums = torch.ops.graphmamba.edge_norm_sums_fused(*given)
        d_weight, d_bias = sums
        ctx.link.slopes = Slopes(kept, weight, bias, d_weight, d_bias, *places, *ctx.settings)
        given = d_weight.to(weight.dtype), d_bias.to(bias.dtype), grad if ctx.has_after else None
        return None, grad, *given, *[None] * 10
