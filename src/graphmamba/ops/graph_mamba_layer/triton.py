"""The schedule of the paper's layer on a GPU: all kernels of a pass, in their order.

Message passing and the exchange of nodes have a stream each. In the backward pass gradients of
weights, which nobody waits for, have further ones. What a stream reads is kept until it has been
waited for: memory is handed out again in the order of one stream alone.
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
from graphmamba.ops.graph_mamba_layer import Edges, Graphs, Named, Nodes, Options, Site
from graphmamba.ops.graph_mamba_layer.linear import (
    activate_drop,
    linear,
    narrow_linear,
    weight_grad,
)
from graphmamba.ops.selective_scan import triton as selective_scan

MAMBA, REVERSE = "global_model.mamba.", "global_model.mamba.reverse_path."
LOCAL = "local_model."


class Saved(NamedTuple):
    """What the backward pass starts from, beside embeddings and parameters."""

    x_hat: Tensor
    e_hat: Tensor
    gates: Tensor
    near: Tensor
    normed: Tensor | None
    uz: Tensor
    y: Tensor
    far: Tensor
    s: Tensor
    hidden: Tensor
    narrow: Tensor
    node_kept: Tensor
    edge_kept: Tensor | None
    local_kept: Tensor
    global_kept: Tensor
    last_kept: Tensor
    layer_mean: Tensor | None
    layer_rstd: Tensor | None
    u: Tensor
    dbc: Tensor
    states: Tensor
    reverse_u: Tensor | None = None
    reverse_dbc: Tensor | None = None
    reverse_states: Tensor | None = None


class Norm(NamedTuple):
    """A BatchNorm of a sum: N(before + drop(x)), activated, dropped, added to `after`."""

    name: str
    real: Int[Tensor, ""] | None
    activation: Activation = "none"
    before: Site = Site()
    after: Site = Site()


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
    x: Nodes, e: Edges, w: Named, statistics: Named, graphs: Graphs, options: Options,
    keeps: bool,
) -> tuple[Nodes, Edges | None, Saved]:  # fmt: skip
    """Return new node and edge embeddings, and what `backward` starts from."""
    training, layout = options.is_training, graphs.layout
    node_norm, edge_norm, norm_local, norm_global, norm_last = _norms(graphs, options)

    def norm(
        how: Norm, rows: Tensor, before: Tensor | None, after: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        mean, variance, batches = (
            statistics[f"{how.name}.{each}"]
            for each in ("running_mean", "running_var", "num_batches_tracked")
        )
        rates = [site.rate if training else 0.0 for site in (how.before, how.after)]
        return batch_norm.forward(
            rows, w[f"{how.name}.weight"], w[f"{how.name}.bias"], before, after, graphs.seed,
            graphs.seed, how.real, mean, variance, batches, how.activation, rates,
            [how.before.number, how.after.number], training, options.momentum, options.eps,
        )  # fmt: skip

    # Mamba over the ordered nodes, and its norm
    normed = layer_mean = layer_rstd = None
    with _beside(x.device, 0):
        rows = x
        if options.has_input_norm:
            rows, layer_mean, layer_rstd = torch.native_layer_norm(
                x, x.shape[1:], w["global_model.norm.weight"], w["global_model.norm.bias"], 1e-5
            )
            normed = rows
        uz = linear(rows, w[f"{MAMBA}in_proj.weight"])
        y, *kept = _scan(uz, w, MAMBA, graphs, options, options.is_reverse, keeps)
        if options.is_bidirectional:
            y_back, *back = _scan(uz, w, REVERSE, graphs, options, True, keeps)
            y, kept = y.add_(y_back).mul_(0.5), kept + back
        if graphs.samples > 1:
            y = y.view(graphs.samples, *x.shape[:1], y.shape[1]).mean(dim=0)
        far = linear(y, w[f"{MAMBA}out_proj.weight"])
        mixed, global_kept = norm(norm_global, far, x, None)
    # GatedGCN
    maps = linear(x, w[f"{LOCAL}nodes.weight"], w[f"{LOCAL}nodes.bias"])
    edges = linear(e, w[f"{LOCAL}edges.weight"], w[f"{LOCAL}edges.bias"])
    x_hat, e_hat, gates = gated_sum.forward(maps, edges, None, *_edges_of(layout))
    near, node_kept = norm(node_norm, x_hat, None, x)
    e_new = edge_kept = None
    if options.wants_edges:
        e_new, edge_kept = norm(edge_norm, e_hat, None, e)
    # both together, then each node by itself
    _wait_for(x.device, 0)
    s, local_kept = norm(norm_local, near, None, mixed)
    hidden = linear(s, w["fc1.weight"], w["fc1.bias"])
    drop = options.wide_drop.rate if training else 0.0, options.wide_drop.number, graphs.seed
    wide = activate_drop(hidden, options.activation, *drop)
    if options.activation == "relu":
        hidden = wide  # it tells what was cut off
    narrow = linear(wide, w["fc2.weight"], w["fc2.bias"])
    out, last_kept = norm(norm_last, narrow, s, None)
    return out, e_new, Saved(
        x_hat, e_hat, gates, near, normed, uz, y, far, s, hidden, narrow, node_kept, edge_kept,
        local_kept, global_kept, last_kept, layer_mean, layer_rstd, *kept,
    )  # fmt: skip


def _scan(
    uz: Tensor, w: Named, path: str, graphs: Graphs, options: Options, reverse: bool, keeps: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One way through the sequences; see `nn.mamba.SelectivePath.scan`."""
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
        graphs.cu_seqlens, order, is_ordered, True, options.zero_order_hold, reverse, True, keeps,
    )  # fmt: skip
    return y, u, dbc, states


