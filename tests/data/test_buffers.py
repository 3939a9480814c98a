"""Memory is used again when nobody can see it any more, and not before."""

import gc

import pytest
import torch

from graphmamba.data.buffers import SMALL, Buffers
from graphmamba.data.store import GraphStore
from tests.data.test_store import assert_equal, draw_graph, expected_batch

SIZE = (SMALL, 3)


def test_memory_of_a_tensor_that_is_gone_is_used_again() -> None:
    buffers = Buffers()
    first = buffers.take("x", SIZE, torch.float32)
    place = first.data_ptr()
    assert first.shape == SIZE
    del first
    smaller = buffers.take("x", (SMALL - 7, 3), torch.int64)
    assert smaller.data_ptr() != place
    again = buffers.take("x", (SMALL - 7, 3), torch.float32)
    assert again.dtype == torch.float32
    assert again.data_ptr() != smaller.data_ptr()


def test_a_view_keeps_the_memory() -> None:
    buffers = Buffers()
    first = buffers.take("x", SIZE, torch.int64).fill_(7)
    place, view = first.data_ptr(), first[5:9].T
    del first
    second = buffers.take("x", SIZE, torch.int64).fill_(8)
    assert second.data_ptr() != place
    assert view.eq(7).all()
    del view
    assert buffers.take("x", SIZE, torch.int64).data_ptr() == place


def test_other_columns_have_other_memory() -> None:
    buffers = Buffers()
    place = buffers.take("x", SIZE, torch.int64).data_ptr()
    assert buffers.take("y", SIZE, torch.int64).data_ptr() != place
    assert buffers.take("x", SIZE, torch.int64).data_ptr() == place


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64, torch.complex64])
def test_every_type_can_be_taken(dtype: torch.dtype) -> None:
    tensor = Buffers().take("x", SIZE, dtype)
    assert (tensor.dtype, tensor.shape) == (dtype, SIZE)


def test_memory_can_outlive_its_buffers() -> None:
    buffers = Buffers()
    tensor = buffers.take("x", SIZE, torch.int64).fill_(3)
    del buffers
    gc.collect()
    assert tensor.eq(3).all()


def test_batches_in_use_stay_as_they_are() -> None:
    graphs = [draw_graph(3000, 9000, seed) for seed in range(4)]
    store = GraphStore.from_pyg(graphs)
    choices = [[0, 1, 2], [3, 1, 0], [2, 2, 3], [1, 0, 3]]
    kept = [store.batch(torch.tensor(choices[0]))]
    for ids in choices[1:]:
        store.batch(torch.tensor([3, 2, 1, 0]))
        kept.append(store.batch(torch.tensor(ids)))
    for batch, ids in zip(kept, choices, strict=True):
        assert_equal(batch, expected_batch(graphs, ids))
