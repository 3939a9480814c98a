"""Two halves of rows: split, and their gradients in one memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck

from graphmamba.scan import causal_conv1d, selective_scan
from graphmamba.scan import halves as door
from graphmamba.scan.halves import Halves, join, split_halves
from graphmamba.scan.options import Backend
from graphmamba.stack import MambaBlock, MambaOptions
from tests.helpers.processes import only_interpreted, run_apart

NODES, CHANNELS = 7, 3
Copies = list[tuple[Tensor, Tensor]]


def test_both_halves_are_taken_from_one_memory() -> None:
    halves, like = Halves(), torch.zeros(4, 3, dtype=torch.bfloat16)
    for first, second in ((0, 1), (1, 0)):
        taken = {half: halves.take(half, like) for half in (first, second)}
        whole = join(taken[0].fill_(1.0), taken[1].fill_(2.0))
        assert whole.data_ptr() == taken[0].data_ptr()
        assert torch.equal(whole, torch.tensor([1.0] * 3 + [2.0] * 3).bfloat16().expand(4, 6))


def test_what_was_taken_before_is_never_handed_out_again() -> None:
    halves, like = Halves(), torch.zeros(4, 3)
    before = halves.take(1, like).fill_(7.0)
    taken = halves.take(1, like).fill_(2.0), halves.take(0, like).fill_(1.0)
    assert (before == 7.0).all()
    assert join(taken[1], taken[0]).data_ptr() == taken[1].data_ptr()
    halves.take(1, like)
    other = halves.take(0, torch.zeros(5, 3))
    assert other.shape == (5, 3)


def test_halves_of_several_memories_are_copied() -> None:
    whole = torch.arange(24.0).view(4, 6)
    first, second = whole.chunk(2, dim=-1)
    assert join(first, second).data_ptr() == whole.data_ptr()
    for left, right in (
        (first, second.clone()),
        (first.clone(), second),
        (second, first),
        (first, first),
        (first, whole[:, 2:5]),
        (first, torch.zeros(()).expand(4, 3)),
        (whole.view(8, 3)[:4], whole.view(8, 3)[4:]),
    ):
        found = join(left, right)
        assert torch.equal(found, torch.cat([left, right], dim=-1))
        assert found.data_ptr() != whole.data_ptr()


def test_the_memory_is_shared_only_where_kernels_fill_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr("graphmamba.scan.backends._FOUND", {"cpu": True, "fused": True})
    rows = torch.zeros(3, 4, requires_grad=True)
    assert split_halves(rows, backend="fused").halves is not None
    assert split_halves(rows, backend="cpu").halves is None
    assert split_halves(rows, backend="reference").halves is None
    assert split_halves(rows).halves is None
    assert split_halves(rows, backend="fused", is_read_once=False).halves is None
    assert split_halves(rows.detach(), backend="fused").halves is None
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert split_halves(rows, backend="fused").halves is None


@only_interpreted
def test_interpreted_blocks_write_both_gradients_into_one_memory() -> None:
    run_apart("from tests.scan.test_halves import *\ncheck_blocks('cpu')\n", TRITON_INTERPRET="1")


@only_interpreted
def test_interpreted_operators_share_memory_by_the_rules() -> None:
    run_apart("from tests.scan.test_halves import *\ncheck_rules('cpu')\n", TRITON_INTERPRET="1")


@pytest.mark.gpu
def test_blocks_write_both_gradients_into_one_memory() -> None:
    check_blocks("cuda")
    check_rules("cuda")


def check_rules(device: str) -> None:
    check_parts(device)
    check_passes(device)
    check_operators(device)


def check_blocks(device: str) -> None:
    """Gradients are those of the reference, and are copied only where they are sums."""
    permutation = torch.randperm(NODES)
    samples = torch.cat([permutation, torch.randperm(NODES) + NODES])
    for order, direction, forgets, copies in (
        (None, "forward", False, 0),
        (permutation, "reverse", True, 0),
        (samples, "forward", True, 1),
        (permutation, "bidirectional", True, 0),
    ):
        torch.manual_seed(0)
        block = MambaBlock(CHANNELS, MambaOptions(state=2, backend="fused"), direction)
        block.forgets = forgets
        ours, found = _gradients(block, order, device)
        for part in block.modules():
            if hasattr(part, "options"):
                part.options = replace(part.options, backend="reference")
        plain, none = _gradients(block, order, "cpu")
        assert (len(found), len(none)) == (copies, 0), (direction, forgets)
        for one, other in zip(ours, plain, strict=True):
            torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)


def _gradients(block: MambaBlock, order: Tensor | None, device: str) -> tuple[list[Tensor], Copies]:
    block = block.to(device)
    x = torch.linspace(-1, 1, NODES * CHANNELS).sin().view(NODES, CHANNELS)
    x = x.to(device).requires_grad_()
    many = 1 if order is None else order.shape[0] // NODES
    bounds = [NODES * sample + bound for sample in range(many) for bound in (0, 3, 4, 4)]
    cu_seqlens = torch.tensor([*bounds, many * NODES], dtype=torch.int32, device=device)
    out = block(x, cu_seqlens, None if order is None else order.to(device), many)
    leaves = [x, *block.parameters()]
    return _counting_copies(lambda: list(torch.autograd.grad(out.square().sum(), leaves)))


def _counting_copies(work: Callable[[], Any]) -> tuple[Any, Copies]:
    found: Copies = []
    with pytest.MonkeyPatch.context() as patch:
        copy = door._copy
        patch.setattr(door, "_copy", lambda *given: (found.append(given), copy(*given))[1])
        return work(), found


def _run(rows: Tensor, reads: str = "both", backend: Backend = "fused") -> Tensor:
    """Convolve one half, and gate a scan of ones by the other."""
    device, count = rows.device, rows.shape[0]
    main, gate, halves = split_halves(rows, backend=backend)
    inner, cu_seqlens = main.shape[1], torch.tensor([0, 3, count], device=device)
    given: dict[str, Any] = {"cu_seqlens": cu_seqlens, "backend": backend, "halves": halves}
    u = causal_conv1d(main, torch.ones(inner, 2, device=device), **given)
    one, states = torch.ones(count, inner, device=device), torch.ones(count, 2, device=device)
    A = -torch.ones(inner, 2, device=device)
    y = selective_scan(u if reads == "both" else one, one, A, states, states, z=gate, **given)
    return {"both": y, "gate": y, "main": u}[reads].square().sum()


def check_parts(device: str) -> None:
    """Where one half alone is read, the other gets zeros; no rows at all get none."""
    rows = torch.linspace(-1, 1, 48, device=device).view(6, 8).requires_grad_()
    for reads in ("both", "main", "gate"):
        loss = _run(rows, reads)
        (ours,), copies = _counting_copies(partial(torch.autograd.grad, loss, rows))
        (plain,) = torch.autograd.grad(_run(rows, reads, "reference"), rows)
        torch.testing.assert_close(ours, plain)
        assert len(copies) == (reads != "both")
    none = torch.zeros(0, 8, device=device).requires_grad_()
    (found,) = torch.autograd.grad(_run_empty(none), none)
    assert found.shape == (0, 8)


def _run_empty(rows: Tensor) -> Tensor:
    main, gate, halves = split_halves(rows, backend="fused")
    cu_seqlens = torch.tensor([0, 0], device=rows.device)
    given: dict[str, Any] = {"cu_seqlens": cu_seqlens, "backend": "fused", "halves": halves}
    u = causal_conv1d(main, rows.new_ones(4, 2), **given)
    A, states = -rows.new_ones(4, 2), rows.new_ones(0, 2)
    return selective_scan(u, rows.new_ones(0, 4), A, states, states, z=gate, **given).sum()


def check_passes(device: str) -> None:
    """A pass leaves alone what another over the same graph was given."""
    rows = torch.linspace(-1, 1, 48, device=device).view(6, 8).requires_grad_()
    loss = _run(rows)
    first, again = (torch.autograd.grad(loss, rows, retain_graph=True)[0] for _ in range(2))
    held = first.clone()
    torch.autograd.grad(loss, rows, retain_graph=True)
    assert torch.equal(first, held)
    assert torch.equal(first, again)


def check_operators(device: str) -> None:
    """The operators that write into memory keep the rules of PyTorch."""
    draw, ours = torch.randn, torch.ops.graphmamba
    u, weight, A = draw(5, 4, device=device), draw(4, 2, device=device), draw(4, 2, device=device)
    into, states = draw(5, 8, device=device)[:, 4:], draw(5, 2, device=device)
    walk = torch.tensor([0, 2, 5], device=device), None
    conv = (u, weight, None, *walk, False, True, False)
    leaves = u, u, A, states, states, None, u, None
    scan = (*leaves, *walk, False, True, False, False, True, True)
    _, kept = ours.selective_scan_fused(*scan)
    for operator, arguments in (
        (ours.causal_conv1d_fused_backward_into, (into, u, u.new_empty(0), *conv)),
        (ours.selective_scan_fused_backward_into, (into, u, kept, *scan)),
    ):
        opcheck(operator.default, arguments, test_utils=("test_schema", "test_faketensor"))
