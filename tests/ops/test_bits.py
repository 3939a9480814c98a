"""What every operator promises of its bits: the same again, and none that nobody wrote."""

from dataclasses import replace

import pytest
import torch

from graphmamba.ops.selective_scan import cpu
from tests.helpers.agreement import (
    assert_bit_equal,
    assert_bits_ignore_threads,
    on_each_device,
    poison_allocations,
)
from tests.ops import test_causal_conv1d as conv
from tests.ops import test_gated_sum as gated
from tests.ops import test_selective_scan as scan

LENGTHS = (0, 200, 3, 70, 81)
ORDERS = ["none", "repeated", "permutation", "samples"]
CALLS = {
    **{f"scan, {order}": (scan, scan.Case(LENGTHS, 52, 3, order=order)) for order in ORDERS},
    "scan, reverse": (scan, scan.Case(LENGTHS, 52, 3, order="repeated", reverse=True)),
    **{f"convolution, {order}": (conv, conv.draw(LENGTHS, order=order)) for order in ORDERS},
    "convolution, reverse": (conv, conv.draw(LENGTHS, order="repeated", reverse=True)),
    "gated sum": (gated, gated.draw(gated.HUBS * 4, has_scale=True)),
    "gated sum, shuffled": (gated, gated.draw(gated.HUBS * 4, is_sorted=False, has_scale=True)),
}


@on_each_device
@pytest.mark.parametrize(("operator", "call"), CALLS.values(), ids=CALLS)
def test_repeats_are_bit_equal_and_all_that_is_allocated_is_written(
    operator: object, call: object, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # parts of sequences are scanned side by side
    monkeypatch.setattr(cpu, "MOST_STEPS", 40)
    monkeypatch.setattr(cpu, "GROUP_STEPS", 50)
    single = (scan.draw(call) if operator is scan else call).to(torch.float32)
    assert_bits_ignore_threads(lambda: operator.run(single, device=device))
    clean = operator.run(single, device=device)
    poison_allocations(monkeypatch)
    assert_bit_equal(clean, operator.run(single, device=device))


@on_each_device
@pytest.mark.parametrize("operator", [scan, conv], ids=["scan", "convolution"])
def test_views_and_columns_are_as_good_as_copies(operator: object, device: str) -> None:
    lengths = (40, 33)
    call = (
        scan.draw(scan.Case(lengths, order="permutation"))
        if operator is scan
        else conv.draw(lengths, order="permutation")
    ).to(torch.float32)
    views = {
        name: torch.cat([x, x], dim=1)[:, x.shape[1] :] if x.dim() == 2 else x
        for name, x in call.inputs.items()
    }
    columns = {name: x.t().contiguous().t() if x.dim() == 2 else x for name, x in views.items()}
    ours = operator.run(call, device=device)
    for inputs, grad in ((views, call.grad), (columns, call.grad.t().contiguous().t())):
        other = replace(call, inputs=inputs, grad=grad)
        assert_bit_equal(ours, operator.run(other, device=device))


@on_each_device
@pytest.mark.parametrize("operator", [scan, conv], ids=["scan", "convolution"])
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
def test_sequences_do_not_leak_into_one_another(
    operator: object, reverse: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "MOST_STEPS", 40)
    lengths = (33, 50, 90)
    clean = (
        scan.draw(scan.Case(lengths, reverse=reverse))
        if operator is scan
        else conv.draw(lengths, reverse=reverse)
    ).to(torch.float32)
    rows = scan.PER_ROW if operator is scan else ("x",)
    inputs = {name: x.clone() for name, x in clean.inputs.items()}
    grad = clean.grad.clone()
    for name in rows:
        inputs[name][33:83] = torch.nan
    grad[33:83] = torch.inf
    dirty = replace(clean, inputs=inputs, grad=grad)
    ours, others = (operator.run(call, device=device) for call in (clean, dirty))
    well = torch.cat([torch.arange(33), torch.arange(83, 173)])
    for name in ("y", *rows):
        assert torch.equal(ours[name][well], others[name][well]), name
    assert others["y"][33:83].isnan().all()
