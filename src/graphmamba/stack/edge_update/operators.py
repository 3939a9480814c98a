"""The fused form as operators that PyTorch can trace, and their gradients.

The forward operator changes the running statistics of the norm; so, as for the norm alone, a
function of autograd stands around it.
"""

from typing import Any

import torch
from torch import Tensor

from graphmamba.operators import add_operator, as_dense
from graphmamba.stack.gated_sum.operators import LAYOUT, sent_rows

LAYOUT_PARTS, ARGUMENTS = 5, 22
_SETTINGS = "str activation, float rate, int site"
_FORWARD = (
    f"edge_update_fused(Tensor nodes, Tensor edges, Tensor? scale, {LAYOUT}, Tensor? after, "
    "Tensor weight, Tensor bias, Tensor? seed, Tensor? real_edges, Tensor? real_nodes, "
    "Tensor(a!) running_mean, Tensor(b!) running_var, Tensor(c!)? batches, "
    f"{_SETTINGS}, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_BACKWARD = (
    "edge_update_fused_backward(Tensor d_x_hat, Tensor grad, Tensor e_hat, Tensor kept, "
    f"Tensor sent, Tensor? scale, {LAYOUT}, Tensor norm_kept, Tensor weight, Tensor bias, "
    f"Tensor? seed, Tensor? real_edges, {_SETTINGS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    # Here and not at the top, so that Triton has to be installed only where it runs.
    from graphmamba.stack.edge_update import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.forward(*_with_layout(arguments, 3, fused.Layout))


def _backward(*arguments: Any) -> tuple[Tensor, ...]:
    from graphmamba.stack.edge_update import fused

    with torch.cuda.device_of(arguments[0]):
        return fused.backward(*_with_layout(arguments, 6, fused.Layout))


def _with_layout(arguments: tuple[Any, ...], begin: int, layout: type[Any]) -> tuple[Any, ...]:
    """The arguments, with those from `begin` on that are a layout as one."""
    dense, end = as_dense(arguments), begin + LAYOUT_PARTS
    return *dense[:begin], layout(*dense[begin:end]), *dense[end:]


def _fake_forward(nodes: Tensor, edges: Tensor, *others: Any) -> tuple[Tensor, ...]:
    after = others[1 + LAYOUT_PARTS]
    dtype = edges.dtype if after is None else torch.promote_types(edges.dtype, after.dtype)
    rows, channels = nodes.shape[0], edges.shape[1]
    exact = nodes.new_empty(0, dtype=torch.float32)
    return (
        nodes.new_empty((rows, channels)),
        edges.new_empty(edges.shape),
        edges.new_empty(edges.shape, dtype=dtype),
        *(
            exact.new_empty(shape)
            for shape in ((2, rows, channels), (2, channels), (2, 2, channels))
        ),
    )


def _fake_backward(*arguments: Any) -> tuple[Tensor, ...]:
    e_hat, kept, sent, scale = arguments[2:6]
    weight, bias = arguments[7 + LAYOUT_PARTS : 9 + LAYOUT_PARTS]
    rows, channels = sent.shape
    return (
        sent.new_empty((rows, 4 * channels)),
        e_hat.new_empty(e_hat.shape),
        kept.new_empty(0 if scale is None else scale.shape),
        weight.new_empty(weight.shape),
        bias.new_empty(bias.shape),
    )


for _schema, _compute, _fake in (
    (_FORWARD, _forward, _fake_forward),
    (_BACKWARD, _backward, _fake_backward),
):
    add_operator(_schema, _compute, _fake)


class EdgeUpdate(torch.autograd.Function):
    """The operator with its gradients; arguments as in the schema.

    It returns x_hat, the new edges, what the gated sum keeps and the statistics of e_hat and x_hat.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Run the kernels of the forward pass."""
        found = torch.ops.graphmamba.edge_update_fused(*arguments)
        x_hat, e_hat, out, kept, norm_kept, sums = found
        nodes, _, scale, *others = arguments
        layout, (after, weight, bias, seed, count) = others[:5], others[5:10]
        ctx.settings, ctx.has_after = arguments[-5:-2], after is not None
        ctx.mark_non_differentiable(kept, sums)
        # Else rows of zeros would be made for an output that nobody reads.
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            *(e_hat, kept, sent_rows(nodes), scale, *layout, norm_kept, weight, bias, seed, count)
        )
        return x_hat, out, kept, sums

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, d_x_hat: Tensor | None, grad: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        """Run the kernels of the backward pass; those of the sum alone if no edge is read."""
        saved = ctx.saved_tensors
        (sent, scale), is_read = saved[2:4], grad is not None
        if d_x_hat is None and not is_read:
            return (None,) * ARGUMENTS
        d_x_hat = sent.new_zeros(sent.shape) if d_x_hat is None else d_x_hat
        if is_read:
            found = torch.ops.graphmamba.edge_update_fused_backward(
                d_x_hat, grad, *saved, *ctx.settings
            )
        else:
            alone = torch.ops.graphmamba.gated_sum_fused_backward(d_x_hat, None, *saved[:9])
            found = *alone, None, None
        d_nodes, d_edges, d_scale, d_weight, d_bias = found
        given = d_nodes, d_edges, None if scale is None else d_scale, *[None] * LAYOUT_PARTS
        return *given, grad if ctx.has_after else None, d_weight, d_bias, *[None] * (ARGUMENTS - 11)
