"""Every rule of the public functions is broken once; the message names argument, rule and value."""

from typing import Any

import pytest
import torch
from torch import Tensor

from graphmamba.ops import causal_conv1d, checks, selective_scan
from tests.helpers.typecheck import typecheck_off

STEPS, INNER, STATE = 6, 3, 2


def scan_arguments() -> dict[str, Any]:
    return {
        "u": torch.ones(STEPS, INNER),
        "delta": torch.ones(STEPS, INNER),
        "A": -torch.ones(INNER, STATE),
        "B": torch.ones(STEPS, STATE),
        "C": torch.ones(STEPS, STATE),
        "D": torch.ones(INNER),
        "z": torch.ones(STEPS, INNER),
        "delta_bias": torch.ones(INNER),
        "cu_seqlens": torch.tensor([0, 2, STEPS]),
    }


def conv_arguments() -> dict[str, Any]:
    return {
        "x": torch.ones(STEPS, INNER),
        "weight": torch.ones(INNER, 4),
        "bias": torch.ones(INNER),
        "cu_seqlens": torch.tensor([0, 2, STEPS]),
    }


def ints(*values: int) -> Tensor:
    return torch.tensor(values)


PERMUTED = ints(5, 4, 3, 2, 1, 0)

# Changed arguments, and parts of the message in the order in which they come.
SCAN: dict[str, tuple[dict[str, Any], str]] = {
    "no tensor": ({"u": 3}, "u must be a tensor, got int"),
    "missing": ({"B": None}, "B must be a tensor, got NoneType"),
    "dimensions": ({"u": torch.ones(6)}, r"u must have 2 dimensions, got shape \(6,\)"),
    "line": ({"D": torch.ones(3, 1)}, r"D must have 1 dimensions, got shape \(3, 1\)"),
    "delta": ({"delta": torch.ones(6, 4)}, r"delta must have shape .*inner 3.* got \(6, 4\)"),
    "A": ({"A": torch.ones(4, 2)}, r"A must have shape .*inner 3.* got \(4, 2\)"),
    "no state": ({"A": torch.ones(3, 0)}, r"A must have at least one state, got shape \(3, 0\)"),
    "B": ({"B": torch.ones(6, 3)}, r"B must have shape .*state 2.* got \(6, 3\)"),
    "z": ({"z": torch.ones(6, 2)}, r"z must have shape .*inner 3.* got \(6, 2\)"),
    "rows of z": ({"z": torch.ones(5, 3)}, "z must have 6 rows, one a step, got 5"),
    "half": ({"u": torch.ones(6, 3).half()}, r"u.dtype must be one of .* got torch.float16"),
    "mixed": ({"z": torch.ones(6, 3).double()}, r"z.dtype must be that of u.* torch.float64"),
    "integer rates": ({"A": torch.ones(3, 2).int()}, r"A.dtype must be one of .* torch.int32"),
    "device": ({"C": torch.ones(6, 2, device="meta")}, r"C.device must be that of u, cpu, got me"),
    "rule": (
        {"discretization": "tustin"},
        "discretization must be one of 'euler', 'zoh', got 'tustin'",
    ),
    "scatter": ({"scatter": True}, "scatter=True needs an order, got order=None"),
    "order of nothing": (
        {"order": ints(0, 1, 2, 3, 4, 6), "z": None},
        "order must be in 0 to 5, got 6 at 5",
    ),
    "long order": ({"order": ints(0, 1)}, r"order must have shape \(steps 6,\), got \(2,\)"),
    "real order": ({"order": torch.ones(6)}, r"order.dtype must be one of .* got torch.float32"),
    "low order": ({"order": ints(0, 1, -2, 3, 4, 5)}, "order must be in 0 to 5, got -2 at 2"),
    "repeated": (
        {"order": ints(0, 1, 2, 3, 4, 4), "scatter": True},
        "order must be a permutation with scatter=True, got 4 2 times",
    ),
    "uneven samples": (
        {"order": PERMUTED, "scatter": True, "z": torch.ones(4, 3)},
        "number of steps, 6, must be a multiple of the rows of z with scatter=True, got 4",
    ),
    "nothing to read": (
        {"order": PERMUTED, "z": torch.ones(0, 3)},
        "z must have rows for the 6 steps to read, got 0",
    ),
    "no boundary": ({"cu_seqlens": ints()[:0].long()}, "cu_seqlens must have at least one entry"),
    "real boundaries": ({"cu_seqlens": torch.tensor([0.0, 6.0])}, "cu_seqlens.dtype must be one"),
    "late start": ({"cu_seqlens": ints(1, 6)}, "cu_seqlens must start at 0, got 1"),
    "fall": ({"cu_seqlens": ints(0, 4, 3, 6)}, "cu_seqlens must not fall, got 4, 3 at 1, 2"),
    "early end": ({"cu_seqlens": ints(0, 4)}, "cu_seqlens must end at .* steps, 6, got 4"),
}
CONV: dict[str, tuple[dict[str, Any], str]] = {
    "weight": ({"weight": torch.ones(4, 4)}, r"weight must have shape .*3.* got \(4, 4\)"),
    "many taps": ({"weight": torch.ones(3, 9)}, r"weight must have 1 to 8 taps, got .*\(3, 9\)"),
    "no taps": ({"weight": torch.ones(3, 0)}, r"weight must have 1 to 8 taps, got .*\(3, 0\)"),
    "bias": ({"bias": torch.ones(4)}, r"bias must have shape .*inner 3.* got \(4,\)"),
    "device": ({"weight": torch.ones(3, 4, device="meta")}, r"weight.device must .* got meta"),
    "permutation": ({"permutation": True}, "permutation=True needs an order, got order=None"),
    "uneven samples": (
        {"order": ints(3, 2, 1, 0), "permutation": True, "cu_seqlens": ints(0, 4)},
        "number of steps, 4, must be a multiple of the rows of x with permutation=True, got 6",
    ),
    "high order": (
        {"order": ints(0, 7), "cu_seqlens": ints(0, 2)},
        "order must be in 0 to 5, got 7 at 1",
    ),
}


