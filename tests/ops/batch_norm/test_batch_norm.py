"""The definition of the batch norm with its neighbours, and the module around it."""

from collections.abc import Callable

import pytest
import torch
from graphmamba.ops.fusing import FusedBackend
from torch import Tensor, nn
from torch.nn import functional

from graphmamba.errors import UserError
from graphmamba.nn.norm import BatchNorm
from graphmamba.ops.batch_norm import Drop, Running, batch_norm_act
from graphmamba.ops.dropout import dropped
from tests.helpers.agreement import assert_as_exact, max_error
from tests.helpers.norm_calls import SMALL, Case, compute
from tests.helpers.processes import only_interpreted, run_apart

SEED = torch.tensor(77)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu, "gelu": functional.gelu, "none": lambda rows: rows
}  # fmt: skip


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("training", [True, False])
def test_it_is_pytorchs_norm_between_its_neighbours(activation: str, training: bool) -> None:
    torch.manual_seed(0)
    theirs, ours = (module(6).train(training) for module in (nn.BatchNorm1d, BatchNorm))
    x, before, after = torch.randn(3, 40, 6)
    found = batch_norm_act(
        *(x, ours.weight, ours.bias, ours.running()),
        before=before,
        after=after,
        activation=activation,
        drop_before=Drop(0.2, SEED, 0),
        drop_after=Drop(0.4, SEED, 1),
        is_training=training,
    )
    expected = ACTIVATIONS[activation](theirs(before + dropped(x, Drop(0.2, SEED, 0))))
    expected = after + dropped(expected, Drop(0.4, SEED, 1))
    assert torch.allclose(found, expected, atol=1e-6)
    for name, buffer in theirs.named_buffers():
        assert torch.allclose(ours.get_buffer(name), buffer), name


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("count", [None, 25])
def test_the_module_is_pytorchs_norm_of_the_real_rows(count: int | None, training: bool) -> None:
    theirs, ours = (module(6).train(training) for module in (nn.BatchNorm1d, BatchNorm))
    x = torch.randn(40, 6)
    found = ours(x, None if count is None else torch.tensor(count))
    assert torch.allclose(found[:count], theirs(x[:count]), atol=1e-6)
    assert not found[40 if count is None else count :].any()
    for name, buffer in theirs.named_buffers():
        assert torch.allclose(ours.get_buffer(name), buffer, atol=1e-6), name


@pytest.mark.parametrize("name", [name for name, case in SMALL.items() if case.count is not None])
def test_ghosts_do_not_count(name: str) -> None:
    case = SMALL[name]
    count = case.count or 0
    padded = compute(case, "reference", torch.float64)
    # Without the ghosts, whose rows of x and before are NaN.
    alone = compute_first(case, count)
    for key, value in alone.items():
        real = padded[key][:count] if key in {"y", "d_x", "d_before", "d_after"} else padded[key]
        assert max_error(real, value) < 1e-10, key
    assert torch.equal(padded["d_x"][count:], torch.zeros_like(padded["d_x"][count:]))
    assert not padded["y"].isnan().any()


def compute_first(case: Case, count: int) -> dict[str, Tensor]:
    """The same call with the real rows alone."""
    from tests.helpers import norm_calls

    drawn = norm_calls.draw(case)
    shorter = {
        name: values[:count] if values.dim() == 2 else values for name, values in drawn.items()
    }
    original, norm_calls.draw = norm_calls.draw, lambda *_: shorter
    try:
        bare = Case(count, case.channels, case.has_before, case.has_after, case.activation,
                    case.rates, None, case.is_training)  # fmt: skip
        return compute(bare, "reference", torch.float64)
    finally:
        norm_calls.draw = original


