"""torch.compile takes the layer, whatever the sizes of the graphs.

Each runs in a process of its own, without the shape checker, which it cannot trace.
"""

import pytest

from tests.helpers.processes import run_apart

PREAMBLE = """
import torch
from graphmamba.data.batch import Topology
from graphmamba.ordering import NoiseSeed, OrderPolicy
from graphmamba.nn import GraphMambaBlock, GraphMambaLayer
from tests.helpers.graphs import random_rows, random_topology

torch.manual_seed(0)
layer = GraphMambaLayer(8, OrderPolicy(bins=2), dropout=0.1)
"""

COMPILE = """
compiled = torch.compile(layer, backend=BACKEND, dynamic=True, fullgraph=True)
for sizes in ((40, 2, 50), (60, 1, 9, 20)):
    topology = random_topology(sizes)
    results = []
    for run in (layer, compiled):
        layer.zero_grad()
        x, e = random_rows(topology)
        out, edges = run(x.requires_grad_(True), e, topology)
        (out * torch.linspace(-1, 1, 8)).square().sum().backward()
        results.append((out, edges, x.grad, layer.global_model.mamba.A_log.grad.clone()))
    for plain, fast in zip(*results):
        assert torch.allclose(plain, fast, rtol=1e-3, atol=1e-4)
# Inductor has a guard of its own on the number of nodes.
graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
assert graphs <= (2 if BACKEND == "inductor" else 1), graphs
"""

BASELINES = """
from tests.helpers.layers import LAYERS

# Padded models read the size of the longest graph, which the compiler then takes as unknown.
torch._dynamo.config.capture_scalar_outputs = True

def results_of(run, layer, topology):
    layer.zero_grad()
    x, e = random_rows(topology)
    out, edges = run(x.requires_grad_(True), e, topology)
    (out * torch.linspace(-1, 1, 8)).square().sum().backward()
    grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in layer.parameters()]
    return [out, edges, x.grad, *grads]

for name in NAMES:
    torch.compiler.reset()
    torch._dynamo.utils.counters.clear()
    layer = LAYERS[name](8)
    compiled = torch.compile(layer, backend="aot_eager", dynamic=True, fullgraph=True)
    for sizes in ((20, 2, 25), (30, 1, 9, 20)):
        topology = random_topology(sizes)
        both = (results_of(run, layer, topology) for run in (layer, compiled))
        for plain, fast in zip(*both, strict=True):
            assert (plain - fast).abs().max() <= 1e-5 * (1 + plain.abs().max()), name
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1, name
"""

STACK = """
from types import SimpleNamespace
from graphmamba.nn.encoders import Encoded
from graphmamba.nn import Backbone, GatedGCN, ReverseEdges, VirtualNode

class Encoder(torch.nn.Module):
    def forward(self, graphs):
        return Encoded(graphs.x, graphs.e, None)

stack = Backbone(
    Encoder(), [GatedGCN(8, is_centered=True) for _ in range(2)], reverse_edges=ReverseEdges(8),
    virtual_nodes=[VirtualNode(8)], has_jumping_knowledge=True,
)
compiled = torch.compile(stack, backend="aot_eager", dynamic=True, fullgraph=True)
for sizes in ((20, 2, 25), (30, 1, 9, 20)):
    topology, results = random_topology(sizes), []
    x, e = random_rows(topology)
    for run in (stack, compiled):
        stack.zero_grad()
        out = run(SimpleNamespace(x=x, e=e), topology)
        (out * torch.linspace(-1, 1, 8)).square().sum().backward()
        results.append([out, *(p.grad.clone() for p in stack.parameters() if p.grad is not None)])
    for plain, fast in zip(*results, strict=True):
        assert torch.allclose(plain, fast, rtol=1e-4, atol=1e-4)
assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
"""

COUNT = """
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = GraphMambaBlock(8)

    def forward(self, x, edge_index, batch):
        return self.block(x, edge_index, batch, num_graphs=2)

block = Block()
compiled = torch.compile(block, backend=BACKEND, dynamic=True, fullgraph=True)
topology = random_topology((6, 9))
x, _ = random_rows(topology)
first, second = (compiled(x, topology.edge_index, topology.batch) for _ in range(2))
assert not torch.equal(first, second)
"""


BACKENDS = [
    "aot_eager",
    # Needs a C++ compiler, and the time that it takes.
    pytest.param("inductor", marks=pytest.mark.thorough),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_compiled_layer_and_stack_serve_all_sizes_and_a_block_draws_anew(backend: str) -> None:
    again = "torch.compiler.reset()\ntorch._dynamo.utils.counters.clear()\n"
    parts = [COMPILE, STACK, COUNT] if backend == "aot_eager" else [COMPILE, COUNT]
    run_apart(PREAMBLE + f"BACKEND = {backend!r}\n" + again.join(parts))


@pytest.mark.parametrize(
    "names",
    [
        ("transformer", "spectral"),
        pytest.param(
            ("performer", "bigbird", "exphormer", "gatedgcn", "gine"),
            marks=pytest.mark.thorough,
        ),
    ],
    ids=" ".join,
)
def test_one_compiled_baseline_serves_all_sizes(names: tuple[str, ...]) -> None:
    run_apart(PREAMBLE + f"NAMES = {names!r}\n" + BASELINES)
