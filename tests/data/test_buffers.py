"""Memory is used again when nobody can see it any more, and not before."""

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from graphmamba.data.gather import SMALL, Buffers
from graphmamba.data.store import GraphStore
from tests.data.test_store import assert_equal, draw_graph, expected_batch

SIZE = (SMALL, 3)


def test_memory_of_a_tensor_that_is_gone_is_used_again() -> None:
    buffers = Buffers(torch.float32)
    first = buffers.take(SIZE)
    place = first.data_ptr()
    assert first.shape == SIZE
    del first
    again = buffers.take((SMALL - 7, 3))
    assert again.shape == (SMALL - 7, 3)
    assert again.dtype == torch.float32
    assert again.data_ptr() == place
    assert buffers.take((SMALL - 7, 3)).data_ptr() != place


def test_memory_that_is_too_small_is_not_used_again() -> None:
    buffers = Buffers(torch.int64)
    kept = buffers.take(SIZE)
    kept = buffers.take((2 * SMALL, 3)).fill_(7)
    other = buffers.take((2 * SMALL, 3)).fill_(8)
    assert kept.eq(7).all()
    assert other.eq(8).all()


def test_a_view_keeps_the_memory() -> None:
    buffers = Buffers(torch.int64)
    first = buffers.take(SIZE).fill_(7)
    place, view = first.data_ptr(), first[5:9].T
    del first
    second = buffers.take(SIZE).fill_(8)
    assert second.data_ptr() != place
    assert view.eq(7).all()
    del view
    assert buffers.take(SIZE).data_ptr() == place


def test_an_array_over_a_tensor_keeps_the_memory() -> None:
    buffers = Buffers(torch.int64)
    array = buffers.take(SIZE).fill_(7).numpy()[3:]
    buffers.take(SIZE).fill_(8)
    assert (array == 7).all()


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float64, torch.complex64])
def test_every_type_can_be_taken(dtype: torch.dtype) -> None:
    for size in (SIZE, (5, 3), (0,)):
        tensor = Buffers(dtype).take(size)
        assert (tensor.dtype, tensor.shape) == (dtype, size)


def test_memory_can_outlive_its_buffers() -> None:
    buffers = Buffers(torch.int64)
    tensor = buffers.take(SIZE).fill_(3)
    del buffers
    gc.collect()
    assert tensor.eq(3).all()


def test_threads_never_share_memory() -> None:
    buffers = Buffers(torch.int64)

    def is_left_alone(number: int) -> bool:
        return all(bool(buffers.take(SIZE).fill_(number).eq(number).all()) for _ in range(20))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(is_left_alone, range(8)))


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