@pytest.mark.parametrize("count", [None, 5])
def test_gradients_are_those_of_finite_differences(count: int | None) -> None:
    torch.manual_seed(0)
    leaves = [torch.randn(7, 3).double().requires_grad_() for _ in range(3)]
    weights = [torch.randn(3).double().requires_grad_() for _ in range(2)]

    def call(x: Tensor, before: Tensor, after: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return batch_norm_act(
            *(x, weight, bias, Running(torch.zeros(3).double(), torch.ones(3).double())),
            before=before,
            after=after,
            activation="gelu",
            drop_before=Drop(0.3, SEED, 0),
            drop_after=Drop(0.3, SEED, 1),
            count=None if count is None else torch.tensor(count),
        )

    assert torch.autograd.gradcheck(call, (*leaves, *weights))


def test_the_masked_path_is_as_exact_as_pytorchs() -> None:
    whole = Case(500, 7, True, True, "relu", shift=30.0)
    masked = Case(500, 7, True, True, "relu", shift=30.0, count=500)
    truth = compute(whole, "reference", torch.float64)
    plain = compute(whole, "reference", torch.float32)
    assert_as_exact(compute(masked, "reference", torch.float32), plain, truth)


@pytest.mark.parametrize("is_training", [True, False])
def test_a_mean_far_from_zero_costs_no_digits(is_training: bool) -> None:
    rows, after = torch.randn(2, 300, 4, generator=torch.Generator().manual_seed(0)).double()
    # the second channel is thousands of deviations off, the third nearly constant
    rows = (rows * torch.tensor([1, 1, 1e-3, 1]) + torch.tensor([0, 1e4, 10, 1])).float()
    found = {}
    for dtype in (torch.float32, torch.float64):
        x = rows.to(dtype, copy=True).requires_grad_()
        norm = BatchNorm(4).to(dtype)
        norm.running_mean.copy_(rows.mean(dim=0))
        norm.running_var.copy_(rows.double().var(dim=0))
        norm.train(is_training)
        y = norm(x)
        (grad,) = torch.autograd.grad(y, x, after.to(dtype))
        found[dtype] = [y.detach(), grad, norm.running_mean, norm.running_var]
    for short, exact in zip(*found.values(), strict=True):
        torch.testing.assert_close(short.double(), exact, rtol=2e-5, atol=2e-5)


def test_processes_normalise_together() -> None:
    run_apart(
        "from tests.ops.batch_norm.processes import compare\n"
        "if __name__ == '__main__':\n"
        "    compare()\n",
        PYTHONWARNINGS="error::FutureWarning",
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"before": torch.zeros(3, 4)}, r"before must have shape \[5, 4\].*got \[3, 4\]"),
        ({"drop_after": Drop(1.0, SEED, 0)}, r"drop_after.rate must be in \[0, 1\), got 1.0"),
        ({"backend": "fused"}, "backend must be 'reference' for torch.float64"),
    ],
)
def test_refusals_name_the_argument(change: dict[str, object], message: str) -> None:
    from tests.helpers.typecheck import typecheck_off

    rows = torch.zeros(5, 4, dtype=torch.float64)
    ones = torch.ones(4)
    with typecheck_off(), pytest.raises(UserError, match=message):
        batch_norm_act(rows, ones, ones, Running(ones.clone(), ones.clone()), **change)


def check_rows_that_are_too_large(backend: FusedBackend) -> None:
    """A channel whose squares are not finite is not remembered, nor are others forgotten."""
    for count in (None, torch.tensor(30)):
        norm, rows = BatchNorm(4), torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
        rows[:, 1], rows[3, 2] = 1e25 * rows[:, 0], torch.nan
        before = norm.running_mean.clone(), norm.running_var.clone()
        parts = norm.weight, norm.bias, norm.running()
        batch_norm_act(rows, *parts, count=count, backend=backend)
        moved = [
            now != then
            for now, then in zip((norm.running_mean, norm.running_var), before, strict=True)
        ]
        assert [each.tolist() for each in moved] == [[True, False, False, True]] * 2
        assert norm.num_batches_tracked == 1
        assert norm.eval()(rows.nan_to_num(), count).isfinite().all()


def test_rows_that_are_too_large_are_not_remembered() -> None:
    check_rows_that_are_too_large("reference")


@only_interpreted
def test_kernels_do_not_remember_rows_that_are_too_large() -> None:
    run_apart(
        "from tests.ops.batch_norm.test_batch_norm import *\n"
        "check_rows_that_are_too_large('fused')\n",
        TRITON_INTERPRET="1",
    )