@pytest.mark.parametrize("name", SCAN)
def test_the_scan_rejects(name: str) -> None:
    changed, message = SCAN[name]
    with typecheck_off(), pytest.raises(ValueError, match=message):
        selective_scan(**scan_arguments() | changed)


@pytest.mark.parametrize("name", CONV)
def test_the_convolution_rejects(name: str) -> None:
    changed, message = CONV[name]
    with typecheck_off(), pytest.raises(ValueError, match=message):
        causal_conv1d(**conv_arguments() | changed)


@pytest.mark.gpu
def test_the_fused_scan_rejects_float64() -> None:
    arguments = {name: x.double().cuda() for name, x in scan_arguments().items()}
    arguments["cu_seqlens"] = arguments["cu_seqlens"].int()
    with pytest.raises(ValueError, match=r"u.dtype must be one of .* got torch.float64"):
        selective_scan(**arguments)


def test_good_arguments_pass() -> None:
    order = {"order": PERMUTED.int(), "scatter": True, "z": torch.ones(2, INNER)}
    assert selective_scan(**scan_arguments() | order).shape == (STEPS, INNER)
    order = {"order": ints(0, 5, 5), "cu_seqlens": ints(0, 3).int()}
    assert causal_conv1d(**conv_arguments() | order).shape == (3, INNER)


def test_values_are_not_looked_at_unless_asked_for() -> None:
    # The reference scans what the boundaries name, and leaves the rest at 0.
    early = {"cu_seqlens": ints(0, 4), "backend": "reference", "check": False}
    assert selective_scan(**scan_arguments() | early).shape == (STEPS, INNER)


def test_values_are_checked_where_it_costs_little(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(1, requires_grad=True)
    assert checks.are_values_checked(None, x)
    assert checks.are_values_checked(True, x, None)
    assert not checks.are_values_checked(False, x)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not checks.are_values_checked(None, x)
    assert not checks.are_values_checked(True, x)


@pytest.mark.gpu
def test_training_on_a_gpu_does_not_wait_for_values() -> None:
    x = torch.ones(1, device="cuda", requires_grad=True)
    assert not checks.are_values_checked(None, x)
    assert checks.are_values_checked(True, x)
    assert checks.are_values_checked(None, x.detach())
    with torch.no_grad():
        assert checks.are_values_checked(None, x)
