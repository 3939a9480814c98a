"""The rule by which a fast form is held to the definition, and poison for what it must write."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

Results = dict[str, Tensor]
on_each_device = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
)
in_both_directions = pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])


def max_error(value: Tensor, truth: Tensor) -> float:
    """The largest difference; of empty tensors 0."""
    assert value.shape == truth.shape
    return float((value.double() - truth.double()).abs().max()) if truth.numel() else 0.0


def assert_as_exact(ours: Results, plain: Results, truth: Results) -> None:
    """At most twice the error that plain PyTorch makes in the same type, and the last bits."""
    assert ours.keys() == plain.keys() == truth.keys()
    for name, expected in truth.items():
        # A float32 of that size cannot be told from one that is a few 1e-7 of it away.
        largest = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
        allowed = 2 * max_error(plain[name], expected) + 1e-6 * largest
        assert max_error(ours[name], expected) <= allowed, name


def assert_bit_equal(ours: Results, others: Results) -> None:
    """Equal to the last bit, NaN included."""
    assert ours.keys() == others.keys()
    for name, value in ours.items():
        torch.testing.assert_close(others[name], value, rtol=0, atol=0, equal_nan=True, msg=name)


def poison_allocations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill every fresh tensor of reals with NaN, so that what is not written shows."""

    def poisoned(allocate: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def allocate_poison(*arguments: Any, **options: Any) -> Tensor:
            tensor = allocate(*arguments, **options)
            return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

        return allocate_poison

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(torch, name, poisoned(getattr(torch, name)))
    monkeypatch.setattr(Tensor, "new_empty", poisoned(Tensor.new_empty))


def assert_bits_ignore_threads(compute: Callable[[], Results]) -> None:
    """Equal bits on repeats, whatever the number of threads."""
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 2, 5):
            torch.set_num_threads(count)
            results.append(compute())
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert_bit_equal(results[0], other)
