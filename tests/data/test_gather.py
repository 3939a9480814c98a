"""Every way to make a batch gives the same bits."""

import numpy as np
import pytest
import torch

from graphmamba.data import gather, static_batch
from graphmamba.data.gather import (
    DeviceGather,
    HostGather,
    Plan,
    make_gather,
    send,
)
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from tests.data.test_store import GRAPHS, assert_equal, draw_graph
from tests.helpers.processes import needs_triton, only_interpreted, run_apart

CPU = torch.device("cpu")
LARGE = [*GRAPHS, draw_graph(350, 1050, 8)]
"""The last has columns of more values than one program of the GPU's kernel writes."""
CHOICES = [[0], [5, 1, 2, 0], [2, 6], [7, 7, 5], list(range(9)), []]
FEW = [[7, 7, 2, 8], []]
"""Enough for a kernel that is interpreted, which takes seconds."""


def store_with(gather: type) -> GraphStore:
    """A store that makes its batches in a given way."""
    store = GraphStore.from_pyg(LARGE)
    vars(store)["_gather"] = gather(store.tables, CPU)
    return store


def assert_same_batches(gather: type, choices: list[list[int]]) -> None:
    ours, theirs = store_with(gather), GraphStore.from_pyg(LARGE)
    for ids in choices:
        chosen = torch.tensor(ids, dtype=torch.int64)
        for by_source in (False, True):
            batch = ours.batch(chosen, by_source)
            assert_equal(batch, theirs.batch(chosen, by_source))
            assert all(batch[name].is_contiguous() for name in batch.keys())  # noqa: SIM118


def test_torch_gives_the_bits_of_the_kernel() -> None:
    assert_same_batches(DeviceGather, CHOICES)


@pytest.mark.parametrize("wrong", [-1, len(LARGE), -(1 << 62)])
def test_torch_rejects_graphs_that_are_not_there(wrong: int) -> None:
    with pytest.raises(UserError, match=f"graphs 0 to {len(LARGE) - 1}, got {wrong}"):
        store_with(DeviceGather).batch(torch.tensor([0, wrong]))


@only_interpreted
def test_the_interpreted_kernel_of_the_gpu_gives_the_same_bits() -> None:
    run_apart(
        "from graphmamba.data.gather_triton import TritonGather\n"
        "from tests.data.test_gather import FEW, assert_same_batches\n"
        "assert_same_batches(TritonGather, FEW)\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("ids", CHOICES, ids=str)
def test_a_gpu_gives_the_same_bits(ids: list[int]) -> None:
    store, chosen = GraphStore.from_pyg(LARGE), torch.tensor(ids, dtype=torch.int64)
    assert_equal(store.to("cuda").batch(chosen, True).to("cpu"), store.batch(chosen, True))


@needs_triton
def test_both_kernels_mean_the_same_by_a_task() -> None:
    from graphmamba.data import gather_triton_kernels as kernels

    for name in ("REPEAT", "ADD", "OWNER"):
        assert getattr(kernels, name).value == getattr(gather, name)


@needs_triton
def test_columns_that_a_gpu_cannot_count_are_rejected() -> None:
    from graphmamba.data.gather_triton import BLOCK, pack

    jobs, most = np.array([[gather.COPY, 0, 4, 4, 0, 0]]), gather.MOST_VALUES
    none = np.zeros(1, np.int64)

    def programs(values: int) -> int:
        return pack(jobs, [0], Plan(none, none[None], np.array([[0, values // 4]])))[1]

    assert programs(most) * BLOCK < 1 << 31
    assert most + static_batch.BLOCK < 1 << 31
    with pytest.raises(UserError, match=f"ids must .* at most {most} values, got {most + 4}"):
        programs(most + 4)


def test_the_way_follows_from_the_device() -> None:
    tables = GraphStore.from_pyg(GRAPHS).tables
    chosen = make_gather(tables, CPU)
    assert isinstance(chosen, HostGather)
    assert isinstance(make_gather(tables, torch.device("meta")), DeviceGather)


@pytest.mark.gpu
def test_numbers_on_their_way_are_not_overwritten() -> None:
    device = torch.device("cuda")
    # The GPU is kept busy, so that copies have to wait; the numbers' memory is used again at once.
    busy = torch.rand(4096, 4096, device=device)
    for _ in range(20):
        busy = busy @ busy
        busy /= busy.max()
    sent = [send(np.full(1000, number), device) for number in range(200)]
    for number, found in enumerate(sent):
        assert (found == number).all(), number
