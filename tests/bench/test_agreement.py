from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphmamba import scan
from graphmamba.bench.agreement import check_backends

CPU = torch.device("cpu")


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_backend_here_is_as_exact_as_the_reference(device: str) -> None:
    agreements = check_backends(torch.device(device))
    fast = {name for name in scan.available_backends(torch.device(device)) if name != "reference"}
    assert {(one.operation, one.backend) for one in agreements} == {
        (operation, backend)
        for operation in ("causal_conv1d", "selective_scan")
        for backend in fast
    }
    assert all(one.holds for one in agreements), agreements


def with_gradient_times(factor: float) -> Callable[[Tensor], Tensor]:
    """Leave the value as it is."""
    return lambda x: factor * x + (1 - factor) * x.detach()


@pytest.mark.parametrize(
    ("change", "argument", "worst"),
    [
        (lambda x: x * (1 + 1e-3), "u", None),
        (with_gradient_times(1.001), "B", "B"),
        (with_gradient_times(torch.nan), "D", "out"),
    ],
    ids=["value", "gradient", "nan"],
)
def test_a_wrong_backend_is_found(
    change: Callable[[Tensor], Tensor],
    argument: str,
    worst: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right, conv = scan.selective_scan, scan.causal_conv1d

    def wrong(*, backend: str, **arguments: Tensor) -> Tensor:
        if backend == "broken":
            arguments[argument] = change(arguments[argument])
        return right(backend="reference", **arguments)

    monkeypatch.setattr(scan, "selective_scan", wrong)
    monkeypatch.setattr(
        scan, "causal_conv1d", lambda **arguments: conv(**{**arguments, "backend": "reference"})
    )
    monkeypatch.setattr(scan, "available_backends", lambda _: ("reference", "broken"))
    untouched, found = check_backends(CPU)
    assert untouched.holds
    assert not found.holds
    assert worst in {None, found.worst}
