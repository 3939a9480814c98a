"""The batch norm with its neighbours: the module and the kernels against the definition."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed, nn
from torch.nn import functional

from graphmamba.errors import UserError
from graphmamba.nn.norm import BatchNorm, sync_norms
from graphmamba.ops.activation import Activation
from graphmamba.ops.backends import TritonBackend
from graphmamba.ops.batch_norm import Drop, Running, batch_norm_act
from graphmamba.ops.dropout import dropped
from tests.helpers.agreement import Results, assert_as_exact, assert_bit_equal, max_error
from tests.helpers.processes import run_apart

SEED = torch.tensor(77)
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu, "gelu": functional.gelu, "none": lambda rows: rows
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Everything that decides a call, but for the numbers."""

    rows: int
    channels: int = 5
    has_before: bool = False
    has_after: bool = False
    activation: Activation = "none"
    rates: tuple[float, float] = (0.0, 0.0)
    count: int | None = None
    is_training: bool = True
    shift: float = 0.0
    """Mean of the rows in standard deviations, which costs digits."""


SMALL = {
    "bare": Case(70),
    "message passing": Case(70, 35, has_after=True, activation="relu", rates=(0.0, 0.3)),
    "layer": Case(140, 3, has_before=True, rates=(0.2, 0.0)),
    "everything": Case(131, 33, True, True, "gelu", (0.1, 0.5), count=100),
    "without drops": Case(66, 4, True, True, "relu", count=65),
    "evaluation": Case(70, 4, True, True, "relu", is_training=False),
    "evaluation with padding graphs": Case(70, 4, False, True, "gelu", count=3, is_training=False),
    "far from zero": Case(200, 3, shift=300.0, count=150),
    "two rows": Case(2, 4, activation="relu"),
    "one row": Case(1, 4, has_after=True),
    "one real row": Case(70, 4, True, True, count=1),
    "padding graphs alone": Case(70, 4, True, True, "relu", count=0),
    "no rows": Case(0, 4, has_before=True, rates=(0.5, 0.5)),
    "several programs": Case(300, 3, has_after=True, activation="relu", count=260),
}
LARGE = {
    "nodes": Case(21_000, 96, has_before=True, has_after=True, rates=(0.1, 0.0), count=20_001),
    "edges": Case(195_000, 64, has_after=True, activation="relu", rates=(0.0, 0.1)),
    "far": Case(43_000, 96, has_after=True, activation="relu", shift=100.0),
}


def draw(case: Case) -> dict[str, Tensor]:
    """Numbers of the order of one, poisoned where nobody may look."""
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        # Rounded here, so that the truth starts from the same numbers as what it judges.
        return torch.randn(shape, generator=generator).double().float().double()

    shape = case.rows, case.channels
    drawn = {
        "x": normal(*shape) + case.shift,
        "weight": 1 + 0.3 * normal(case.channels),
        "bias": 0.3 * normal(case.channels),
        "before": normal(*shape),
        "after": normal(*shape),
        "grad": normal(*shape),
        "mean": 0.2 * normal(case.channels),
        "variance": 1 + 0.5 * normal(case.channels).abs(),
    }
    drawn = {name: values.float().double() for name, values in drawn.items()}
    if case.count is not None:
        for name in ("x", "before"):
            drawn[name][case.count :] = torch.nan
    return drawn


def compute(
    case: Case, backend: str, dtype: torch.dtype, device: str = "cpu", rows: int | None = None
) -> Results:
    """Output, gradients and running statistics, of the first `rows` alone if given."""
    drawn = {name: values.to(device, dtype) for name, values in draw(case).items()}
    if rows is not None:
        drawn = {n: values[:rows] if values.dim() == 2 else values for n, values in drawn.items()}
    grad, mean, variance = (drawn.pop(name) for name in ("grad", "mean", "variance"))
    if not case.has_before:
        del drawn["before"]
    if not case.has_after:
        del drawn["after"]
    running = Running(mean, variance, torch.tensor(3, device=device), momentum=0.3)
    leaves = {name: values.requires_grad_() for name, values in drawn.items()}
    key = torch.tensor(-123456789123456789, device=device)
    out = batch_norm_act(
        **leaves,
        running=running,
        activation=case.activation,
        drop_before=Drop(case.rates[0], key, 6),
        drop_after=Drop(case.rates[1], key, 7),
        is_training=case.is_training,
        count=None
        if rows is not None or case.count is None
        else torch.tensor(case.count, device=device),
        backend=backend,
    )
    out.backward(grad)
    gradients = {f"d_{name}": values.grad for name, values in leaves.items()}
    found = {
        "y": out.detach(), **gradients, "mean": mean, "variance": variance,
        "batches": running.batches,
    }  # fmt: skip
    assert all(each is not None for each in found.values())
    return {name: values.cpu() for name, values in found.items()}


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
def test_padding_does_not_count(name: str) -> None:
    case = SMALL[name]
    count = case.count or 0
    padded = compute(case, "reference", torch.float64)
    # Without the padding, whose rows of x and before are NaN.
    for key, value in compute(case, "reference", torch.float64, rows=count).items():
        real = padded[key][:count] if key in {"y", "d_x", "d_before", "d_after"} else padded[key]
        assert max_error(real, value) < 1e-10, key
    assert not padded["d_x"][count:].any()
    assert not padded["y"].isnan().any()


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


