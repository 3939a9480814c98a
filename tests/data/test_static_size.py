"""The few sizes that all batches of a set are padded to."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmamba.data.sampler import BatchSampler
from graphmamba.data.static_size import StaticSizes
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError


def store_of(nodes: np.ndarray, edges: np.ndarray) -> GraphStore:
    return GraphStore.from_pyg(
        [
            Data(x=torch.zeros(int(n), 1), edge_index=torch.zeros(2, int(m), dtype=torch.int64))
            for n, m in zip(nodes, edges, strict=True)
        ]
    )


def uneven_store(count: int = 300) -> GraphStore:
    """Sizes that vary as those of MalNet-Tiny, edges not quite in step with nodes."""
    random = np.random.default_rng(0)
    nodes = np.minimum(random.lognormal(4.5, 0.9, count), 500).astype(int) + 5
    return store_of(nodes, (nodes * random.uniform(1.0, 3.0, count)).astype(int))


def test_every_batch_finds_a_size_that_holds_it_and_little_more() -> None:
    store = uneven_store()
    sizes = StaticSizes.for_graphs(store, torch.arange(len(store)), 16)
    assert len(sizes.sizes) <= 8
    used, made = np.zeros(2), np.zeros(2)
    for ids in BatchSampler(torch.arange(len(store)), 16, seed=7):
        size = sizes.choose(ids)
        rows = sizes.counts[ids.numpy()].sum(axis=0)
        assert rows[0] < size.nodes
        assert rows[1] <= size.edges
        used += rows
        made += np.array([size.nodes, size.edges])
    # 19 batches of very uneven graphs
    assert (made / used < 1.15).all()


def test_the_last_size_holds_even_the_largest_graphs() -> None:
    store = uneven_store()
    sizes = StaticSizes.for_graphs(store, torch.arange(len(store)), 4)
    counts = torch.from_numpy(sizes.counts)
    largest = sizes.choose(counts[:, 0].argsort()[-4:])
    assert largest == sizes.sizes[-1]
    assert largest.nodes > counts[:, 0].sort().values[-4:].sum()


def test_blocks_hold_nearly_every_batch_and_those_of_the_last_size_any() -> None:
    store = uneven_store(3000)
    sizes = StaticSizes.for_graphs(store, torch.arange(3000), 32)
    usual, most = sizes.sizes[0].blocks, sizes.sizes[-1].blocks
    rows = [sum(graphs * nodes**2 for graphs, nodes in blocks) for blocks in (usual, most)]
    assert rows[0] < rows[1] / 2
    chosen = [sizes.choose(ids).blocks for ids in BatchSampler(torch.arange(3000), 32, seed=7)]
    assert sum(blocks == usual for blocks in chosen) >= 0.97 * len(chosen)
    # Of few rows, but larger than graphs of their place usually are.
    largest = torch.from_numpy(sizes.counts[:, 0]).argsort()[-9:]
    found = sizes.choose(largest)
    assert found.blocks == most
    assert found.nodes < sizes.sizes[-1].nodes


def test_a_graph_longer_than_all_of_the_set_is_rejected() -> None:
    store = store_of(np.array([10, 10, 10, 10, 50]), np.full(5, 5))
    sizes = StaticSizes.for_graphs(store, torch.arange(4), 4)
    with pytest.raises(UserError, match="at most 50 nodes in one"):
        sizes.choose(torch.tensor([4]))


def test_batches_that_are_alike_share_one_size() -> None:
    store = store_of(np.full(8, 10), np.full(8, 20))
    sizes = StaticSizes.for_graphs(store, torch.arange(8), 4)
    assert [(size.graphs, size.nodes, size.edges) for size in sizes.sizes] == [(4, 64, 128)]


def test_few_batches_get_a_size_each() -> None:
    store = store_of(np.array([100, 300, 600]), np.array([600, 300, 100]))
    sizes = StaticSizes.for_batches(store, torch.arange(3).split(1))
    assert {(size.nodes, size.edges) for size in sizes.sizes} == {
        (128, 640), (320, 320), (640, 128), (640, 640)
    }  # fmt: skip


def test_short_batches_are_filled_up_with_empty_places() -> None:
    sizes = StaticSizes.for_graphs(uneven_store(), torch.arange(300), 4)
    padded = sizes.padded(torch.tensor([5, 7]))
    assert padded.tolist() == [5, 7, -1, -1]
    assert sizes.choose(padded) == sizes.choose(torch.tensor([5, 7]))


def test_too_many_graphs_are_rejected() -> None:
    store = uneven_store()
    sizes = StaticSizes.for_graphs(store, torch.arange(300), 4)
    with pytest.raises(UserError, match="at most 4 graphs, got 5"):
        sizes.padded(torch.arange(5))
    with pytest.raises(UserError, match="ids must fit into"):
        sizes.choose(torch.arange(300))
