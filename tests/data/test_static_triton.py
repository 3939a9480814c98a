"""The kernels that make static batches give the bits of the definition."""

from copy import deepcopy

import pytest
import torch
from torch_geometric.data import Data

from graphmamba.data import static_batch
from graphmamba.data.edges import edge_begins
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize
from graphmamba.data.store import GraphStore
from tests.data.test_static_batch import CASES, SETS, same, size_for, store_of
from tests.helpers.processes import needs_triton, only_interpreted, run_apart

ADDRESS = 4
"""Column of the jobs with the address that is read from."""


def odd_store() -> GraphStore:
    """Labels and columns of two bytes, of one value for each graph, of none, and no edges."""
    graphs = []
    for nodes in (3, 5):
        graph = Data(x=torch.full((nodes, 3), float(nodes)), num_nodes=nodes)
        graph.edge_index = torch.empty(2, 0, dtype=torch.int64)
        graph.edge_attr = torch.empty(0, 2)
        graph.y = torch.rand(nodes, 2).bfloat16()
        graph.mark = torch.arange(nodes).int()[:, None].expand(nodes, 70)
        graph.flag = torch.tensor([[True, False, True]] * nodes)
        graphs.append(graph)
    return GraphStore.from_pyg(graphs)


def assert_triton_gives_the_same_bits(store: GraphStore, ids: list[int], size: StaticSize) -> None:
    from graphmamba.data.gather_triton import TritonStatic

    here = store.to("cpu")
    gather = TritonStatic(store.tables, edge_begins(store.tables, store.device), store.device)
    for by_source in (True, False):
        truth = StaticGather(here).batch(torch.tensor(ids), size, by_source)
        given = torch.tensor(ids, device=store.device)
        for made in (gather.columns(given, size, by_source) for _ in range(2)):
            assert set(made) == set(truth.keys())
            for name, column in made.items():
                assert same(column.cpu(), truth[name]), name
                assert column.is_contiguous(), name


def assert_interpreted_kernels_give_the_same_bits() -> None:
    for case in ("empty places", "fewer padding edges than padding nodes"):
        store = store_of("pcqm-contact")
        ids, size = CASES[case]
        assert_triton_gives_the_same_bits(store, ids, size_for(store, size))
    for name in ("malnet-tiny", "pattern"):
        store = store_of(name)
        ids, size = CASES["full"]
        assert_triton_gives_the_same_bits(store, ids, size_for(store, size))
    assert_triton_gives_the_same_bits(store, [-1, -1], size_for(store, StaticSize(2, 5, 7, (9,))))
    assert_triton_gives_the_same_bits(odd_store(), [1, -1], StaticSize(2, 20, 6))


@only_interpreted
def test_interpreted_kernels_give_the_same_bits() -> None:
    run_apart(
        "from tests.data.test_static_triton import assert_interpreted_kernels_give_the_same_bits\n"
        "assert_interpreted_kernels_give_the_same_bits()\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", SETS)
def test_a_gpu_gives_the_same_bits(name: str, case: str) -> None:
    store = store_of(name)
    ids, size = CASES[case]
    assert_triton_gives_the_same_bits(store.to("cuda"), ids, size_for(store, size))


@pytest.mark.gpu
def test_a_gpu_copes_with_odd_columns() -> None:
    assert_triton_gives_the_same_bits(odd_store().to("cuda"), [1, -1], StaticSize(2, 20, 6))


@needs_triton
def test_kernel_and_jobs_mean_the_same_by_a_task() -> None:
    from graphmamba.data import static_batch_triton_kernels as kernels

    for name in ("REPEAT", "PAIRS", "ORDER", "BEGIN", "OWNER"):
        assert getattr(kernels, name).value == getattr(static_batch, name)


@needs_triton
def test_a_copy_reads_its_own_columns() -> None:
    gather = StaticGather(store_of("pcqm-contact"))
    theirs = gather._triton._jobs[:, ADDRESS].tolist()
    ours = deepcopy(gather)._triton._jobs[:, ADDRESS].tolist()
    # the place of each row's graph is read from nowhere
    assert not (set(ours) & set(theirs)) - {0}
