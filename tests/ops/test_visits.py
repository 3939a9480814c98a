import pytest
import torch
from torch import Tensor

from graphmamba.ops.visits import sum_visits


def expected(values: Tensor, visited: Tensor, rows: int) -> Tensor:
    return torch.zeros(rows, values.shape[1]).index_add(0, visited, values)


@pytest.mark.parametrize("inner", [1, 16, 35])
def test_repeated_rows_get_all_their_visits(inner: int) -> None:
    order, values = torch.tensor([4, 0, 4, 9, 4, 2]), torch.rand(6, inner)
    summed = sum_visits(values, order, 5, is_permutation=False)
    torch.testing.assert_close(summed, expected(values, order % 5, 5))


def test_samples_are_summed_slot_by_slot() -> None:
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    values = torch.rand(12, 3)
    by_slot = torch.empty_like(values).index_copy(0, order, values)
    summed = sum_visits(by_slot, order, 4, is_permutation=True)
    torch.testing.assert_close(summed, expected(values, order % 4, 4))


@pytest.mark.parametrize("is_permutation", [False, True])
def test_rows_without_visits_get_zero(is_permutation: bool) -> None:
    order = torch.empty(0, dtype=torch.long)
    summed = sum_visits(torch.empty(0, 3), order, 2, is_permutation=is_permutation)
    assert torch.equal(summed, torch.zeros(2, 3))
    assert sum_visits(torch.empty(0, 3), order, 0, is_permutation=is_permutation).shape == (0, 3)
