"""The sum over categories by kernels, held to PyTorch's lookup."""

import pytest
import torch
from torch import Tensor

from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY
from graphmamba.encode.categories import CategoryEncoder
from graphmamba.encode.category_sum import category_sum
from graphmamba.errors import UserError
from tests.helpers.processes import only_interpreted, run_apart
from tests.helpers.typecheck import typecheck_off

VOCABULARIES = {"atoms": ATOM_VOCABULARY, "bonds": BOND_VOCABULARY, "one": (3,)}
SHAPES = (
    (70, 40, "atoms"), (33, 96, "bonds"), (1, 5, "one"), (0, 8, "bonds"), (40, 130, "one"),
)  # fmt: skip


def draw(rows: int, channels: int, vocabulary: tuple[int, ...], device: str) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(rows)
    ends = torch.tensor(vocabulary)
    columns = (torch.rand(rows, len(vocabulary), generator=generator) * ends).long()
    weight = torch.randn(sum(vocabulary), channels, generator=generator)
    grad = torch.randn(rows, channels, generator=generator)
    offsets = ends.cumsum(0) - ends
    return tuple(each.to(device) for each in (columns, offsets, weight, grad))


def results(backend: str, dtype: torch.dtype, *drawn: Tensor) -> dict[str, Tensor]:
    columns, offsets, weight, grad = drawn
    leaf = weight.to(dtype).requires_grad_(True)
    out = category_sum(columns, offsets, leaf, backend=backend)  # type: ignore[arg-type]
    out.backward(grad.to(dtype))
    assert leaf.grad is not None
    return {"out": out.detach(), "grad": leaf.grad}


def assert_fused_is_as_exact_as_torch(device: str) -> None:
    for rows, channels, name in SHAPES:
        drawn = draw(rows, channels, VOCABULARIES[name], device)
        truth = results("reference", torch.float64, *drawn)
        plain = results("reference", torch.float32, *drawn)
        ours, again = (results("fused", torch.float32, *drawn) for _ in range(2))
        for part, exact in truth.items():
            error, allowed = ((each[part].double() - exact).abs().sum() for each in (ours, plain))
            assert error <= 2 * allowed + 1e-6 * exact.abs().sum(), (name, part)
            assert torch.equal(ours[part], again[part])


def assert_unknown_categories_are_loud() -> None:
    columns, offsets, weight, _ = draw(5, 8, (3, 4), "cpu")
    columns[2, 1] = 4
    out = category_sum(columns, offsets, weight, backend="fused")
    assert out[2].isnan().all()
    assert not out[[0, 1, 3, 4]].isnan().any()


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_torch() -> None:
    run_apart(
        "from tests.encode.test_category_sum import *\n"
        "assert_fused_is_as_exact_as_torch('cpu')\n"
        "assert_unknown_categories_are_loud()\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_a_gpu_is_as_exact_as_torch() -> None:
    assert_fused_is_as_exact_as_torch("cuda")


def test_the_encoder_adds_up_its_tables() -> None:
    encoder = CategoryEncoder((3, 4), 8)
    columns = torch.tensor([[2, 3], [0, 1]])
    expected = encoder.weight[columns[:, 0]] + encoder.weight[3 + columns[:, 1]]
    assert torch.allclose(encoder(columns), expected)


def test_an_unknown_backend_is_refused() -> None:
    columns, offsets, weight, _ = draw(5, 8, (3, 4), "cpu")
    with typecheck_off(), pytest.raises(UserError, match="backend must be one of"):
        category_sum(columns, offsets, weight, backend="cuda")  # type: ignore[arg-type]
