"""Attention along wires, by kernels and by the definition."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.nn import ExphormerStack
from graphmamba.ops.edge_attention import Wires, attend, wire
from graphmamba.ops.fusing import FusedBackend
from tests.helpers.agreement import Results, assert_as_exact, assert_bit_equal
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.processes import only_interpreted, run_apart
from tests.helpers.typecheck import typecheck_off


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

    def wires(self, backend: FusedBackend, device: str = "cpu") -> Wires:
        return wire(
            *(self.edge_index.to(device), self.feature.to(device), self.nodes.shape[0]),
            shared=self.shared,
            backend=backend,
        )


def draw(
    degrees: Sequence[int], width: int = 6, heads: int = 2, own: int = 5, shared: int = 3
) -> Call:
    """Node `n` attends to `degrees[n]` others; the first `own` wires, in any order, have rows."""
    generator = torch.Generator().manual_seed(len(degrees) + width)
    nodes, wires, channels = len(degrees), sum(degrees), width * heads
    own = min(own, wires) if shared else wires

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).double()

    target = torch.repeat_interleave(torch.arange(nodes), torch.tensor(degrees).long())
    target = target[torch.randperm(wires, generator=generator)]
    source = torch.randint(max(nodes, 1), (wires,), generator=generator)
    kinds = torch.randint(max(shared, 1), (wires - own,), generator=generator)
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
    "no wires": lambda: draw((0, 0, 0), 4),
    "no nodes": lambda: draw((), 4),
}
LARGE = {
    "peptides": lambda: draw((3, 4, 2, 5, 3) * 900 + (150, 440) * 10, 24, 4, own=8000),
    "struct": lambda: draw((9, 8, 10) * 900 + (150, 440) * 6, 22, 4, own=6000, shared=13),
    "clusters": lambda: draw((45, 60, 52) * 70, 8, 4, own=10, shared=7),
    "thousands at a hub": lambda: draw((2, 1, 3, 0) * 200 + (5000,) + (1, 2) * 300, 16, 4),
}


def by_door(call: Call, backend: FusedBackend = "auto", device: str = "cpu") -> Results:
    nodes, features = (
        each.to(device, copy=True).requires_grad_() for each in (call.nodes, call.features)
    )
    out = attend(nodes, features, call.wires(backend, device), call.heads)
    grads = torch.autograd.grad(out, [nodes, features], call.grad.to(device))
    results = dict(zip(("out", "d_nodes", "d_features"), (out.detach(), *grads), strict=True))
    return {name: value.cpu() for name, value in results.items()}


def assert_attends_right(call: Call, backend: FusedBackend = "auto", device: str = "cpu") -> None:
    single = call.to(torch.float32)
    truth, plain = by_door(call, "reference"), by_door(single, "reference")
    assert_as_exact(by_door(single, backend, device), plain, truth)


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_the_reference() -> None:
    run_apart(
        "import tests.ops.edge_attention.test_edge_attention as t\n"
        "for draw in t.SMALL.values():\n"
        "    t.assert_attends_right(draw(), 'fused')\n"
        "one = t.SMALL['hubs']().to(t.torch.float32)\n"
        "t.assert_bit_equal(t.by_door(one, 'fused'), t.by_door(one, 'fused'))\n"
        "t.assert_stacks_agree()\n",
        TRITON_INTERPRET="1",
    )


def assert_stacks_agree(device: str = "cpu") -> None:
    """A whole Exphormer gives the same rows and gradients by kernels as by the definition."""
    torch.manual_seed(0)
    topology = random_topology((6, 1, 9))
    x, e = random_rows(topology)
    stack = ExphormerStack(8, 2, 2, virtual_nodes=2).to(device).eval()
    moved = replace(
        topology,
        **{name: getattr(topology, name).to(device) for name in ("edge_index", "batch")},
        expander_index=topology.expander_index.to(device),
    )
    results = []
    for backend in ("reference", "fused"):
        stack.backend = backend
        rows = [each.to(device, copy=True).requires_grad_() for each in (x, e)]
        out = stack(*rows, moved)[0]
        grads = torch.autograd.grad(out.square().sum(), [*rows, stack.kinds, stack.virtual])
        results.append([out.detach(), *grads])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-4)


@pytest.mark.gpu
def test_a_stack_attends_by_kernels_as_by_the_definition() -> None:
    assert_stacks_agree("cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    assert_attends_right((SMALL | LARGE)[name](), "fused", "cuda")


@pytest.mark.gpu
def test_repeats_are_bit_equal() -> None:
    call = LARGE["peptides"]().to(torch.float32)
    assert_bit_equal(by_door(call, device="cuda"), by_door(call, device="cuda"))


def test_gradients_are_those_of_small_differences() -> None:
    call = draw((2, 0, 1, 4), 2)
    # None of these scores is at the limits, where there is no slope.
    leaves = [0.3 * each for each in (call.nodes, call.features)]
    for each in leaves:
        each.requires_grad_()
    wires = call.wires("auto")
    assert torch.autograd.gradcheck(lambda x, e: attend(x, e, wires, call.heads), leaves)


def test_wires_are_laid_out_by_target_and_by_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    call = SMALL["few"]()
    plain, sorted_ = call.wires("reference"), call.wires("fused")
    assert not plain.is_laid_out
    assert torch.equal(plain.edge_index, call.edge_index)
    source, target = sorted_.edge_index
    assert sorted_.is_laid_out
    assert not (target.diff() < 0).any()
    assert not (source[sorted_.source_order].diff() < 0).any()
    for ptr, ends in ((sorted_.target_ptr, target), (sorted_.source_ptr, source)):
        assert torch.equal(ptr.diff(), ends.bincount(minlength=20).int())
    pairs = [
        sorted(zip(*one.edge_index.tolist(), one.feature.tolist(), strict=True))
        for one in (plain, sorted_)
    ]
    assert pairs[0] == pairs[1]


@typecheck_off()
def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    call = SMALL["few"]()
    wires = call.wires("auto")
    with pytest.raises(UserError, match=r"heads must divide channels=12, got 5"):
        attend(call.nodes, call.features, wires, 5)
    with pytest.raises(UserError, match=r"nodes must have three times the columns of features"):
        attend(call.nodes[:, 1:], call.features, wires, 2)
    with pytest.raises(UserError, match=r"wires must be those of 19 nodes .* got 20 and 3"):
        attend(call.nodes[1:], call.features, wires, 2)
    with pytest.raises(UserError, match=r"must not be laid out for torch.float64"):
        attend(call.nodes, call.features, call.wires("fused"), 2)
    with pytest.raises(UserError, match=r"backend must be one of .* got 'gpu'"):
        call.wires("gpu")
    wires, single = call.wires("fused"), call.to(torch.float32)
    monkeypatch.delenv("TRITON_INTERPRET")
    with pytest.raises(UserError, match=r"wires must not be laid out on cpu"):
        attend(single.nodes, single.features, wires, 2)
