"""Attention along edges, by kernels and by the definition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from graphmamba.nn import ExphormerStack
from graphmamba.ops.backends import TritonBackend
from graphmamba.ops.edge_attention import AttentionGraph, attend, attention_graph
from tests.helpers.agreement import Results, assert_as_exact, assert_bit_equal
from tests.helpers.graphs import moved_to, random_rows, random_topology


@dataclass(frozen=True)
class Call:
    nodes: Tensor
    features: Tensor
    edge_index: Tensor
    feature: Tensor
    shared: int
    heads: int
    grad: Tensor

    def to(self, dtype: torch.dtype) -> "Call":
        names = ("nodes", "features", "grad")
        return replace(self, **{name: getattr(self, name).to(dtype) for name in names})

    def graph(self, backend: TritonBackend = "auto", device: str = "cpu") -> AttentionGraph:
        places = self.edge_index.to(device), self.feature.to(device)
        return attention_graph(*places, self.nodes.shape[0], self.shared, backend=backend)


def draw(
    degrees: Sequence[int], width: int = 6, heads: int = 2, own: int = 5, shared: int = 3
) -> Call:
    """Node `n` attends to `degrees[n]` others; the first `own` edges, in any order, have rows."""
    generator = torch.Generator().manual_seed(len(degrees) + width)
    nodes, edges, channels = len(degrees), sum(degrees), width * heads
    own = min(own, edges) if shared else edges

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).double()

    target = torch.repeat_interleave(torch.arange(nodes), torch.tensor(degrees).long())
    target = target[torch.randperm(edges, generator=generator)]
    source = torch.randint(max(nodes, 1), (edges,), generator=generator)
    kinds = torch.randint(max(shared, 1), (edges - own,), generator=generator)
    feature = torch.cat([torch.arange(own), own + kinds])
    return Call(
        # Some scores are beyond the limits.
        *(1.5 * normal(nodes, 3 * channels), 1.5 * normal(own + shared, channels)),
        *(torch.stack([source, target]), feature, shared, heads, normal(nodes, channels)),
    )


SMALL = {
    "few": lambda: draw((2, 3, 1, 4, 0) * 4),
    "hubs": lambda: draw((3, 190, 0, 1, 2, 150, 1), 13, 1, own=200),
    "virtual": lambda: draw((9, 14, 0, 100, 7, 9, 11), 16, own=60, shared=9),
    "all have rows": lambda: draw((2, 20, 1), 24, shared=0),
    "none has a row": lambda: draw((2, 20, 1), 3, 4, own=0),
    "one node": lambda: draw((1,), 1, 1, own=1, shared=1),
    "no edges": lambda: draw((0, 0, 0), 4),
    "no nodes": lambda: draw((), 4),
}
LARGE = {
    "peptides": lambda: draw((3, 4, 2, 5, 3) * 900 + (150, 440) * 10, 24, 4, own=8000),
    "struct": lambda: draw((9, 8, 10) * 900 + (150, 440) * 6, 22, 4, own=6000, shared=13),
    "clusters": lambda: draw((45, 60, 52) * 70, 8, 4, own=10, shared=7),
    "thousands at a hub": lambda: draw((2, 1, 3, 0) * 200 + (5000,) + (1, 2) * 300, 16, 4),
}


def run(call: Call, backend: TritonBackend = "auto", device: str = "cpu") -> Results:
    nodes, features = (
        each.to(device, copy=True).requires_grad_() for each in (call.nodes, call.features)
    )
    out = attend(nodes, features, call.graph(backend, device), call.heads)
    grads = torch.autograd.grad(out, [nodes, features], call.grad.to(device))
    results = dict(zip(("out", "d_nodes", "d_features"), (out.detach(), *grads), strict=True))
    return {name: value.cpu() for name, value in results.items()}


def assert_right(call: Call, backend: TritonBackend = "auto", device: str = "cpu") -> None:
    single = call.to(torch.float32)
    truth, plain = run(call, "reference"), run(single, "reference")
    assert_as_exact(run(single, backend, device), plain, truth)


def check_stacks(device: str = "cpu") -> None:
    """A whole Exphormer gives the same rows and gradients by kernels as by the definition."""
    torch.manual_seed(0)
    topology = random_topology((6, 1, 9))
    x, e = random_rows(topology)
    stack = ExphormerStack(8, 2, 2, virtual_nodes=2).to(device).eval()
    moved = moved_to(topology, device)
    results = []
    for backend in ("reference", "triton"):
        stack.backend = backend
        rows = [each.to(device, copy=True).requires_grad_() for each in (x, e)]
        out = stack(*rows, moved)[0]
        grads = torch.autograd.grad(out.square().sum(), [*rows, stack.kinds, stack.virtual])
        results.append([out.detach(), *grads])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)


def check_interpreted() -> None:
    for draw_one in SMALL.values():
        assert_right(draw_one(), "triton")
    one = SMALL["hubs"]().to(torch.float32)
    assert_bit_equal(run(one, "triton"), run(one, "triton"))
    check_stacks()


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    assert_right((SMALL | LARGE)[name](), "triton", "cuda")


@pytest.mark.gpu
def test_stacks_agree_and_repeats_are_bit_equal() -> None:
    check_stacks("cuda")
    call = LARGE["peptides"]().to(torch.float32)
    assert_bit_equal(run(call, device="cuda"), run(call, device="cuda"))


def test_gradients_are_those_of_small_differences() -> None:
    call = draw((2, 0, 1, 4), 2)
    # None of these scores is at the limits, where there is no slope.
    leaves = [(0.3 * each).requires_grad_() for each in (call.nodes, call.features)]
    assert torch.autograd.gradcheck(lambda x, e: attend(x, e, call.graph(), call.heads), leaves)


def test_edges_are_laid_out_by_target_and_by_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    call = SMALL["few"]()
    plain, laid_out = call.graph("reference"), call.graph("triton")
    assert not plain.is_laid_out
    assert torch.equal(plain.edge_index, call.edge_index)
    source, target = laid_out.edge_index
    assert laid_out.is_laid_out
    assert not (target.diff() < 0).any()
    assert not (source[laid_out.source_order].diff() < 0).any()
    for ptr, ends in ((laid_out.target_ptr, target), (laid_out.source_ptr, source)):
        assert torch.equal(ptr.diff(), ends.bincount(minlength=20).int())
    pairs = [
        sorted(zip(*one.edge_index.tolist(), one.feature.tolist(), strict=True))
        for one in (plain, laid_out)
    ]
    assert pairs[0] == pairs[1]
