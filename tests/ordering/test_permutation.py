"""Every node order is a permutation inside each graph, sorted by score, ties at random."""

from collections import Counter
from dataclasses import replace
from importlib import import_module
from itertools import chain, combinations, pairwise

import networkx
import pytest
import torch
from torch import Tensor, nn
from torch_geometric.data import Data

from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.nn import Backbone, GraphMambaLayer
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.ordering import (
    ABLATIONS,
    PUBLISHED,
    NodeOrder,
    OrderPolicy,
    order_layers,
    order_nodes,
    permutation,
)
from graphmamba.ordering.permutation import (
    Request,
    _deviation,
    node_orders_of,
    out_degree,
    score_key,
)
from tests.helpers.graphs import (
    moved_to,
    one_graph,
    path,
    random_rows,
    random_topology,
    with_columns,
    with_spectrum,
)
from tests.helpers.typecheck import typecheck_off
from tests.nn.test_model import GivenRows

POLICIES = {
    **{f"ablation-{name}": policy for name, policy in ABLATIONS.items()},
    **PUBLISHED,
    "degree-uniform": OrderPolicy(noise="uniform"),
    "eigenvector-ties": OrderPolicy(score="eigenvector"),
    "random-walk-graph": OrderPolicy(score="random_walk", noise="normal"),
    "spectral": OrderPolicy(score="spectral"),
    "spectral-bins": OrderPolicy(score="spectral", bins=2),
    "spectral-clusters": OrderPolicy(score="spectral", clusters="first"),
    "clusters-still": OrderPolicy(clusters="first", noise="none"),
    "clusters-bins": OrderPolicy(score="eigenvector", clusters="first", bins=2),
}
# A policy that reads the whole batch cannot ignore it, as the published code cannot.
ALONE = {name: policy for name, policy in POLICIES.items() if policy.noise_scope == "graph"}


