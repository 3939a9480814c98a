"""Neighbours that are drawn are those of the graph, and all edges among nodes are there."""

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from graphmamba.data.custom.options import DataOptions
from graphmamba.data.neighbor_sampling import NeighbourStore
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import LINKS, Pairs
from graphmamba.errors import UserError
from graphmamba.training.experiment import experiment_of
from graphmamba.training.graphs import take_graphs

NODES = 80


def random_store() -> tuple[GraphStore, torch.Tensor]:
    """A graph with a node that all are joined with, nodes alone, loops and repeated edges."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(NODES - 5, (2, 200), generator=generator)
    hub = torch.stack([torch.arange(30), torch.zeros(30, dtype=torch.int64)])
    edges = torch.cat([edges, edges[:, :9], hub], dim=1)
    graph = Data(
        x=torch.arange(float(NODES))[:, None].repeat(1, 2),
        edge_index=edges,
        edge_attr=torch.arange(float(edges.shape[1]))[:, None],
        y=torch.arange(NODES) % 3,
    )
    options = DataOptions(split_ratios=(0.5, 0.25, 0.25))
    _, store = take_graphs(graph, experiment_of({"encoder.laplacian": None}), options)
    return store, edges


@pytest.mark.parametrize("neighbours", [1, 4, 1000])
def test_a_batch_is_the_graph_among_nodes_that_are_reached(neighbours: int) -> None:
    store, edges = random_store()
    drawn = NeighbourStore(store, neighbours)
    assert len(drawn) == NODES
    pairs = edges.T.tolist()
    for seeds in ([3], [0, 7, 79], list(range(40, 60))):
        batch = drawn.batch(torch.tensor(seeds), by_source=True)
        nodes = batch.x[:, 0].long().tolist()
        assert [nodes[row] for row in batch.seed_rows.tolist()] == seeds
        assert nodes == sorted(set(nodes))
        # brute force: everything within reach, hop by hop
        reach = set(seeds)
        for _ in range(2):
            reach |= {a for a, b in pairs if b in reach}
        heard = {b: {a for a, c in pairs if c == b} for b in range(NODES)}
        most = len(seeds) * (1 + neighbours + neighbours * max(neighbours // 2, 1))
        assert set(nodes) <= reach
        assert len(nodes) <= most
        if neighbours == 1000:
            assert set(nodes) == reach
        for seed in seeds:
            assert len(heard[seed] & set(nodes)) >= min(neighbours, len(heard[seed]), 1)
        # every edge among them once, with its own columns, sorted by target
        found = sorted(batch.edge_attr.flatten().long().tolist())
        assert found == [n for n, (a, b) in enumerate(pairs) if {a, b} <= set(nodes)]
        joined = torch.tensor(nodes)[batch.edge_index]
        assert torch.equal(joined, edges[:, batch.edge_attr.flatten().long()])
        assert bool((batch.edge_index[1].diff() >= 0).all())
        assert bool((batch.edge_index[0][batch.source_order].diff() >= 0).all())
        assert torch.equal(batch.y, torch.tensor(nodes) % 3)


def test_what_is_drawn_follows_from_the_nodes_and_is_spread_evenly() -> None:
    store, edges = random_store()
    drawn = NeighbourStore(store, 3)
    one, same = drawn.batch(torch.tensor([0, 5])), drawn.batch(torch.tensor([5, 0]))
    assert torch.equal(one.x, same.x)
    # node 0 hears all of 0 to 29, with others' help a few more: each is drawn about as often
    counts = np.zeros(NODES)
    for other in range(1, 75):
        counts[drawn.batch(torch.tensor([0, other])).x[:, 0].long()] += 1
    heard = edges[0][edges[1] == 0].unique()
    assert counts[0] == 74
    assert counts[heard[heard != 0]].min() > 0
    assert counts[heard[heard != 0]].max() < 60


def test_pairs_come_with_neighbours_of_both_ends_and_edges_among_them() -> None:
    store, edges = random_store()
    pairs = torch.stack([torch.arange(30), torch.arange(30, 60)])
    labelled = {"edge_label": torch.ones(30), "pair_split": torch.arange(30) % 3}
    links = store.with_columns(pairs={LINKS: Pairs(torch.tensor([0, 30]), pairs, labelled)})
    drawn = NeighbourStore(links, 1000, is_scored_whole=True)
    assert len(drawn) == 30
    assert drawn.scored.batch(torch.tensor([0])).num_nodes == NODES
    assert drawn.split_ids("validation").tolist() == list(range(1, 30, 3))
    batch = drawn.batch(torch.tensor([7, 2]))
    nodes = batch.x[:, 0].long()
    assert nodes[batch[LINKS]].tolist() == [[7, 2], [37, 32]]
    assert batch.pair_split.tolist() == [1, 2]
    heard = {int(each) for end in (7, 2, 37, 32) for each in edges[0][edges[1] == end]}
    assert heard <= set(nodes.tolist())
    seen = {(int(a), int(b)) for a, b in edges.T if {int(a), int(b)} <= set(nodes.tolist())}
    assert {(int(a), int(b)) for a, b in nodes[batch.edge_index].T} == seen


def test_only_nodes_of_one_graph_have_neighbours_drawn() -> None:
    store, _ = random_store()
    with pytest.raises(UserError, match="neighbours must be at least 1"):
        NeighbourStore(store, 0)
    with pytest.raises(UserError, match="ids must hold items 0 to 79"):
        NeighbourStore(store, 2).batch(torch.tensor([80]))
    two = GraphStore.from_pyg([store[0], store[0]])
    with pytest.raises(UserError, match=r"got 2 graphs; train\.neighbours must be 0"):
        NeighbourStore(two, 2)


def test_graphs_beyond_the_memory_of_a_gpu_stay_and_their_batches_go() -> None:
    store, _ = random_store()
    sent = store.streamed("meta")
    batch = sent.batch(torch.tensor([0]), by_source=True)
    assert sent.is_streamed
    assert sent.device.type == batch.x.device.type == batch.edge_index.device.type == "meta"
    assert batch.x.shape == store.batch(torch.tensor([0])).x.shape
    assert not store.is_streamed
    assert torch.equal(sent.columns().nodes["x"], store.columns().nodes["x"])
