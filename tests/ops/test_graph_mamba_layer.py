"""The paper's layer as one operator, held to the plain modules, with float64 as the truth."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import nn

from graphmamba.data.batch import Topology
from graphmamba.nn import GatedGCN, GPSLayer, choose_operator
from graphmamba.nn.base import one_per_edge
from graphmamba.nn.choose_operator import has_operator, runs_operator
from graphmamba.nn.exphormer import ExphormerStack
from graphmamba.nn.graph_mamba import GraphMambaGlobal, MambaConfig
from graphmamba.ordering.permutation import order_nodes
from graphmamba.ordering.policy import OrderPolicy
from tests.helpers.agreement import Results, assert_as_exact, assert_bit_equal, max_error
from tests.helpers.graphs import moved_to, random_rows, random_topology

CHANNELS = 24


@dataclass(frozen=True)
class Case:
    """A layer, a batch and a mode."""

    sizes: tuple[int, ...] = (7, 1, 12, 0, 30)
    channels: int = CHANNELS
    degree: int = 3
    policy: OrderPolicy = field(default_factory=OrderPolicy)
    samples: int = 1
    activation: Any = "relu"
    dropout: float = 0.2
    discretization: Any = "euler"
    input_norm: Any = "none"
    padding: int = 0
    is_centered: bool = False
    wants_edges: bool = True
    is_training: bool = True
    is_dense: bool = True
    """Whether the numbers of a row, and of its gradient, lie side by side."""
    has_one_edge_row: bool = False
    """Whether one row stands for the embeddings of all edges."""

    def layer(self, backend: Any) -> GPSLayer:
        torch.manual_seed(0)
        parts = "triton" if backend == "triton" else "reference"
        mamba = MambaConfig(backend=parts, discretization=self.discretization)
        made = GPSLayer(
            self.channels,
            GatedGCN(
                self.channels,
                dropout=self.dropout,
                activation=self.activation,
                is_centered=self.is_centered,
                backend=parts,
            ),
            GraphMambaGlobal(self.channels, self.policy, mamba, self.input_norm),
            dropout=self.dropout,
            activation=self.activation,
            backend=backend,
        )
        with torch.no_grad():
            for each in (*made.parameters(), *made.buffers()):
                if each.is_floating_point():
                    each.add_(0.1 * torch.rand(each.shape))
        return made.train(self.is_training)

    def topology(self) -> Topology:
        whole = random_topology(self.sizes, self.degree)
        nodes, edges = whole.batch.shape[0], whole.edge_index.shape[1]
        real = None
        if self.padding:
            real = torch.tensor(nodes - self.sizes[-1]), torch.tensor(edges - self.padding)
        return replace(
            whole,
            wants_edges=self.wants_edges,
            num_real_nodes=real and real[0],
            num_real_edges=real and real[1],
            node_order=order_nodes(self.policy, whole, samples=self.samples),
        )


def results(case: Case, backend: Any, device: str, dtype: torch.dtype) -> Results:
    """Outputs, statistics, and all gradients of their sum with random weights."""
    topology = on(case.topology(), device)
    layer = case.layer(backend).to(device, dtype)
    rows = [
        each.to(dtype).to(device).requires_grad_() for each in random_rows(topology, case.channels)
    ]
    assert runs_operator(layer, rows[0]) == (backend == "triton")
    given = rows if case.is_dense else [each.t().contiguous().t() for each in rows]
    if case.has_one_edge_row:
        rows[1] = random_rows(topology, case.channels)[0][:1].to(dtype).to(device).requires_grad_()
        edges = topology.edge_index.shape[1]
        given = [rows[0], rows[1] if backend == "triton" else one_per_edge(rows[1], edges)]
    out, e = layer(*given, topology)
    ends = {"x": out} if e is None else {"x": out, "e": e}
    weights = random_rows(topology, case.channels, seed=9)
    if not case.is_dense:
        weights = [each[:, :1].expand_as(each) for each in weights]
    loss = sum(
        (end * weight.to(dtype).to(device)).sum()
        for end, weight in zip(ends.values(), weights, strict=False)
    )
    names = ["x", "e", *dict(layer.named_parameters())]
    found = torch.autograd.grad(loss, [*rows, *layer.parameters()], allow_unused=True)
    gradients = {
        f"d_{name}": torch.zeros(()) if grad is None or not grad.any() else grad
        for name, grad in zip(names, found, strict=True)
    }
    made = ends | gradients | dict(layer.named_buffers())
    return {name: value.detach().cpu() for name, value in made.items()}


def on(topology: Topology, device: str) -> Topology:
    """Move all tensors, those of the node order as well."""
    line = topology.node_order
    order = None if line.order is None else line.order.to(device)
    line = replace(line, order=order, cu_seqlens=line.cu_seqlens.to(device))
    return replace(moved_to(topology, device), node_order=line)


CASES = {
    "paper": Case(),
    "gelu, reverse": Case(activation="gelu", policy=OrderPolicy(direction="reverse")),
    "both ways, norm": Case(policy=OrderPolicy(direction="bidirectional"), input_norm="layer"),
    "bins": Case(policy=OrderPolicy(bins=3), discretization="zoh", dropout=0.0),
    "samples": Case(samples=3, activation="gelu"),
    "padding": Case(padding=20, policy=OrderPolicy(direction="bidirectional"), samples=2),
    "centered": Case(is_centered=True, padding=20),
    "last layer": Case(wants_edges=False),
    "evaluation": Case(is_training=False),
    "columns": Case(is_dense=False),
    "no edges": Case(degree=0),
    "one node": Case(sizes=(1,)),
    "one-node graphs": Case(sizes=(1, 1, 0, 1)),
    "no nodes": Case(sizes=(0,)),
    "one edge row": Case(has_one_edge_row=True, padding=20),
    "one edge row, no edges": Case(has_one_edge_row=True, degree=0),
}
INTERPRETED = {
    "everything": Case(
        sizes=(5, 1, 0, 4),
        policy=OrderPolicy(direction="bidirectional"),
        samples=2,
        activation="gelu",
        input_norm="layer",
        padding=2,
        is_centered=True,
    ),
    "paper": Case(sizes=(5, 1)),
    "columns": Case(sizes=(5, 1), is_dense=False),
    "one node, no edges": Case(sizes=(1,), degree=0, wants_edges=False),
    "one edge row": Case(sizes=(5, 4), has_one_edge_row=True, padding=2),
    "no nodes": Case(sizes=(0,)),
}


def check(case: Case, device: str) -> Results:
    ours = results(case, "triton", device, torch.float32)
    plain = results(case, "reference", device, torch.float32)
    truth = results(case, "reference", "cpu", torch.float64)
    assert_as_exact(ours, plain, truth)
    return ours


def check_interpreted() -> None:
    for case in INTERPRETED.values():
        check(case, "cpu")
    # programs that hold the matrix, and those that take it in pieces, as it lies and transposed
    for inward, out in ((38, 96), (96, 38), (384, 96), (96, 384)):
        check_products(inward, out)


def check_products(inward: int, out: int) -> None:
    from graphmamba.ops.graph_mamba_layer.linear import linear, relu_grad, rows_grad

    x, grad = torch.randn(70, inward), torch.randn(70, out)
    weight, bias, other = torch.randn(out, inward), torch.randn(out), torch.randn(70, inward)
    y = x.double() @ weight.double().t() + bias
    d = grad.double() @ weight.double()
    ours = linear(x, weight, bias), linear(x, weight, bias, is_relu=True)
    ours += rows_grad(grad, weight, other), relu_grad(grad, weight, other)
    expected = y, y.relu(), d + other, torch.where(other > 0, d, 0.0)
    for found, truth in zip(ours, expected, strict=True):
        assert max_error(found, truth) <= 1e-5 * float(truth.abs().max())


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_the_operator_is_as_exact_as_the_modules(name: str) -> None:
    ours = check(CASES[name], "cuda")
    assert_bit_equal(ours, results(CASES[name], "triton", "cuda", torch.float32))


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(151, 90, 444, 30) * 8, (1200,) * 3], ids=["many", "long"])
def test_the_operator_is_exact_on_batches_as_large_as_real_ones(sizes: tuple[int, ...]) -> None:
    check(Case(sizes=sizes, padding=50, policy=OrderPolicy(bins=2)), "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("sizes", [(151, 90, 444, 30) * 2, (40, 3)], ids=["ours", "of cuBLAS"])
def test_rounded_products_are_as_exact_as_those_of_the_modules(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32")
    case = Case(sizes=sizes, channels=64, padding=50)
    ours, plain = (results(case, each, "cuda", torch.float32) for each in ("triton", "reference"))
    truth = results(case, "reference", "cpu", torch.float64)
    assert_nearly_as_exact(ours, plain, truth, 1e-3)


def assert_nearly_as_exact(ours: Results, plain: Results, truth: Results, share: float) -> None:
    """At most twice the error of the modules, and a share of what is right, by the norm."""
    for name, expected in truth.items():
        errors = [(found[name].double() - expected).norm().item() for found in (ours, plain)]
        assert errors[0] <= 2 * errors[1] + share * expected.double().norm().item(), (name, errors)


@pytest.mark.gpu
@pytest.mark.parametrize("input_norm", ["none", "layer"])
def test_bfloat16_is_as_exact_as_the_modules(input_norm: Any) -> None:
    case = Case(sizes=(151, 90, 444, 30), input_norm=input_norm)
    both = {backend: run_mixed(case, backend) for backend in ("triton", "reference")}
    truth = results(case, "reference", "cpu", torch.float64)
    truth = {name: value for name, value in truth.items() if value.is_floating_point()}
    assert_nearly_as_exact(both["triton"], both["reference"], truth, 1e-2)


def run_mixed(case: Case, backend: Any) -> Results:
    """Embeddings in bfloat16, as a captured step under autocast has them."""
    topology = on(case.topology(), "cuda")
    layer = case.layer(backend).cuda()
    rows = [each.cuda().bfloat16().requires_grad_() for each in random_rows(topology, CHANNELS)]
    with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
        out, e = layer(*rows, topology)
    assert e is not None
    weights = [each.cuda() for each in random_rows(topology, CHANNELS, seed=9)]
    loss = (out.float() * weights[0]).sum() + (e.float() * weights[1]).sum()
    names = ["x", "e", *dict(layer.named_parameters())]
    found = torch.autograd.grad(loss, [*rows, *layer.parameters()])
    made = {"x": out, "e": e} | {f"d_{name}": grad for name, grad in zip(names, found, strict=True)}
    made |= dict(layer.named_buffers())
    return {name: value.detach().cpu().float() for name, value in made.items()}


def test_the_operator_serves_the_papers_layer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    mamba = GraphMambaGlobal(CHANNELS)
    others: list[nn.Module] = [
        GPSLayer(CHANNELS, GatedGCN(CHANNELS), mamba, backend="reference"),
        GPSLayer(CHANNELS, GatedGCN(CHANNELS, has_stable_gate=True), mamba),
        GPSLayer(CHANNELS, GatedGCN(CHANNELS), mamba, norm="layer"),
        GPSLayer(CHANNELS, GatedGCN(CHANNELS, activation="gelu"), mamba),
        GPSLayer(CHANNELS, GatedGCN(CHANNELS), None),
        ExphormerStack(CHANNELS, 1, 1),
        nn.Identity(),
    ]
    frozen = GPSLayer(CHANNELS, GatedGCN(CHANNELS), mamba)
    assert frozen.norm_local is not None
    frozen.norm_local.eval()
    others.append(frozen)
    layer = GPSLayer(CHANNELS, GatedGCN(CHANNELS), mamba)
    assert has_operator(layer)
    assert not any(map(has_operator, others))
    # on a CPU the modules run
    x = torch.zeros(2, CHANNELS)
    assert not runs_operator(layer, x)
    monkeypatch.setattr(choose_operator, "uses_triton", lambda *_: True)
    assert runs_operator(layer, x)
    assert not any(runs_operator(other, x) for other in others)
