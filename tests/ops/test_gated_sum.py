"""The gated sum: every backend against the reference, in float64 where that is the truth."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.ops.backends import Backend
from graphmamba.ops.edge_layout import EdgeLayout, lay_out_edges
from graphmamba.ops.gated_sum import gated_sum
from tests.helpers.agreement import (
    Results,
    assert_as_exact,
    assert_bit_equal,
    on_each_device,
)

in_each_order = pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "shuffled"])
with_and_without_scale = pytest.mark.parametrize("has_scale", [False, True], ids=["bare", "scale"])
HUBS = (2, 0, 300, 1, 1, 3, 0, 70, 2, 5)


@dataclass(frozen=True)
class Call:
    """All arguments; `d_x` and `d_e` are the gradients of the outputs, None where it has none."""

    nodes: Tensor
    edges: Tensor
    scale: Tensor | None
    edge_index: Tensor
    source_order: Tensor | None
    d_x: Tensor | None
    d_e: Tensor | None

    def layout(self, device: str = "cpu") -> EdgeLayout:
        order = None if self.source_order is None else self.source_order.to(device)
        return lay_out_edges(self.edge_index.to(device), self.nodes.shape[0], order, check=True)

    def to(self, dtype: torch.dtype) -> "Call":
        names = ("nodes", "edges", "scale", "d_x", "d_e")
        reals = {name: getattr(self, name) for name in names}
        return replace(self, **{n: None if t is None else t.to(dtype) for n, t in reals.items()})


def draw(
    degrees: Sequence[int],
    channels: int = 52,
    *,
    is_sorted: bool = True,
    has_scale: bool = False,
    ends: tuple[str, ...] = ("d_x", "d_e"),
    seed: int = 0,
) -> Call:
    """Node `n` gets `degrees[n]` edges from anywhere: self-loops and repeated edges occur."""
    generator = torch.Generator().manual_seed(seed)
    nodes, edges = len(degrees), sum(degrees)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).double()

    target = torch.repeat_interleave(torch.arange(nodes), torch.tensor(degrees).long())
    source = torch.randint(max(nodes, 1), (edges,), generator=generator)
    edge_index = torch.stack([source, target])
    if not is_sorted:
        edge_index = edge_index[:, torch.randperm(edges, generator=generator)]
    return Call(
        nodes=normal(nodes, 4 * channels),
        edges=normal(edges, channels),
        scale=torch.rand(edges, generator=generator).double() if has_scale else None,
        edge_index=edge_index,
        source_order=edge_index[0].argsort(stable=True) if is_sorted else None,
        d_x=normal(nodes, channels) if "d_x" in ends else None,
        d_e=normal(edges, channels) if "d_e" in ends else None,
    )


def run(call: Call, backend: Backend = "auto", device: str = "cpu") -> Results:
    """Outputs and gradients."""
    inputs = {"nodes": call.nodes, "edges": call.edges, "scale": call.scale}
    leaves = {
        name: x.detach().to(device, copy=True).requires_grad_()
        for name, x in inputs.items()
        if x is not None
    }
    x_hat, e_hat = gated_sum(
        *(leaves["nodes"], leaves["edges"], call.layout(device), leaves.get("scale")),
        backend=backend,
    )
    ends = [(x_hat, call.d_x), (e_hat, call.d_e)]
    outputs = [(out, grad.to(device)) for out, grad in ends if grad is not None]
    torch.autograd.backward(*zip(*outputs, strict=True))
    results: Results = {"x_hat": x_hat.detach(), "e_hat": e_hat.detach()}
    for name, leaf in leaves.items():
        # No gradient is one of 0: the factors do not reach e_hat.
        results[f"d_{name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return {name: value.cpu() for name, value in results.items()}


def assert_right(call: Call, backend: Backend = "auto", device: str = "cpu") -> None:
    single = call.to(torch.float32)
    truth, plain = run(call, "reference"), run(single, "reference")
    assert_as_exact(run(single, backend, device), plain, truth)


@st.composite
def calls(draw_one: st.DrawFn) -> Call:
    degrees = st.one_of(st.integers(0, 5), st.integers(0, 90))
    return draw(
        draw_one(st.lists(degrees, min_size=1, max_size=20)),
        draw_one(st.sampled_from([1, 15, 16, 48, 52, 64, 95, 96])),
        is_sorted=draw_one(st.booleans()),
        has_scale=draw_one(st.booleans()),
        ends=draw_one(st.sampled_from([("d_x",), ("d_e",), ("d_x", "d_e")])),
        seed=draw_one(st.integers(0, 100)),
    )


@on_each_device
@given(call=calls())
def test_outputs_and_gradients_are_as_exact_as_the_reference(device: str, call: Call) -> None:
    assert_right(call, device=device)


@in_each_order
@with_and_without_scale
def test_gradients_are_those_of_small_differences(is_sorted: bool, has_scale: bool) -> None:
    call = draw((2, 0, 1, 4), 2, is_sorted=is_sorted, has_scale=has_scale)

    def compute(nodes: Tensor, edges: Tensor, *scale: Tensor) -> tuple[Tensor, Tensor]:
        return gated_sum(nodes, edges, call.layout(), *scale)

    leaves = [x.requires_grad_() for x in (call.nodes, call.edges, call.scale) if x is not None]
    assert torch.autograd.gradcheck(compute, leaves)


@on_each_device
def test_shuffled_edges_give_the_rows_of_the_sorted_ones(device: str) -> None:
    call = draw(HUBS, has_scale=True).to(torch.float32)
    order = torch.randperm(call.edges.shape[0], generator=torch.Generator().manual_seed(1))
    shuffled = replace(
        call,
        edges=call.edges[order],
        scale=call.scale[order],
        edge_index=call.edge_index[:, order],
        source_order=None,
        d_e=call.d_e[order],
    )
    ours, others = (run(one, device=device) for one in (call, shuffled))
    assert torch.equal(ours["e_hat"][order], others["e_hat"])
    for name in ("x_hat", "d_nodes"):
        torch.testing.assert_close(ours[name], others[name], rtol=1e-4, atol=1e-4)
    for name in ("d_edges", "d_scale"):
        torch.testing.assert_close(ours[name][order], others[name], rtol=1e-4, atol=1e-5)


@on_each_device
def test_graphs_do_not_leak_into_one_another(device: str) -> None:
    first, second = (draw(HUBS, has_scale=True, seed=seed).to(torch.float32) for seed in (0, 1))
    nodes, edges = first.nodes.shape[0], first.edges.shape[0]

    def joined(other: Call) -> Call:
        pairs = {
            name: torch.cat([getattr(first, name), getattr(other, name)])
            for name in ("nodes", "edges", "scale", "d_x", "d_e")
        }
        edge_index = torch.cat([first.edge_index, other.edge_index + nodes], dim=1)
        return Call(**pairs, edge_index=edge_index, source_order=edge_index[0].argsort(stable=True))

    dirty = replace(
        second,
        nodes=torch.full_like(second.nodes, torch.nan),
        edges=torch.full_like(second.edges, torch.inf),
        d_x=torch.full_like(second.d_x, torch.nan),
    )
    ours, others = (run(joined(other), device=device) for other in (second, dirty))
    for name in ours:
        kept = nodes if name in {"x_hat", "d_nodes"} else edges
        assert torch.equal(ours[name][:kept], others[name][:kept]), name


@on_each_device
def test_nodes_without_edges_keep_their_own_rows(device: str) -> None:
    call = draw((0, 0, 0), 5).to(torch.float32)
    results = run(call, device=device)
    assert torch.equal(results["x_hat"], call.nodes[:, :5])
    assert torch.equal(results["d_nodes"][:, :5], call.d_x)
    assert not results["d_nodes"][:, 5:].any()
    assert run(draw((), 5).to(torch.float32), device=device)["d_nodes"].shape == (0, 20)


@on_each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_float32_with_rounded_ends(dtype: torch.dtype, device: str) -> None:
    call = draw((2, 0, 30, 1, 4), has_scale=True).to(dtype)
    wide = run(call.to(torch.float32), device=device)
    for name, value in run(call, device=device).items():
        assert value.dtype == dtype
        torch.testing.assert_close(value.float(), wide[name], rtol=2**-6, atol=2**-5)


@on_each_device
def test_views_of_wider_rows_are_as_good_as_copies(device: str) -> None:
    call = draw(HUBS, 12).to(torch.float32)
    views = replace(
        call,
        nodes=torch.cat([call.nodes, call.nodes], dim=1)[:, :48],
        edges=call.edges.t().contiguous().t(),
        d_x=call.d_x.t().contiguous().t(),
        d_e=torch.cat([call.d_e, call.d_e], dim=1)[:, 12:],
    )
    assert_bit_equal(run(call, device=device), run(views, device=device))


@in_each_order
@with_and_without_scale
def test_the_operator_keeps_the_rules_of_pytorch(is_sorted: bool, has_scale: bool) -> None:
    call = draw((2, 0, 3, 1), 5, is_sorted=is_sorted, has_scale=has_scale).to(torch.float32)
    layout = call.layout()
    leaves = [
        None if x is None else x.requires_grad_() for x in (call.nodes, call.edges, call.scale)
    ]
    places = layout.edge_index, layout.target_ptr, layout.target_order
    sources = layout.source_ptr, layout.source_order
    operator = torch.ops.graphmamba.gated_sum_cpu.default
    torch.library.opcheck(operator, (*leaves, *places, *sources))


def test_it_can_be_differentiated_once() -> None:
    call = draw((2, 3), 4)
    nodes = call.nodes.requires_grad_()
    x_hat, _ = gated_sum(nodes, call.edges, call.layout(), backend="cpu")
    (gradient,) = torch.autograd.grad(x_hat.square().sum(), nodes, create_graph=True)
    with pytest.raises(NotImplementedError, match="gated_sum_cpu can be differentiated only once"):
        gradient.sum().backward()


SMALL = {
    "molecules": lambda: draw((2, 3, 1, 4) * 3, 33),
    "shuffled, scale": lambda: draw((2, 3, 0, 4) * 3, 5, is_sorted=False, has_scale=True),
    "hubs": lambda: draw((3, 90, 0, 1, 2, 150, 1), 6),
    "hubs, shuffled, scale": lambda: draw(
        (3, 90, 0, 1, 80, 1), 40, is_sorted=False, has_scale=True
    ),
    "dense": lambda: draw((70, 40, 65), 16, has_scale=True),
    "middle": lambda: draw((9, 14, 0, 100, 7, 9, 11), 3),
    "nothing comes back to the edges": lambda: draw((2, 20, 1), 4, ends=("d_x",)),
    "nothing comes back to the nodes": lambda: draw((2, 20, 1), 4, ends=("d_e",)),
    "one node": lambda: draw((1,), 1),
    "no edges": lambda: draw((0, 0, 0), 4, has_scale=True),
    "no nodes": lambda: draw((), 4),
}
LARGE = {
    "peptides": lambda: draw((2, 3, 1, 2, 1, 4) * 900, 96),
    "odd channels": lambda: draw((2, 3, 1, 2, 1, 4) * 90, 95, has_scale=True),
    "clusters": lambda: draw((45, 60, 52) * 70, 64),
    "thousands at a hub": lambda: draw((2, 1, 3, 0) * 200 + (5000,) + (1, 2) * 300, 64),
    "shuffled": lambda: draw((2, 1, 3, 0) * 200 + (500,), 52, is_sorted=False, has_scale=True),
}


def check_interpreted() -> None:
    for draw_one in SMALL.values():
        assert_right(draw_one(), "triton")


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    assert_right((SMALL | LARGE)[name](), "triton", "cuda")
