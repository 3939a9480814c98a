"""What holds for every layer, the paper's and its baselines' alike."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from graphmamba.data.batch import Topology
from graphmamba.nn import (
    GCN,
    GCNE,
    GINE,
    Attention,
    BigBird,
    ExphormerStack,
    GatedGCN,
    GPSLayer,
    GraphMambaGlobal,
    GraphMambaLayer,
    Performer,
    ResidualLayer,
)
from tests.helpers.graphs import (
    moved_to,
    one_graph,
    random_rows,
    random_topology,
    with_columns,
    with_gate,
)
from tests.helpers.layers import LAYERS, count

CHANNELS = 8


# Blocks are cut, and bins are assigned, by the numbers that the data set gives its nodes.
NUMBERED = {"bigbird", "graph-mamba-bins"}
# Eigenvectors go by the names of the nodes: `test_spectral.py` has true ones.
SPECTRAL = {"spectral"}


def of_every_kind() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", LAYERS)


def build(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return LAYERS[name](CHANNELS)


def settle(layer: nn.Module, x: Tensor, e: Tensor, topology: Topology) -> None:
    """Give the running statistics of all norms values of their own."""
    for _ in range(3):
        layer(x, e, topology)
    layer.eval()


@of_every_kind()
def test_a_graph_gives_alone_what_it_gives_in_a_batch(name: str) -> None:
    layer, topology = build(name).double(), with_gate(random_topology(), CHANNELS)
    topology = with_columns(topology, gate_encoding=topology.columns["gate_encoding"].double())
    x, e = random_rows(topology, CHANNELS, dtype=torch.float64)
    settle(layer, x, e, topology)
    together, edges_together = layer(x, e, topology)
    for graph in range(topology.num_graphs):
        alone, nodes, edges = one_graph(topology, graph)
        single, edges_single = layer(x[nodes], e[edges], alone)
        assert torch.allclose(single, together[nodes], atol=1e-9)
        assert torch.allclose(edges_single, edges_together[edges], atol=1e-9)


@of_every_kind()
@pytest.mark.parametrize(
    "sizes", [(), (0,), (1,), (1, 1), (2,), (7, 1, 0, 3)], ids=lambda sizes: f"sizes{sizes}"
)
def test_odd_graphs_in_training_and_evaluation(name: str, sizes: tuple[int, ...]) -> None:
    layer, topology = build(name), with_gate(random_topology(sizes), CHANNELS)
    x, e = random_rows(topology, CHANNELS)
    x.requires_grad_(True)
    for is_training in (True, False):
        out, edges = layer.train(is_training)(x, e, topology)
        assert out.shape == x.shape
        assert edges.shape == e.shape
        assert torch.isfinite(out).all()
        (out.square().sum() + edges.square().sum()).backward()
        assert torch.isfinite(x.grad).all()
    for label, parameter in layer.named_parameters():
        assert parameter.grad is None or torch.isfinite(parameter.grad).all(), label
    for label, buffer in layer.named_buffers():
        assert torch.isfinite(buffer).all(), label


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in NUMBERED | SPECTRAL])
def test_node_names_do_not_matter(name: str) -> None:
    layer, topology = build(name).double(), with_gate(random_topology((9,), degree=4), CHANNELS)
    # Node i has i outgoing edges, since nodes that tie would be told apart by their numbers.
    sources = torch.arange(9).repeat_interleave(torch.arange(9))
    targets = torch.randint(9, sources.shape)
    topology = replace(topology, edge_index=torch.stack([sources, targets]))
    topology = with_columns(topology, gate_encoding=topology.columns["gate_encoding"].double())
    x, e = random_rows(topology, CHANNELS, dtype=torch.float64)
    settle(layer, x, e, topology)
    names = torch.randperm(9)

    def move(rows: Tensor) -> Tensor:
        return torch.empty_like(rows).index_copy(0, names, rows)

    renamed = with_columns(
        replace(topology, edge_index=names[topology.edge_index]),
        expander_index=names[topology.columns["expander_index"]],
        gate_encoding=move(topology.columns["gate_encoding"]),
    )
    moved, _ = layer(move(x), e, renamed)
    assert torch.allclose(moved[names], layer(x, e, topology)[0], atol=1e-9)


@of_every_kind()
def test_half_precision_stays_near(name: str) -> None:
    topology = with_gate(random_topology(), CHANNELS)
    x, e = random_rows(topology, CHANNELS)
    layer = build(name)
    settle(layer, x, e, topology)
    exact, _ = layer(x, e, topology)
    with torch.autocast("cpu", torch.bfloat16):
        half, _ = layer(x, e, topology)
    # Eight bits of mantissa, a few sums deep.
    assert (half - exact).abs().max() < 0.05 * exact.abs().max()


@pytest.mark.gpu
@of_every_kind()
def test_cpu_and_gpu_agree(name: str) -> None:
    topology = with_gate(random_topology((70, 1, 130, 0, 33)), CHANNELS)
    results = []
    for device in ("cpu", "cuda"):
        place = moved_to(topology, device)
        x, e = (rows.to(device) for rows in random_rows(topology, CHANNELS))
        layer = build(name).to(device)
        out, edges = layer(x.requires_grad_(True), e, place)
        (out * torch.linspace(0, 1, CHANNELS, device=device)).sum().backward()
        results.append([value.detach().cpu() for value in (out, edges, x.grad)])
    for here, there in zip(*results, strict=True):
        # Sums of float32 in another order, passed through the division of a norm.
        assert torch.allclose(here, there, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("d", "total"), [(96, 118_752), (64, 54_336), (52, 36_660), (48, 31_440)])
def test_graph_mamba_layers_are_the_published_ones(d: int, total: int) -> None:
    assert count(GraphMambaLayer(d)) == total


@pytest.mark.parametrize("d", [96, 52])
def test_parts(d: int) -> None:
    assert count(GatedGCN(d)) == 5 * d * d + 9 * d
    assert count(GatedGCN(d, has_stable_gate=True)) == 5 * d * d + 9 * d + 3 * d + 1
    assert count(Attention(d, 4)) == 4 * d * d + 4 * d
    assert count(Performer(d, 4, head_width=64)) == 256 * 4 * d + d
    assert count(Performer(d, 4)) == 4 * d * d + d
    assert count(BigBird(d, 4)) == 6 * d * d + 7 * d
    assert count(ResidualLayer(d, GINE(d))) == 2 * (d * d + d)
    assert count(ResidualLayer(d, GCN(d))) == d * d + d
    assert count(ResidualLayer(d, GCNE(d), norm="batch")) == d * d + 3 * d
    assert count(ResidualLayer(d, GCN(d, has_bias=False), norm="batch")) == d * d + 2 * d
    global_model = GraphMambaGlobal(d)
    both = ResidualLayer(d, GCNE(d), norm="batch", global_model=global_model)
    assert count(both) == count(global_model) + d * d + 5 * d


@pytest.mark.parametrize("d", [96, 52])
def test_baseline_layers(d: int) -> None:
    assert count(GPSLayer(d, GatedGCN(d), Attention(d, 4))) == 13 * d * d + 22 * d
    for virtual_nodes in (0, 4):
        stack = ExphormerStack(d, 3, 4, virtual_nodes=virtual_nodes)
        rows = 1 + 3 * virtual_nodes
        assert count(stack) == 3 * (13 * d * d + 18 * d) + rows * d