ROWS = 20, 11


def rows_of_processes() -> tuple[Tensor, Tensor]:
    torch.manual_seed(0)
    return torch.randn(sum(ROWS), 3, dtype=torch.float64), torch.randn(sum(ROWS), 3).double()


def normalise_in_one_process(rank: int, folder: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
    )
    norm = nn.Sequential(BatchNorm(3)).double()
    sync_norms(norm)
    x, grad = (part.split(ROWS)[rank] for part in rows_of_processes())
    x = x.clone().requires_grad_()
    # The second process has padding behind its rows.
    padding = torch.full((4 * rank, 3), torch.nan, dtype=torch.float64)
    count = torch.tensor(ROWS[1]) if rank else None
    out = norm[0](torch.cat([x, padding]), count)[: ROWS[rank]]
    out.backward(grad)
    result = {"y": out.detach(), "dx": x.grad, **dict(norm.named_buffers())}
    save_file({name: values.contiguous() for name, values in result.items()}, f"{folder}/{rank}")
    distributed.destroy_process_group()


def check_processes() -> None:
    """Two processes that normalise together, against one that has all rows."""
    norm = nn.Sequential(BatchNorm(3)).double()
    x, grad = rows_of_processes()
    x.requires_grad_()
    out = norm(x)
    out.backward(grad)
    os.environ["OMP_NUM_THREADS"] = "1"
    with TemporaryDirectory() as folder:
        mp.spawn(normalise_in_one_process, (folder,), nprocs=2)
        parts = [load_file(Path(folder) / str(rank)) for rank in range(2)]
    for name, value in {"y": out.detach(), "dx": x.grad}.items():
        torch.testing.assert_close(torch.cat([part[name] for part in parts]), value)
    for part in parts:
        for name, buffer in norm.named_buffers():
            torch.testing.assert_close(part[name], buffer)


def test_processes_normalise_together() -> None:
    run_apart(
        "from tests.ops.test_batch_norm import check_processes\n"
        "if __name__ == '__main__':\n"
        "    check_processes()\n",
        PYTHONWARNINGS="error::FutureWarning",
    )


def check_rows_that_are_too_large(backend: TritonBackend) -> None:
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


def check_kernels(case: Case, device: str = "cpu", is_repeated: bool = True) -> None:
    """As exact as plain PyTorch, and the same bits again."""
    truth = compute(case, "reference", torch.float64)
    plain = compute(case, "reference", torch.float32)
    ours = compute(case, "triton", torch.float32, device)
    assert_as_exact(ours, plain, truth)
    if is_repeated:
        assert_bit_equal(ours, compute(case, "triton", torch.float32, device))


def check_types(device: str = "cpu") -> None:
    """Rows of several types: the output has the type of their sum, gradients have their own."""
    for types in product((torch.float32, torch.bfloat16), repeat=3):
        found = []
        for backend in ("reference", "triton"):
            generator = torch.Generator().manual_seed(0)
            x, before, after = (
                torch.randn(70, 20, generator=generator).bfloat16().to(device, each)
                for each in types
            )
            leaves = [each.requires_grad_() for each in (x, before, after)]
            ones = [torch.ones(20, device=device) for _ in range(4)]
            out = batch_norm_act(
                *(x, *ones[:2], Running(*ones[2:])), before=before, after=after, backend=backend
            )
            assert out.dtype == (torch.float32 if torch.float32 in types else torch.bfloat16)
            out.backward(torch.randn(70, 20, generator=generator).to(device, out.dtype))
            assert all(each.grad.dtype == each.dtype for each in leaves)
            found.append([out.detach(), *(each.grad for each in leaves)])
        for ours, plain in zip(*reversed(found), strict=True):
            torch.testing.assert_close(ours.float(), plain.float(), rtol=2e-2, atol=2e-2)


def check_interpreted() -> None:
    triton = import_module("graphmamba.ops.batch_norm.triton")
    for case in SMALL.values():
        check_kernels(case, is_repeated=False)
    with pytest.MonkeyPatch.context() as patch:
        few = triton.Tile(rows=16, programs=4)
        others = triton.Tile(rows=32, programs=6), few, triton.Tile(rows=8, programs=8)
        patch.setattr(triton, "TILES", triton.Tiles(few, *others))
        for name in ("several programs", "everything"):
            check_kernels(SMALL[name])
    check_types()
    check_rows_that_are_too_large("triton")


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*SMALL, *LARGE])
def test_kernels_are_as_exact_as_the_reference(name: str) -> None:
    check_kernels((SMALL | LARGE)[name], "cuda")


@pytest.mark.gpu
def test_kernels_promote_types_as_the_reference_does() -> None:
    check_types("cuda")


@pytest.mark.parametrize(
    ("dtype", "is_synced", "told"),
    [(torch.float64, False, "rows of torch.float64"), (torch.float32, True, "over processes")],
)
def test_what_the_kernels_cannot_do_is_rejected_and_not_done_otherwise(
    dtype: torch.dtype, is_synced: bool, told: str
) -> None:
    ones = [torch.ones(3, dtype=dtype) for _ in range(4)]
    with pytest.raises(UserError, match=rf"backend must be .* for .*{told}, got 'triton'"):
        batch_norm_act(
            *(torch.ones(2, 3, dtype=dtype), *ones[:2], Running(*ones[2:])),
            backend="triton",
            is_synced=is_synced,
        )