def _in_three(dbc: Tensor, w: Named, path: str) -> tuple[Tensor, Tensor, Tensor]:
    rank, state = w[f"{path}dt_proj.weight"].shape[1], w[f"{path}A_log"].shape[1]
    step, B, C = dbc.split([rank, state, state], dim=1)
    return step, B, C


def backward(
    d_out: Nodes, d_e_new: Edges | None, x: Nodes, e: Edges, w: Named, saved: Saved,
    graphs: Graphs, options: Options,
) -> tuple[Nodes, Edges, dict[str, Tensor]]:  # fmt: skip
    """Return the gradients of x, e and, by name, of the parameters."""
    training, layout, device = options.is_training, graphs.layout, x.device
    node_norm, edge_norm, norm_local, norm_global, norm_last = _norms(graphs, options)
    d: dict[str, Tensor] = {}

    def through_norm(
        how: Norm, grad: Tensor, kept: Tensor, rows: Tensor, before: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Gradients of what was normalised, and of what was added to it before."""
        weight, bias = f"{how.name}.weight", f"{how.name}.bias"
        rates = [site.rate if training else 0.0 for site in (how.before, how.after)]
        d_rows, d[weight], d[bias], d_before = batch_norm.backward(
            grad, kept, rows, w[weight], w[bias], before, graphs.seed, graphs.seed, how.real,
            how.activation, rates, [how.before.number, how.after.number], training,
        )  # fmt: skip
        return d_rows, d_before if d_before.shape == d_rows.shape else d_rows

    def weigh(stream: int, name: str, grad: Tensor, rows: Tensor, bias: str | None = None) -> None:
        """Find the gradients of a linear map's parameters, on a stream of their own."""
        with _beside(device, stream):
            weight = f"{name}.weight"
            d[weight], d_bias = weight_grad(
                grad, rows, w[weight], None if bias is None else w[bias]
            )
            if bias is not None and d_bias is not None:
                d[bias] = d_bias

    # the feed-forward network
    d_narrow, d_s = through_norm(norm_last, d_out, saved.last_kept, saved.narrow, saved.s)
    drop = options.wide_drop.rate if training else 0.0, options.wide_drop.number, graphs.seed
    wide = saved.hidden
    if options.activation != "relu":
        wide = activate_drop(wide, options.activation, *drop)
    weigh(1, "fc2", d_narrow, wide, "fc2.bias")
    d_wide = d_narrow @ w["fc2.weight"].to(x.dtype)
    d_hidden = activate_drop(saved.hidden, options.activation, *drop, grad=d_wide)
    weigh(2, "fc1", d_hidden, saved.s, "fc1.bias")
    d_s = torch.addmm(d_s, d_hidden, w["fc1.weight"].to(x.dtype))
    # Mamba
    with _beside(device, 0):
        d_far, d_x_far = through_norm(norm_global, d_s, saved.global_kept, saved.far, x)
        weigh(3, f"{MAMBA}out_proj", d_far, saved.y)
        d_y = d_far @ w[f"{MAMBA}out_proj.weight"].to(x.dtype)
        scale = graphs.samples * (2 if options.is_bidirectional else 1)
        d_y = d_y if scale == 1 else d_y / scale
        d_y = d_y if graphs.samples == 1 else d_y.repeat(graphs.samples, 1)
        kept = saved.u, saved.dbc, saved.states
        du, dz = _through_scan(
            d_y, saved.uz, *kept, w, d, MAMBA, graphs, options, options.is_reverse
        )
        if (
            saved.reverse_u is not None
            and saved.reverse_dbc is not None
            and saved.reverse_states is not None
        ):
            back = saved.reverse_u, saved.reverse_dbc, saved.reverse_states
            du_back, dz_back = _through_scan(
                d_y, saved.uz, *back, w, d, REVERSE, graphs, options, True
            )
            du, dz = du.add_(du_back), dz.add_(dz_back)
        duz = torch.cat([du, dz], dim=1)
        rows = x if saved.normed is None else saved.normed
        weigh(1, f"{MAMBA}in_proj", duz, rows)
        in_proj = w[f"{MAMBA}in_proj.weight"].to(x.dtype)
        if saved.layer_mean is None or saved.layer_rstd is None:
            d_x_far = torch.addmm(d_x_far, duz, in_proj)
        else:
            weight, bias = "global_model.norm.weight", "global_model.norm.bias"
            d_x_normed, d[weight], d[bias] = torch.ops.aten.native_layer_norm_backward(
                duz @ in_proj, x, x.shape[1:], saved.layer_mean, saved.layer_rstd, w[weight],
                w[bias], [True, True, True],
            )  # fmt: skip
            d_x_far = d_x_far + d_x_normed
    # GatedGCN
    d_near, _ = through_norm(norm_local, d_s, saved.local_kept, saved.near)
    d_x_hat, _ = through_norm(node_norm, d_near, saved.node_kept, saved.x_hat)
    d_e_hat = None
    if d_e_new is not None and saved.edge_kept is not None:
        d_e_hat, _ = through_norm(edge_norm, d_e_new, saved.edge_kept, saved.e_hat)
    channels = x.shape[1]
    senders = slice(channels, 2 * channels)
    nodes, edges = f"{LOCAL}nodes", f"{LOCAL}edges"
    # keeping it would take as much memory as all else that is kept of the edges' kernel
    sent = linear(x, w[f"{nodes}.weight"][senders], w[f"{nodes}.bias"][senders])
    d_maps, d_edges, _ = gated_sum.backward(
        d_x_hat, d_e_hat, saved.e_hat, saved.gates, sent, None, *_edges_of(layout)
    )
    weigh(2, edges, d_edges, e, f"{edges}.bias")
    weigh(3, nodes, d_maps, x, f"{nodes}.bias")
    edge_map = w[f"{edges}.weight"].to(x.dtype)
    de = d_edges @ edge_map if d_e_new is None else torch.addmm(d_e_new, d_edges, edge_map)
    dx = torch.addmm(d_near, d_maps, w[f"{nodes}.weight"].to(x.dtype))
    _wait_for(device, 0)
    dx += d_x_far
    for stream in (1, 2, 3):
        _wait_for(device, stream)
    return dx, de, d


def _through_scan(
    d_y: Tensor, uz: Tensor, u: Tensor, dbc: Tensor, states: Tensor, w: Named,
    d: dict[str, Tensor], path: str, graphs: Graphs, options: Options, reverse: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Gradients of both halves of `uz`; those of the parameters go to `d`."""
    raw, z = uz.chunk(2, dim=1)
    order, is_ordered = graphs.order, graphs.order is not None
    step, B, C = _in_three(dbc, w, path)
    names = f"{path}A_log", f"{path}D", f"{path}dt_proj.bias", f"{path}dt_proj.weight"
    A_log, D, dt_bias, dt_weight = (w[name] for name in names)
    du, d_delta, d[names[0]], dB, dC, d[names[1]], dz, d[names[2]] = selective_scan.backward(
        d_y, states, u, narrow_linear(step, dt_weight), A_log, B, C, D, z, dt_bias,
        graphs.cu_seqlens, order, is_ordered, True, options.zero_order_hold, reverse, True,
    )  # fmt: skip
    d_dbc = torch.cat([d_delta @ dt_weight.to(d_delta.dtype), dB, dC], dim=1)
    d[names[3]], _ = weight_grad(d_delta, step, dt_weight)
    x_proj, conv, bias = f"{path}x_proj.weight", f"{path}conv1d.weight", f"{path}conv1d.bias"
    d[x_proj], _ = weight_grad(d_dbc, u, w[x_proj])
    du = torch.addmm(du, d_dbc, w[x_proj].to(du.dtype))
    d_raw, d_conv, d[bias] = causal_conv1d.backward(
        du, states, raw, w[conv].squeeze(1), w[bias], graphs.cu_seqlens, order, is_ordered, True,
        reverse,
    )  # fmt: skip
    d[conv] = d_conv.unsqueeze(1)
    return d_raw, dz


def _edges_of(layout: EdgeLayout) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    return (
        *(layout.edge_index, layout.target_ptr, layout.target_order),
        *(layout.source_ptr, layout.source_order),
    )


@cache
def _stream(device: torch.device, number: int) -> torch.cuda.Stream:  # noqa: ARG001 - one each
    return torch.cuda.Stream(device)


@contextmanager
def _beside(device: torch.device, number: int) -> Iterator[None]:
    """Work on a stream beside the current one, after all that is under way there."""
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
