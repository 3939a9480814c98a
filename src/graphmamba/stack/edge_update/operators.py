"""The fused form as operators that PyTorch can trace, and their gradients.

The forward operator changes the running statistics of the norm; so, as for the norm alone, a
function of autograd stands around it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from graphmamba.encode.linear.operators import as_rows, grad_of_rows, note_use, parameter_grads
from graphmamba.operators import add_operator, as_dense
from graphmamba.stack.gated_sum.operators import LAYOUT, sent_rows

LAYOUT_PARTS, AFTER, ARGUMENTS = 5, 8, 22
"""Arguments of a layout, place of `after`, and all of them but the map."""
_SETTINGS = "str activation, float rate, int site"
_FORWARD = (
    f"edge_update_fused(Tensor nodes, Tensor edges, Tensor? scale, {LAYOUT}, Tensor? after, "
    "Tensor weight, Tensor bias, Tensor? seed, Tensor? real_edges, Tensor? real_nodes, "
    "Tensor(a!) running_mean, Tensor(b!) running_var, Tensor(c!)? batches, "
    f"{_SETTINGS}, float momentum, float eps, Tensor? map_weight=None, Tensor? map_bias=None) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)"
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
    """The operator without a map, and its gradients; arguments as in the schema.

    It returns x_hat, the new edges, what the gated sum keeps and the statistics of e_hat and x_hat.
    """

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Run the kernels of the forward pass."""
        ctx.has_after = arguments[AFTER] is not None
        kept, results = _run(ctx, arguments)
        ctx.save_for_backward(*kept)
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, d_x_hat: Tensor | None, grad: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        """Run the kernels of the backward pass; those of the sum alone if no edge is read."""
        if d_x_hat is None and grad is None:
            return (None,) * ARGUMENTS
        d_nodes, d_edges, d_scale, *d_norm = _gradients(ctx, ctx.saved_tensors, d_x_hat, grad)
        given = d_nodes, d_edges, d_scale, *[None] * LAYOUT_PARTS
        return *given, grad if ctx.has_after else None, *d_norm, *[None] * (ARGUMENTS - 11)


class MappedEdgeUpdate(torch.autograd.Function):
    """The operator with a map of the edges, which are also what is added at the end."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, bias: Tensor | None, *arguments: Any
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Run the kernels of the forward pass."""
        ctx.aside = note_use(weight)
        e = arguments[1]
        kept, results = _run(ctx, (*arguments[:AFTER], e, *arguments[AFTER:], weight, bias))
        ctx.save_for_backward(e, weight, *kept)
        return results

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(
        ctx: Any, d_x_hat: Tensor | None, grad: Tensor | None, *_: None
    ) -> tuple[Tensor | None, ...]:
        """Run the kernels of the backward pass, then those of the map."""
        if d_x_hat is None and grad is None:
            return (None,) * (ARGUMENTS + 1)
        e, weight, *saved = ctx.saved_tensors
        d_nodes, rows, d_scale, *d_norm = _gradients(ctx, saved, d_x_hat, grad)
        assert rows is not None
        found = parameter_grads(ctx.aside, weight, rows, as_rows(e), *ctx.needs_input_grad[:2])
        de = grad_of_rows(rows, weight, grad) if ctx.needs_input_grad[3] else None
        given = *found, d_nodes, de, d_scale, *[None] * LAYOUT_PARTS
        return *given, *d_norm, *[None] * (ARGUMENTS - 11)


def _run(
    ctx: Any, arguments: tuple[Any, ...]
) -> tuple[list[Any], tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Return what the backward pass starts from, and the results."""
    found = torch.ops.graphmamba.edge_update_fused(*arguments)
    x_hat, e_hat, out, kept, norm_kept, sums = found
    nodes, _, scale, *others = arguments[:ARGUMENTS]
    layout, norm = others[:LAYOUT_PARTS], others[LAYOUT_PARTS + 1 : LAYOUT_PARTS + 5]
    ctx.settings = others[-5:-2]
    ctx.mark_non_differentiable(kept, sums)
    # Else rows of zeros would be made for an output that nobody reads.
    ctx.set_materialize_grads(False)
    saved = [e_hat, kept, sent_rows(nodes), scale, *layout, norm_kept, *norm]
    return saved, (x_hat, out, kept, sums)


def _gradients(
    ctx: Any, saved: Sequence[Any], d_x_hat: Tensor | None, grad: Tensor | None
) -> tuple[Tensor | None, ...]:
    """Gradients of nodes, edges after the map, scale, and of weight and bias of the norm."""
    sent, scale = saved[2:4]
    d_x_hat = sent.new_zeros(sent.shape) if d_x_hat is None else d_x_hat
    if grad is None:
        found = [*torch.ops.graphmamba.gated_sum_fused_backward(d_x_hat, None, *saved[:9])]
        found += None, None
    else:
        found = [
            *torch.ops.graphmamba.edge_update_fused_backward(d_x_hat, grad, *saved, *ctx.settings)
        ]
    return *found[:2], None if scale is None else found[2], *found[3:]
