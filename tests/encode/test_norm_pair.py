"""Which pairs of norms kernels do at once, and that such a pair is the two norms."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

from graphmamba.encode.norm import BatchNorm
from graphmamba.encode.norm_pair import pair_of
from tests.helpers.processes import only_interpreted, run_apart

ROWS = torch.zeros(5, 4)


@pytest.fixture(autouse=True)
def _can_be_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels may be asked for on a CPU; none of these tests runs one in its own process."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def norms(backend: str = "fused") -> tuple[BatchNorm, BatchNorm]:
    """Two of them, told apart by their numbers."""
    torch.manual_seed(0)
    both = BatchNorm(4), BatchNorm(4)
    for number, norm in enumerate(both):
        norm.backend, norm.site = backend, number  # type: ignore[assignment]
        norm.weight.data.uniform_()
        norm.bias.data.normal_()
    return both


@dataclass(frozen=True)
class Stranger:
    """What is not a pair, and why."""

    backend: str = "fused"
    is_training: bool = True
    is_synced: bool = False
    second: nn.Module | None = None


def test_two_batch_norms_of_kernels_are_a_pair() -> None:
    first, second = norms()
    pair = pair_of(first, second, ROWS, ROWS)
    assert pair is not None
    assert pair.first is first
    assert pair.second is second


@pytest.mark.parametrize(
    "stranger",
    [
        Stranger(backend="reference"),
        # Rows of a CPU, where no kernel runs unless it is asked for.
        Stranger(backend="auto"),
        Stranger(is_training=False),
        Stranger(second=nn.LayerNorm(4)),
        Stranger(second=nn.Identity()),
    ],
    ids=["reference", "cpu", "one is frozen", "another norm", "no norm"],
)
def test_others_run_one_after_the_other(stranger: Stranger) -> None:
    first, second = norms()
    second.backend = stranger.backend  # type: ignore[assignment]
    second.train(stranger.is_training)
    assert pair_of(first, stranger.second or second, ROWS, ROWS) is None


def test_norms_over_processes_run_one_after_the_other() -> None:
    first, second = norms("auto")
    first.is_synced = second.is_synced = True
    assert pair_of(first, second, ROWS, ROWS) is None


def test_compilers_see_both_norms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert pair_of(*norms(), ROWS, ROWS) is None


def assert_a_pair_is_both_norms(is_training: bool, has_seed: bool) -> None:
    """Output, and what the norms remember; without a seed the generator draws the same one."""
    a, b, before = torch.randn(3, 40, 4)
    seed = torch.tensor(5) if has_seed else None
    found = []
    for backend in ("reference", "fused"):
        first, second = (norm.train(is_training) for norm in norms(backend))
        torch.manual_seed(1)
        if backend == "fused":
            pair = pair_of(first, second, a, b)
            assert pair is not None
            out = pair(a, b, torch.tensor(37), before=before, rate=0.4, seed=seed)
        else:
            near = first(a, torch.tensor(37))
            out = second(
                *(b, torch.tensor(37)), before=before, after=near, rate_before=0.4, seed=seed
            )
        found.append([out.detach(), *first.buffers(), *second.buffers()])
    for ours, plain in zip(*reversed(found), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-6)


@only_interpreted
def test_a_pair_is_both_norms() -> None:
    run_apart(
        "from tests.encode.test_norm_pair import *\n"
        "for is_training in (True, False):\n"
        "    for has_seed in (True, False):\n"
        "        assert_a_pair_is_both_norms(is_training, has_seed)\n",
        TRITON_INTERPRET="1",
    )
