"""The schedule of the layer on a GPU: all kernels of a pass, in order.

Message passing runs on the current stream, Mamba on a side stream. New edge embeddings, on which
nodes do not depend, and gradients of weights, on which nothing depends, have further side streams.
Tensors that a side stream reads are kept alive until it is done, since PyTorch's allocator reuses
memory in the order of one stream.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.ops.activation import Activation
from graphmamba.ops.batch_norm import triton as batch_norm
from graphmamba.ops.causal_conv1d import triton as causal_conv1d
from graphmamba.ops.edge_layout import EdgeLayout
from graphmamba.ops.gated_sum import triton as gated_sum
from graphmamba.ops.graph_mamba_layer import (
    DropoutSite,
    EdgeRows,
    Edges,
    Graphs,
    Named,
    Nodes,
    Options,
)
from graphmamba.ops.graph_mamba_layer.linear import (
    activate_drop,
    center,
    column_sums,
    linear,
    narrow_linear,
    narrow_rows_grad,
    relu_grad,
    rows_grad,
    transposed_copy,
    weight_grad,
)
from graphmamba.ops.selective_scan import triton as selective_scan

MAMBA, REVERSE = "global_model.mamba.", "global_model.mamba.reverse_path."
LOCAL = "local_model."
# Weights that are also multiplied with gradients in the backward pass.
MULTIPLIED = (
    *("fc1.weight", "fc2.weight", "in_proj.weight", "out_proj.weight", "x_proj.weight"),
    *("nodes.weight", "edges.weight"),
)
SCAN, EDGES, WEIGHTS = 0, 4, (1, 2, 3)  # numbers of the side streams


class Saved(NamedTuple):
    """Tensors saved for the backward pass, besides embeddings and parameters."""

    sent: Tensor  # [nodes, channels], B x of GatedGCN
    x_hat: Tensor  # [nodes, channels], input of GatedGCN's node norm
    e_hat: Tensor  # [edges, channels], input of GatedGCN's edge norm
    gates: Tensor  # [2, nodes, channels], 1 / sum of the gates, weighted mean
    local_out: Tensor  # [nodes, channels], output of GatedGCN
    normed: Tensor | None  # [nodes, channels], after the LayerNorm before Mamba
    uz: Tensor  # [nodes, 2 inner], after the in-projection
    y: Tensor  # [nodes, inner], after the scan, mean over samples and directions
    global_out: Tensor  # [nodes, channels], output of Mamba
    s: Tensor  # [nodes, channels], sum of the normalised outputs
    hidden: Tensor  # [nodes, 2 channels], of the FFN, after a ReLU or before another activation
    ffn_out: Tensor  # [nodes, channels], output of the FFN
    node_kept: Tensor  # [2, channels], mean and 1 / std of a norm, as the next four
    edge_kept: Tensor | None
    local_kept: Tensor
    global_kept: Tensor
    last_kept: Tensor
    layer_mean: Tensor | None
    layer_rstd: Tensor | None
    u: Tensor  # [tokens, inner], after the convolution
    dbc: Tensor  # [tokens, rank + 2 state], step sizes before their projection, B, C
    delta: Tensor  # [tokens, inner], step sizes
    states: Tensor  # saved tensor of the scan
    reverse_u: Tensor | None = None
    reverse_dbc: Tensor | None = None
    reverse_delta: Tensor | None = None
    reverse_states: Tensor | None = None


class Norm(NamedTuple):
    """A fused BatchNorm, as in `ops.batch_norm`; `before` and `after` are its dropouts."""

    name: str
    real: Int[Tensor, ""] | None
    activation: Activation = "none"
    before: DropoutSite = DropoutSite()
    after: DropoutSite = DropoutSite()


def _norms(graphs: Graphs, options: Options) -> tuple[Norm, Norm, Norm, Norm, Norm]:
    nodes, act = graphs.num_real_nodes, options.activation
    return (
        Norm(f"{LOCAL}node_norm", nodes, act, after=options.node_drop),
        Norm(f"{LOCAL}edge_norm", graphs.num_real_edges, act, after=options.edge_drop),
        Norm("norm_local.norm", nodes),
        Norm("norm_global.norm", nodes, before=options.global_drop),
        Norm("norm.norm", nodes, before=options.narrow_drop),
    )


def forward(
    x: Nodes, e: EdgeRows, w: Named, statistics: Named, graphs: Graphs, options: Options,
    keeps_for_backward: bool,
) -> tuple[Nodes, Edges | None, Saved, dict[str, Tensor]]:  # fmt: skip
    """Return new node and edge embeddings, saved tensors, and transposed weights."""
    training, layout, device = options.is_training, graphs.layout, x.device
    node_norm, edge_norm, norm_local, norm_global, norm_last = _norms(graphs, options)

    def norm(
        how: Norm, rows: Tensor, before: Tensor | None, after: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        mean, variance, batches = (
            statistics[f"{how.name}.{each}"]
            for each in ("running_mean", "running_var", "num_batches_tracked")
        )
        return batch_norm.forward(
            rows, w[f"{how.name}.weight"], w[f"{how.name}.bias"], before, after, graphs.seed,
            graphs.seed, how.real, mean, variance, batches, how.activation,
            [how.before.rate, how.after.rate],
            [how.before.number, how.after.number], training, options.momentum, options.eps,
        )  # fmt: skip

    # Mamba over the ordered nodes, with its input norm
    normed = layer_mean = layer_rstd = None
    with _on_side_stream(device, SCAN):
        rows = x
        if options.has_input_norm:
            weight, bias = w["global_model.norm.weight"], w["global_model.norm.bias"]
            rows, layer_mean, layer_rstd = torch.native_layer_norm(
                x.float(), x.shape[1:], weight, bias, 1e-5
            )
            normed = rows = rows.to(x.dtype)
        uz = linear(rows, w[f"{MAMBA}in_proj.weight"])
        y, *kept = _scan(uz, w, MAMBA, graphs, options, options.is_reverse, keeps_for_backward)
        if options.is_bidirectional:
            y_back, *back = _scan(uz, w, REVERSE, graphs, options, True, keeps_for_backward)
            y, kept = y.add_(y_back).mul_(0.5), kept + back
        if graphs.samples > 1:
            y = y.view(graphs.samples, *x.shape[:1], y.shape[1]).mean(dim=0)
        global_out = linear(y, w[f"{MAMBA}out_proj.weight"])
    # GatedGCN
    maps = linear(x, w[f"{LOCAL}nodes.weight"], w[f"{LOCAL}nodes.bias"])
    count = layout.edge_index.shape[1]
    edges = linear(e, w[f"{LOCAL}edges.weight"], w[f"{LOCAL}edges.bias"]).expand(count, -1)
    x_hat, e_hat, gates = gated_sum.forward(maps, edges, None, *_edges_of(layout))
    del edges
    e_new = edge_kept = None
    if options.wants_edges:
        with _on_side_stream(device, EDGES):
            e_new, edge_kept = norm(edge_norm, e_hat, None, e.expand(count, -1))
    sent, transposed = maps[:0], dict[str, Tensor]()
    if keeps_for_backward:
        with _on_side_stream(device, WEIGHTS[0]):
            # a copy, so that `maps` can be freed
            sent = maps[:, x.shape[1] : 2 * x.shape[1]].contiguous()
            transposed = {
                name: transposed_copy(w[name], x.dtype) for name in w if name.endswith(MULTIPLIED)
            }
    if options.is_centered:
        x_hat = center(x_hat, layout.target_ptr, graphs.ptr, own=maps[:, : x.shape[1]])
    local_out, node_kept = norm(node_norm, x_hat, None, x)
    local, local_kept = norm(norm_local, local_out, None, None)
    # Mamba's norm, which adds both outputs, then the feed-forward network
    _wait_for(device, SCAN)
    if keeps_for_backward:
        _wait_for(device, WEIGHTS[0])
    del maps
    s, global_kept = norm(norm_global, global_out, x, local)
    is_relu = options.activation == "relu"
    wide = hidden = linear(s, w["fc1.weight"], w["fc1.bias"], is_relu=is_relu)
    drop = options.wide_drop.rate, options.wide_drop.number, graphs.seed
    if drop[0] or not is_relu:
        wide = activate_drop(hidden, options.activation, *drop)
        hidden = wide if is_relu else hidden
    ffn_out = linear(wide, w["fc2.weight"], w["fc2.bias"])
    out, last_kept = norm(norm_last, ffn_out, s, None)
    if options.wants_edges:
        _wait_for(device, EDGES)
    saved = Saved(
        sent, x_hat, e_hat, gates, local_out, normed, uz, y, global_out, s, hidden, ffn_out,
        node_kept, edge_kept, local_kept, global_kept, last_kept, layer_mean, layer_rstd, *kept,
    )  # fmt: skip
    return out, e_new, saved, transposed


def _scan(
    uz: Tensor, w: Named, path: str, graphs: Graphs, options: Options, reverse: bool,
    keeps_for_backward: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """One direction of Mamba; see `nn.graph_mamba.SelectivePath.scan`."""
    u, z = uz.chunk(2, dim=1)
    order, is_ordered = graphs.order, graphs.order is not None
    u, _ = causal_conv1d.forward(
        u, w[f"{path}conv1d.weight"].squeeze(1), w[f"{path}conv1d.bias"], graphs.cu_seqlens, order,
        is_ordered, True, reverse,
    )  # fmt: skip
    dbc = linear(u, w[f"{path}x_proj.weight"])
    step, B, C = _in_three(dbc, w, path)
    delta = narrow_linear(step, w[f"{path}dt_proj.weight"])
    y, states = selective_scan.forward(
        u, delta, w[f"{path}A_log"], B, C, w[f"{path}D"], z, w[f"{path}dt_proj.bias"],
        graphs.cu_seqlens, order, is_ordered, True, options.zero_order_hold, reverse, True,
        keeps_for_backward,
    )  # fmt: skip
    return y, u, dbc, delta, states


def _in_three(dbc: Tensor, w: Named, path: str) -> tuple[Tensor, Tensor, Tensor]:
    rank, state = w[f"{path}dt_proj.weight"].shape[1], w[f"{path}A_log"].shape[1]
    step, B, C = dbc.split([rank, state, state], dim=1)
    return step, B, C


def backward(  # noqa: C901 - one schedule, read from top to bottom
    d_out: Nodes, d_e_new: Edges | None, x: Nodes, e: EdgeRows, w: Named, saved: Saved,
    transposed: Named, graphs: Graphs, options: Options,
) -> tuple[Nodes, EdgeRows, dict[str, Tensor]]:  # fmt: skip
    """Return the gradients of x, e and, by name, of the parameters."""
    training, layout, device = options.is_training, graphs.layout, x.device
    node_norm, edge_norm, norm_local, norm_global, norm_last = _norms(graphs, options)
    nodes, edges, in_proj = f"{LOCAL}nodes", f"{LOCAL}edges", f"{MAMBA}in_proj.weight"
    out_proj = f"{MAMBA}out_proj"
    d: dict[str, Tensor] = {}
    kept_alive: list[Tensor] = []  # tensors that side streams read

    def through_norm(
        how: Norm, grad: Tensor, kept: Tensor, rows: Tensor, before: Tensor | None = None,
        *, for_parameters: bool = False,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Gradients of `rows` and `before`."""
        weight, bias = f"{how.name}.weight", f"{how.name}.bias"
        d_rows, d[weight], d[bias], d_before = batch_norm.backward(
            grad, kept, rows, w[weight], w[bias], before, graphs.seed, graphs.seed, how.real,
            how.activation, [how.before.rate, how.after.rate],
            [how.before.number, how.after.number], training, for_parameters=for_parameters,
        )  # fmt: skip
        return d_rows, d_before if d_before.shape == d_rows.shape else d_rows

    def add_weight_grad(
        stream: int, name: str, grad: Tensor, rows: Tensor, bias: str | None = None
    ) -> None:
        """Compute the gradients of a linear map's parameters on a side stream."""
        kept_alive.extend((grad, rows))
        weight = f"{name}.weight"
        with _on_side_stream(device, stream):
            d[weight], d_bias = weight_grad(
                grad, rows, w[weight], None if bias is None else w[bias]
            )
            if bias is not None and d_bias is not None:
                d[bias] = d_bias

    # the edge norm, whose backward pass in training is fused into that of the gated sum
    d_e_hat, norm_after, edge_norm_done = d_e_new, None, None
    if d_e_new is not None and saved.edge_kept is not None:
        with _on_side_stream(device, EDGES):
            d_e_hat, _ = through_norm(
                edge_norm, d_e_new, saved.edge_kept, saved.e_hat, for_parameters=training
            )
        edge_norm_done = _event(device, EDGES)
        kept_alive.append(d_e_hat)
        if training:
            name, d_e_hat = edge_norm.name, d_e_new
            norm_after = gated_sum.NormAfter(
                saved.edge_kept, w[f"{name}.weight"], w[f"{name}.bias"], d[f"{name}.weight"],
                d[f"{name}.bias"], graphs.seed, edge_norm.real, edge_norm.activation,
                edge_norm.after.rate, edge_norm.after.number,
            )  # fmt: skip
    # the feed-forward network
    drop = options.wide_drop.rate, options.wide_drop.number, graphs.seed
    d_ffn_out, d_s = through_norm(norm_last, d_out, saved.last_kept, saved.ffn_out, saved.s)
    if options.activation == "relu" and not drop[0]:
        wide = saved.hidden
        d_hidden = relu_grad(d_ffn_out, transposed["fc2.weight"], wide)
    else:
        is_relu = options.activation == "relu"
        wide = saved.hidden if is_relu else activate_drop(saved.hidden, options.activation, *drop)
        d_wide = rows_grad(d_ffn_out, transposed["fc2.weight"])
        d_hidden = activate_drop(saved.hidden, options.activation, *drop, grad=d_wide)
    d_s = rows_grad(d_hidden, transposed["fc1.weight"], d_s)
    add_weight_grad(1, "fc2", d_ffn_out, wide, "fc2.bias")
    add_weight_grad(2, "fc1", d_hidden, saved.s, "fc1.bias")
    # Mamba
    with _on_side_stream(device, SCAN):
        d_global_out, d_x_global = through_norm(
            norm_global, d_s, saved.global_kept, saved.global_out, x
        )
        global_done = _event(device)
        add_weight_grad(3, out_proj, d_global_out, saved.y)
        d_y = rows_grad(d_global_out, transposed[f"{out_proj}.weight"])
        scale = graphs.samples * (2 if options.is_bidirectional else 1)
        d_y = d_y if scale == 1 else d_y / scale
        d_y = d_y if graphs.samples == 1 else d_y.repeat(graphs.samples, 1)

        def through_scan(
            path: str, reverse: bool, u: Tensor, dbc: Tensor, delta: Tensor, states: Tensor
        ) -> Tensor:
            """Gradient of `uz`."""
            order, is_ordered = graphs.order, graphs.order is not None
            step, B, C = _in_three(dbc, w, path)
            names = [f"{path}{name}" for name in ("A_log", "D", "dt_proj.bias")]
            A_log, D, dt_bias = (w[name] for name in names)
            (raw, z), duz = saved.uz.chunk(2, dim=1), torch.empty_like(saved.uz)
            if not u.numel():
                d.update({name: torch.zeros_like(each) for name, each in w.items() if path in name})
                return duz
            du, d_delta, _, parts = selective_scan.backward_rows(
                d_y, states, u, delta, A_log, B, C, D, z, dt_bias, graphs.cu_seqlens, order,
                is_ordered, True, options.zero_order_hold, reverse, dz_out=duz[:, raw.shape[1] :],
            )  # fmt: skip
            kept_alive.extend(parts)
            with _on_side_stream(device, 3):
                d.update({name: torch.empty_like(w[name]) for name in names})
                nothing = u.new_empty(0)
                gradients = *(d[name] for name in names), nothing, nothing
                selective_scan.add_parts(A_log, parts, gradients, log_A=True, is_late=True)
            d_dbc = narrow_rows_grad(d_delta, w[f"{path}dt_proj.weight"], parts.B, parts.C)
            add_weight_grad(1, f"{path}dt_proj", d_delta, step)
            add_weight_grad(2, f"{path}x_proj", d_dbc, u)
            du = rows_grad(d_dbc, transposed[f"{path}x_proj.weight"], du)
            conv, bias = f"{path}conv1d.weight", f"{path}conv1d.bias"
            _, d_conv, d[bias] = causal_conv1d.backward(
                du, states, raw, w[conv].squeeze(1), w[bias], graphs.cu_seqlens, order, is_ordered,
                True, reverse, dx_out=duz[:, : raw.shape[1]],
            )  # fmt: skip
            d[conv] = d_conv.unsqueeze(1)
            return duz

        kept = saved.u, saved.dbc, saved.delta, saved.states
        duz = through_scan(MAMBA, options.is_reverse, *kept)
        if options.is_bidirectional:
            back = saved.reverse_u, saved.reverse_dbc, saved.reverse_delta, saved.reverse_states
            duz += through_scan(REVERSE, True, *back)  # type: ignore[arg-type]
        add_weight_grad(1, f"{MAMBA}in_proj", duz, x if saved.normed is None else saved.normed)
        if saved.layer_mean is not None and saved.layer_rstd is not None:
            weight, bias = "global_model.norm.weight", "global_model.norm.bias"
            d_x_normed, d[weight], d[bias] = torch.ops.aten.native_layer_norm_backward(
                rows_grad(duz, transposed[in_proj]).float(), x.float(), x.shape[1:],
                saved.layer_mean, saved.layer_rstd, w[weight], w[bias], [True, True, True],
            )  # fmt: skip
    # GatedGCN
    d_local_out, _ = through_norm(norm_local, d_s, saved.local_kept, saved.local_out)
    with _on_side_stream(device, EDGES):
        _wait_for_event(device, global_done)
        d_x = d_local_out + d_x_global
    d_x_done = _event(device, EDGES)
    d_x_hat, _ = through_norm(node_norm, d_local_out, saved.node_kept, saved.x_hat)
    d_sums = d_x_hat
    if options.is_centered:
        d_sums = center(d_x_hat, layout.target_ptr, graphs.ptr)
    _wait_for_event(device, edge_norm_done)
    _, target_ptr, target_order, source_ptr, source_order = _edges_of(layout)
    d_maps, d_edges, _, share = gated_sum.backward_by_target(
        d_sums, d_e_hat, saved.e_hat, saved.gates, saved.sent, None, layout.edge_index, target_ptr,
        target_order, norm_after,
    )  # fmt: skip
    add_weight_grad(2, edges, d_edges, e.expand(len(d_edges), -1), f"{edges}.bias")
    with _on_side_stream(device, EDGES):
        if len(e) == len(d_edges):
            de = rows_grad(d_edges, transposed[f"{edges}.weight"], d_e_new)
        else:  # one row for all edges
            de = (column_sums(d_edges).t() * w[f"{edges}.weight"]).sum(0, keepdim=True)
            de = (de if d_e_new is None else de + column_sums(d_e_new)).to(e.dtype)
    gated_sum.backward_by_source(
        d_maps, saved.e_hat, d_edges, share, None, layout.edge_index, source_ptr, source_order
    )
    if options.is_centered:
        d_maps[:, : x.shape[1]] = d_x_hat
    add_weight_grad(3, nodes, d_maps, x, f"{nodes}.bias")
    _wait_for_event(device, d_x_done)
    dx = rows_grad(d_maps, transposed[f"{nodes}.weight"], d_x)
    _wait_for(device, SCAN)
    dx = (
        rows_grad(duz, transposed[in_proj], dx)
        if saved.normed is None
        else dx + d_x_normed.to(x.dtype)
    )
    for stream in (EDGES, *WEIGHTS):
        _wait_for(device, stream)
    return dx, de, d


def _edges_of(layout: EdgeLayout) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    return (
        *(layout.edge_index, layout.target_ptr, layout.target_order),
        *(layout.source_ptr, layout.source_order),
    )


@cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:  # noqa: ARG001 - one each
    return torch.cuda.Stream(device)


@contextmanager
def _on_side_stream(device: torch.device, number: int) -> Iterator[None]:
    """Run the block on a side stream, after all work submitted to the current one."""
    if device.type != "cuda":
        yield
        return
    stream = _stream(device, number)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        yield


def _wait_for(device: torch.device, number: int) -> None:
    if device.type == "cuda":
        torch.cuda.current_stream(device).wait_stream(_stream(device, number))


def _event(device: torch.device, number: int | None = None) -> torch.cuda.Event | None:
    """Record an event on the current stream, or on the side stream `number`."""
    if device.type != "cuda":
        return None
    stream = torch.cuda.current_stream(device) if number is None else _stream(device, number)
    return stream.record_event()


def _wait_for_event(device: torch.device, mark: torch.cuda.Event | None) -> None:
    if mark is not None:
        torch.cuda.current_stream(device).wait_event(mark)
