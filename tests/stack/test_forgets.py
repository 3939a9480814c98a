"""Layers that make anew what they forgot: the same gradients from less memory."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from graphmamba.data.edge_layout import EdgeLayout
from graphmamba.data.topology import Topology
from graphmamba.encode.config import LaplacianConfig
from graphmamba.encode.laplacian import DeepSet
from graphmamba.encode.norm import ActivationDropout, BatchNorm
from graphmamba.order import OrderPolicy
from graphmamba.stack import GatedGCN, GraphMambaLayer
from graphmamba.stack.mamba_block import SelectivePath
from graphmamba.studies.memory import LiveStorage
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.processes import needs_triton, run_apart

CHANNELS = 24


def let_forget(module: nn.Module, forgets: bool) -> None:
    """Have all parts forget, or none."""
    for part in module.modules():
        if hasattr(part, "forgets"):
            part.forgets = forgets


@contextmanager
def without_collector() -> Iterator[None]:
    """Have memory go by counts of references alone."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def results(layer: nn.Module, forgets: bool) -> list[Tensor]:
    """Outputs and gradients."""
    topology = random_topology()
    x, e = random_rows(topology, CHANNELS)
    x.requires_grad_(True)
    let_forget(layer, forgets)
    out, edges = layer(x, e, topology)
    weights = torch.linspace(0, 1, CHANNELS)
    loss = (out * weights).sum() + (edges * weights).square().sum()
    inputs = [x, *layer.parameters()]
    found = torch.autograd.grad(loss, inputs, allow_unused=True)
    return [out.detach(), edges.detach(), *(each for each in found if each is not None)]


# The dropout of other norms than `batch` follows PyTorch's generator, not the seed.
@pytest.mark.parametrize(("norm", "rate"), [("batch", 0.0), ("batch", 0.3), ("layer", 0.0)])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_a_layer_gives_the_same_gradients(norm: str, rate: float, direction: str) -> None:
    torch.manual_seed(0)
    policy = OrderPolicy(direction=direction)
    layer = GraphMambaLayer(CHANNELS, policy, dropout=rate, norm=norm)
    kept, forgotten = (results(layer, forgets) for forgets in (False, True))
    for ours, plain in zip(forgotten, kept, strict=True):
        # One of four maps at a time may be rounded in another way than all four at once.
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("forgets", [False, True])
def test_a_pass_leaves_nothing_without_the_collector(forgets: bool) -> None:
    layer = GraphMambaLayer(CHANNELS, dropout=0.3)
    let_forget(layer, forgets)
    topology = random_topology()
    x, e = random_rows(topology, CHANNELS)
    x.requires_grad_(True)
    live = LiveStorage()
    for each in [x, e, topology.edge_index, topology.batch, *layer.parameters(), *layer.buffers()]:
        live.follow(each)
    before = live.now
    with without_collector(), live:
        out = layer(x, e, topology)
        assert live.now > before + 10 * x.nbytes
        del out
        assert live.now == before
        sum(each.sum() for each in layer(x, e, topology)).backward()
        layer.zero_grad()
        x.grad = None
        assert live.now == before


def test_dropout_without_a_seed_is_not_drawn_twice() -> None:
    torch.manual_seed(0)
    layer = GraphMambaLayer(CHANNELS, OrderPolicy(noise="none"), dropout=0.5)
    let_forget(layer, forgets=True)
    topology = random_topology()
    x, _ = random_rows(topology, CHANNELS)
    unseeded = type(topology)(topology.edge_index, topology.batch, topology.num_graphs)
    drawn: list[Tensor] = []
    layer.activation.register_forward_hook(lambda *given: drawn.append(given[-1]))
    layer._feed_forward(x.requires_grad_(True), unseeded).sum().backward()
    assert len(drawn) == 1


def test_positions_get_the_same_gradients() -> None:
    torch.manual_seed(0)
    network = DeepSet(LaplacianConfig(channels=5, layers=3))
    pairs, is_missing = torch.randn(7, 10, 2), torch.rand(7, 10) < 0.3
    found = []
    for forgets in (False, True):
        let_forget(network, forgets)
        loss = network(pairs, is_missing).square().sum()
        found.append(torch.autograd.grad(loss, list(network.parameters())))
    for ours, plain in zip(*found, strict=True):
        assert torch.equal(ours, plain)


@pytest.mark.slow
@needs_triton
def test_a_layer_on_a_gpu_holds_seven_node_rows_instead_of_twenty() -> None:
    run_apart(
        "from tests.stack.test_forgets import bytes_left, node_rows_held\n"
        "held = node_rows_held(True), node_rows_held(False)\n"
        "assert held[0] < 7.6, held\n"
        "assert held[1] > 20, held\n"
        "assert bytes_left(True) == bytes_left(False) == [0, 0]\n",
        TRITON_INTERPRET="1",
    )


def node_rows_held(forgets: bool) -> float:
    """Tensors like the node rows that a layer holds for its backward pass, its output included.

    By the shapes of the GPU's path, without running a kernel. What is like the edge rows, two
    tensors, does not count.
    """
    with FakeTensorMode():
        layer, x, e, topology = fused_layer(forgets)
        live = LiveStorage()
        live.follow(x)
        with live:
            out = layer(x, e, topology)
        held = live.now - x.nbytes - 2 * e.nbytes
        del out
    return held / x.nbytes


def bytes_left(forgets: bool) -> list[int]:
    """What the GPU's path leaves without the collector: a forward pass alone, and both passes."""
    with FakeTensorMode():
        layer, x, e, topology = fused_layer(forgets)
        layout, live = topology.lay_out(), LiveStorage()
        given = [x, e, topology.batch, topology.seed, layout.edge_index, layout.target_ptr]
        for each in [*given, *layer.parameters(), *layer.buffers()]:
            live.follow(each)
        before, left = live.now, []
        with without_collector(), live:
            layer(x, e, topology)
            left.append(live.now - before)
            sum(each.sum() for each in layer(x, e, topology)).backward()
            layer.zero_grad()
            x.grad = None
            left.append(live.now - before)
    return left


def fused_layer(
    forgets: bool, nodes: int = 19_648, edges: int = 40_000
) -> tuple[nn.Module, Tensor, Tensor, Topology]:
    """A layer as it runs on a GPU, and its input."""
    layer = GraphMambaLayer(96)
    let_forget(layer, forgets)
    for part in layer.modules():
        if isinstance(part, GatedGCN | BatchNorm | ActivationDropout):
            part.backend = "fused"
        if isinstance(part, SelectivePath):
            part.options = replace(part.options, backend="fused")
    index = torch.zeros(2, edges, dtype=torch.int64)
    bounds = torch.zeros(nodes + 1, dtype=torch.int32)
    topology = Topology(
        index,
        torch.zeros(nodes, dtype=torch.int64),
        num_graphs=128,
        seed=torch.zeros((), dtype=torch.int64),
        edge_layout=EdgeLayout(index, bounds, bounds, index[0]),
    )
    return layer, torch.zeros(nodes, 96, requires_grad=True), torch.zeros(edges, 96), topology