def by_name(policies: dict[str, OrderPolicy]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("policy", policies.values(), ids=policies.keys())


def sequences(node_order: NodeOrder, nodes: int) -> list[Tensor]:
    """Slots of each sequence."""
    tokens = node_order.samples * nodes
    order = torch.arange(tokens) if node_order.order is None else node_order.order
    return [order[start:end] for start, end in pairwise(node_order.cu_seqlens.tolist())]


def nodes_of(node_order: NodeOrder, topology: Topology, graph: int, sample: int) -> list[list[int]]:
    """Nodes of each bin of a graph in order, by their places in the graph."""
    nodes, graphs = topology.batch.shape[0], topology.num_graphs
    slots = sequences(node_order, nodes)
    bins = len(slots) // (node_order.samples * graphs)
    first = (sample * graphs + graph) * bins
    start = int((topology.batch < graph).sum()) + sample * nodes
    return [(slot - start).tolist() for slot in slots[first : first + bins]]


@by_name(POLICIES)
@pytest.mark.parametrize("samples", [1, 3])
def test_is_a_permutation_inside_each_graph(policy: OrderPolicy, samples: int) -> None:
    sizes = [9, 0, 1, 4, 7, 2]
    topology = random_topology(sizes, seed=samples)
    node_order = order_nodes(policy, topology, samples=samples)
    assert node_order.cu_seqlens.dtype == torch.int32
    assert node_order.cu_seqlens[0] == 0
    assert node_order.cu_seqlens[-1] == samples * sum(sizes)
    assert len(node_order.cu_seqlens) == samples * len(sizes) * policy.bins + 1
    for sample in range(samples):
        for graph, size in enumerate(sizes):
            seen = nodes_of(node_order, topology, graph, sample)
            assert sorted(chain(*seen)) == list(range(size))


@pytest.mark.parametrize("bins", [1, 3])
def test_degree_ascends(bins: int) -> None:
    topology = random_topology((30, 1, 20))
    degree = out_degree(topology)
    node_order = order_nodes(OrderPolicy(bins=bins), topology, samples=4)
    for slots in sequences(node_order, 51):
        assert (degree[slots % 51].diff() >= 0).all()


def test_every_order_of_ties_is_equally_likely() -> None:
    topology = replace(random_topology((3, 3)), edge_index=torch.empty(2, 0, dtype=torch.int64))
    count = 3_000
    node_order = order_nodes(OrderPolicy(), topology, samples=count)
    for graph in range(2):
        orders = Counter(
            tuple(nodes.tolist()) for nodes in (node_order.order.view(count, 2, 3)[:, graph] % 6)
        )
        assert len(orders) == 6
        # Five standard deviations of a count of 3,000 draws with chance 1/6.
        assert all(abs(seen - 500) < 105 for seen in orders.values())


def test_nodes_are_assigned_to_bins_evenly_and_afresh() -> None:
    topology = random_topology((3_000,))
    node_order = order_nodes(OrderPolicy(bins=3), topology, samples=2)
    sizes = node_order.cu_seqlens.diff()
    assert sizes.numel() == 6
    assert ((sizes - 1_000).abs() < 130).all()
    first, second = (nodes_of(node_order, topology, 0, sample)[0] for sample in range(2))
    assert sorted(first) != sorted(second)


def test_the_bin_of_a_node_says_nothing_about_its_noise() -> None:
    topology = with_columns(random_topology((100,)), centrality=torch.linspace(0, 1, 100))

    def swapped(bins: int) -> float:
        policy = OrderPolicy(score="eigenvector", noise="uniform", bins=bins)
        node_order = order_nodes(policy, topology, samples=10)
        slots = (each.tolist() for each in sequences(node_order, 100))
        pairs = [pair for each in slots for pair in combinations(each, 2)]
        return sum(first > second for first, second in pairs) / len(pairs)

    assert swapped(2) == pytest.approx(swapped(1), abs=0.02)


def test_no_noise_keeps_ties_in_the_order_of_the_data() -> None:
    topology = random_topology((20,))
    degree = out_degree(topology).tolist()
    node_order = order_nodes(OrderPolicy(noise="none"), topology)
    assert node_order.order.tolist() == sorted(range(20), key=lambda node: (degree[node], node))


def test_identity_needs_no_order() -> None:
    node_order = order_nodes(ABLATIONS["none"], random_topology((2, 0, 3)), samples=2)
    assert node_order.order is None
    assert node_order.cu_seqlens.tolist() == [0, 2, 2, 5, 7, 7, 10]


@by_name(ALONE)
def test_a_graph_is_ordered_alike_alone_and_in_a_batch(policy: OrderPolicy) -> None:
    topology = random_topology((7, 1, 12, 0, 3), seed=3)
    together = order_nodes(policy, topology, samples=3, layer=2)
    for graph in range(5):
        alone, _, _ = one_graph(topology, graph)
        single = order_nodes(policy, alone, samples=3, layer=2)
        for sample in range(3):
            assert nodes_of(single, alone, 0, sample) == nodes_of(together, topology, graph, sample)


@pytest.mark.parametrize("change", ["seed", "layer", "sample", "graph"])
def test_draws_depend_on_every_counter(change: str) -> None:
    topology = replace(random_topology((40, 40)), edge_index=torch.empty(2, 0, dtype=torch.int64))
    node_order = order_nodes(OrderPolicy(), topology, samples=2)
    here = nodes_of(node_order, topology, 0, 0)
    other = {
        "seed": lambda: nodes_of(
            order_nodes(OrderPolicy(), replace(topology, seed=torch.tensor(9))), topology, 0, 0
        ),
        "layer": lambda: nodes_of(order_nodes(OrderPolicy(), topology, layer=1), topology, 0, 0),
        "sample": lambda: nodes_of(node_order, topology, 0, 1),
        "graph": lambda: nodes_of(node_order, topology, 1, 0),
    }[change]()
    assert here != other


def test_clusters_stay_together_in_changing_order() -> None:
    topology = random_topology((60,))
    node_order = order_nodes(ABLATIONS["cluster"], topology, samples=100)
    seen = set()
    for slots in sequences(node_order, 60):
        runs = torch.unique_consecutive(topology.columns["cluster"][slots % 60]).tolist()
        assert len(runs) == len(set(runs)) == 3
        seen.add(tuple(runs))
    assert len(seen) == 6


def test_clusters_and_nodes_share_no_draws() -> None:
    topology = with_columns(random_topology((4,)), cluster=torch.tensor([0, 0, 1, 1]))
    node_order = order_nodes(OrderPolicy(score="none", clusters="first"), topology, samples=400)
    orders = [nodes_of(node_order, topology, 0, sample)[0] for sample in range(400)]
    # Whether their cluster is first says nothing about the order of its nodes.
    alike = [(order[0] < 2) == (order.index(0) < order.index(1)) for order in orders]
    assert 0.4 < sum(alike) / 400 < 0.6


def test_clusters_without_noise_go_by_their_numbers() -> None:
    topology = with_columns(random_topology((4,)), cluster=torch.tensor([7, 5_000_000, 7, -3]))
    node_order = order_nodes(OrderPolicy(score="none", clusters="first", noise="none"), topology)
    assert node_order.order.tolist() == [3, 0, 2, 1]


def test_clusters_that_are_no_integers_are_rejected() -> None:
    message = "topology.cluster must hold integers, got torch.float32"
    with typecheck_off(), pytest.raises(UserError, match=message):
        order_nodes(
            ABLATIONS["cluster"], with_columns(random_topology((4,)), cluster=torch.rand(4))
        )


def test_clusters_part_ties_of_the_degree() -> None:
    topology = random_topology((60,))
    degree = out_degree(topology)
    node_order = order_nodes(OrderPolicy(clusters="tie_breaking"), topology)
    columns = degree, topology.columns["cluster"]
    pairs = torch.stack([each[node_order.order] for each in columns], dim=1)
    assert (degree[node_order.order].diff() >= 0).all()
    runs = torch.unique_consecutive(pairs, dim=0)
    assert len(runs) == len(torch.unique(runs, dim=0))


def test_noise_of_one_deviation_swaps_near_scores_only() -> None:
    topology = with_columns(random_topology((400,)), centrality=torch.linspace(0, 1, 400))
    node_order = order_nodes(OrderPolicy(score="eigenvector", noise="uniform"), topology)
    moved = (node_order.order - torch.arange(400)).abs().max()
    # One deviation of evenly spread scores is 0.289 of their range.
    assert 20 < moved <= 0.29 * 400


def test_normal_noise_is_normal() -> None:
    walk = torch.tensor([[0.0], [1.0], [0.0], [1.0]])
    topology = with_columns(random_topology((2, 2)), random_walk=walk)
    policy = OrderPolicy(score="random_walk", noise="normal")
    node_order = order_nodes(policy, topology, samples=4_000)
    # Scores 0 and -1, deviation 0.707 of noise each: node 1 first with chance Phi(1 / 1).
    share = (node_order.order.view(4_000, 2, 2)[:, 0, 0] % 4 == 1).double().mean()
    assert abs(share - 0.8413) < 0.03


def test_equal_scores_stay_tied_across_signs_of_zero() -> None:
    walk = torch.tensor([[0.0], [-0.0], [0.0]])
    topology = with_columns(random_topology((3,)), random_walk=walk)
    node_order = order_nodes(OrderPolicy(score="random_walk", noise="none"), topology)
    assert node_order.order.tolist() == [0, 1, 2]


def test_negative_scores_sort_before_positive_ones() -> None:
    centrality = torch.tensor([2.0, -3.0, 0.5, -0.25])
    topology = with_columns(random_topology((4,)), centrality=centrality)
    node_order = order_nodes(OrderPolicy(score="eigenvector", noise="none"), topology)
    assert node_order.order.tolist() == [1, 3, 2, 0]


def test_keys_too_wide_for_one_word_sort_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = random_topology((30, 20, 9))
    policies = [OrderPolicy(), OrderPolicy(bins=2, clusters="first"), OrderPolicy(noise="none")]
    wide = [order_nodes(policy, topology, samples=2).order for policy in policies]
    monkeypatch.setattr(import_module("graphmamba.ordering.permutation"), "WORD_BITS", 1)
    narrow = [order_nodes(policy, topology, samples=2).order for policy in policies]
    for one, other in zip(wide, narrow, strict=True):
        assert torch.equal(one, other)


def test_along_a_low_frequency_function_neighbours_stay_near_and_orders_differ() -> None:
    topology = with_spectrum(path(300), [300])
    node_orders = [
        order_nodes(OrderPolicy(score="spectral"), topology, layer=layer).order
        for layer in range(20)
    ]
    gaps = torch.stack([each.argsort().diff().abs().float().mean() for each in node_orders])
    # 100 at random; 1 in their order along the path
    assert gaps.mean() < 5
    assert len({tuple(each.tolist()) for each in node_orders}) > 15
    # no end of the path is where orders begin: that would tell the sign of an eigenvector
    begins = (each.tolist() for each in node_orders)
    assert 3 < sum(each.index(0) < each.index(299) for each in begins) < 17


def test_what_all_nodes_have_in_common_costs_a_low_frequency_function_no_digits() -> None:
    # all eigenvalues but the first are large here, and what they add small beside it
    graph = networkx.random_regular_graph(50, 1000, seed=0)
    edges = torch.tensor(list(graph.edges)).T
    topology = with_spectrum(torch.cat([edges, edges.flip(0)], dim=1), [1000])
    bits, streams = torch.zeros(3, 1000, dtype=torch.int64), torch.arange(3)[:, None]
    scores, _ = score_key(OrderPolicy(score="spectral"), topology, bits, streams)
    assert all(len(row.unique()) > 990 for row in scores)


def test_graphs_with_few_eigenvectors_are_ordered_by_low_frequencies() -> None:
    edges = torch.cat([path(3), path(40, start=4)], dim=1)
    topology = with_spectrum(edges, [3, 1, 40])
    assert topology.columns["laplacian_vectors"].isnan().any()
    orders = set()
    for layer in range(40):
        node_order = order_nodes(OrderPolicy(score="spectral"), topology, layer=layer)
        orders.add(tuple(nodes_of(node_order, topology, 0, 0)[0]))
    # the middle of three comes first or last where it is the second eigenvector that decides
    assert {(0, 1, 2), (2, 1, 0)} < orders


@pytest.mark.gpu
@by_name(POLICIES)
def test_the_order_is_the_same_on_the_gpu(policy: OrderPolicy) -> None:
    topology = random_topology((70, 1, 300, 0, 33))
    places = topology, moved_to(topology, "cuda")
    here, there = (order_nodes(policy, place, samples=3) for place in places)
    assert torch.equal(here.cu_seqlens, there.cu_seqlens.cpu())
    if here.order is not None:
        assert torch.equal(here.order, there.order.cpu())


TOPOLOGIES = random_topology(), random_topology(()), random_topology((0, 0))


def assert_same(ours: NodeOrder, theirs: NodeOrder) -> None:
    assert ours.samples == theirs.samples
    assert ours.cu_seqlens.dtype == theirs.cu_seqlens.dtype
    assert torch.equal(ours.cu_seqlens, theirs.cu_seqlens)
    if theirs.order is None:
        assert ours.order is None
    else:
        assert torch.equal(ours.order, theirs.order)


@by_name(POLICIES)
@pytest.mark.parametrize("samples", [1, 3])
def test_layers_ordered_together_are_as_alone(policy: OrderPolicy, samples: int) -> None:
    for topology in TOPOLOGIES:
        node_orders = order_layers(policy, topology, samples=samples, layers=range(2, 5))
        for layer, node_order in zip(range(2, 5), node_orders, strict=True):
            assert_same(node_order, order_nodes(policy, topology, samples=samples, layer=layer))


@pytest.mark.parametrize("most", [1, 60, 1 << 22])
def test_requests_are_met_whatever_their_layers(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permutation, "MOST_TOKENS", most)
    topology, first, second = random_topology(), OrderPolicy(), OrderPolicy(bins=2)
    requests: list[Request] = [
        *((first, 1, layer) for layer in (5, 0, 1, 2, 0)),
        *((first, 2, layer) for layer in (0, 1)),
        *((second, 1, layer) for layer in (1, 3)),
    ]
    made = node_orders_of(requests, topology)
    for policy, samples, layer in requests:
        alone = order_nodes(policy, topology, samples=samples, layer=layer)
        assert_same(made[policy, samples, layer], alone)


def test_a_node_order_that_was_made_is_taken() -> None:
    topology, policy = random_topology(), OrderPolicy(noise="none")
    x, _ = random_rows(topology)
    global_model = GraphMambaGlobal(8, policy)
    other = order_nodes(OrderPolicy(), topology, layer=7)
    found = global_model(x, replace(topology, node_order=other))
    assert torch.equal(found, global_model.mamba(x, other.cu_seqlens, other.order))
    assert not torch.equal(found, global_model(x, topology))


class Alone(nn.Module):
    """A layer that finds nothing prepared."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, e: torch.Tensor, topology: Topology) -> object:
        return self.layer(x, e, replace(topology, node_order=None))


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
def test_a_backbone_gives_its_layers_the_orders_that_they_would_draw(is_training: bool) -> None:
    policies = (OrderPolicy(), OrderPolicy(bins=3), OrderPolicy(), OrderPolicy(noise="none"))
    torch.manual_seed(0)
    layers = [GraphMambaLayer(8, policy, layer=i) for i, policy in enumerate(policies)]
    topology = random_topology((9, 4))
    x, e = random_rows(topology)
    outputs = [
        Backbone(GivenRows(), stack).train(is_training)(Data(x=x, e=e), topology)
        for stack in (layers, [Alone(layer) for layer in layers])
    ]
    assert torch.equal(*outputs)


def test_a_backbone_sorts_once_for_all_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = Backbone(GivenRows(), [GraphMambaLayer(8, layer=layer) for layer in range(4)])
    topology = random_topology((9, 4))
    x, e = random_rows(topology)
    sorts, sort = [], torch.sort
    monkeypatch.setattr(torch, "sort", lambda *a, **k: (sorts.append(1), sort(*a, **k))[1])
    backbone(Data(x=x, e=e), topology)
    assert len(sorts) == 1


def test_clusters_go_before_the_score() -> None:
    topology = random_topology((60,))
    degree = out_degree(topology)
    node_order = order_nodes(OrderPolicy(score="degree", clusters="first"), topology, samples=4)
    falls = 0
    for slots in sequences(node_order, 60):
        cluster = topology.columns["cluster"][slots % 60]
        runs = torch.unique_consecutive(cluster).tolist()
        assert len(runs) == len(set(runs)) == 3
        for each in runs:
            assert (degree[slots % 60][cluster == each].diff() >= 0).all()
        falls += int((degree[slots % 60].diff() < 0).sum())
    # where the score went first, it would never fall
    assert falls > 0


def test_noise_is_as_wide_as_the_deviation_of_a_sample() -> None:
    edges = torch.tensor([[0, 0, 0, 1, 2], [1, 2, 3, 2, 3]])
    topology = replace(random_topology((4,)), edge_index=edges)
    degree = out_degree(topology).double()
    found = _deviation(OrderPolicy(noise="normal"), topology, degree)
    torch.testing.assert_close(found, degree.std(correction=1).expand(4))


def test_nodes_of_a_padding_graph_do_not_count_for_the_deviation() -> None:
    edges = torch.tensor([[0, 0, 0, 1, 2, 4, 4, 4, 4], [1, 2, 3, 2, 3, 5, 5, 5, 5]])
    topology = replace(random_topology((4, 2)), edge_index=edges)
    padded = replace(topology, num_real_nodes=torch.tensor(4))
    degree = out_degree(topology).double()
    whole_batch = OrderPolicy(noise="normal", noise_scope="batch")
    found = _deviation(whole_batch, padded, degree)
    torch.testing.assert_close(found, degree[:4].std(correction=1).expand(6))
