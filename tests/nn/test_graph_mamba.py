"""The public block and layer: equivariant, blind to other graphs, strict about their input."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from graphmamba import GraphMambaLayer
from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.nn import GraphMambaBlock, GraphMambaGlobal, MambaConfig
from graphmamba.nn.exphormer import ExphormerStack
from graphmamba.nn.norm import Dropout
from graphmamba.ordering import ABLATIONS, PUBLISHED, OrderPolicy, order_nodes
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.typecheck import typecheck_off

EXACT = MambaConfig(backend="reference")
POLICIES = {
    "degree": OrderPolicy(),
    "bins": OrderPolicy(bins=3),
    "reverse": OrderPolicy(direction="reverse"),
    "bidirectional": OrderPolicy(bins=2, direction="bidirectional"),
    "none": ABLATIONS["none"],
    "cluster": ABLATIONS["cluster"],
}


def global_model_of(policy: OrderPolicy, channels: int = 8) -> GraphMambaGlobal:
    torch.manual_seed(0)
    return GraphMambaGlobal(channels, policy, EXACT).double().eval()


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_a_change_in_one_graph_reaches_no_other(policy: OrderPolicy) -> None:
    global_model, topology = global_model_of(policy), random_topology()
    x, _ = random_rows(topology, dtype=torch.float64)
    is_first = topology.batch == 0
    changed = torch.where(is_first[:, None], x + 1, x)
    before, after = global_model(x, topology), global_model(changed, topology)
    assert torch.equal(before[~is_first], after[~is_first])
    assert not torch.equal(before[is_first], after[is_first])


@pytest.mark.parametrize("bins", [1, 3])
def test_m_fold_is_the_mean_of_m_passes_with_the_same_draws(bins: int) -> None:
    policy = OrderPolicy(bins=bins)
    global_model, topology = global_model_of(policy), random_topology()
    x, _ = random_rows(topology, dtype=torch.float64)
    nodes, graphs = topology.batch.shape[0], topology.num_graphs
    line = order_nodes(policy, topology, samples=5)
    passes = []
    for sample in range(5):
        order = line.order[sample * nodes : (sample + 1) * nodes] - sample * nodes
        first = sample * graphs * bins
        cu_seqlens = line.cu_seqlens[first : first + graphs * bins + 1] - sample * nodes
        passes.append(global_model.mamba(x, cu_seqlens, order))
    assert torch.allclose(global_model(x, topology), torch.stack(passes).mean(dim=0), atol=1e-12)


def path_with_distinct_degrees() -> Tensor:
    """Node i has i outgoing edges: no two nodes tie."""
    sources = [node for node in range(6) for _ in range(node)]
    targets = [other for node in range(6) for other in range(node)]
    return torch.tensor([sources, targets])


def test_relabelled_nodes_take_their_outputs_along() -> None:
    block = GraphMambaBlock(8, OrderPolicy(eval_samples=2), EXACT).double().eval()
    x, edges = torch.randn(6, 8, dtype=torch.float64), path_with_distinct_degrees()
    names = torch.tensor([4, 2, 0, 5, 1, 3])
    moved = torch.empty_like(x).index_copy(0, names, x)
    assert torch.allclose(block(moved, names[edges])[names], block(x, edges), atol=1e-12)


def test_evaluation_is_reproducible_and_training_is_not() -> None:
    block = GraphMambaBlock(8, options=EXACT)
    topology = random_topology((20,))
    x, _ = random_rows(topology)
    arguments = (x, topology.edge_index, topology.batch)
    first, second = block(*arguments), block(*arguments)
    assert not torch.equal(first, second)
    block.eval()
    assert torch.equal(block(*arguments), block(*arguments))


def test_every_column_of_a_policy_is_read() -> None:
    topology = random_topology((9, 4))
    x, _ = random_rows(topology)
    names = ("graph_key", "centrality", "random_walk", "cluster")
    columns = {name: topology.columns[name] for name in names}
    for policy in PUBLISHED.values():
        block = GraphMambaBlock(8, policy, EXACT).eval()
        outside = block(
            x,
            topology.edge_index.int(),
            topology.batch.int(),
            **columns,
        )
        inside = block.global_model(x, replace(topology, seed=block.noise_seed.seed))
        assert torch.equal(outside, inside)


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
def test_blocks_of_one_model_draw_different_node_orders(is_training: bool) -> None:
    first, second = (GraphMambaBlock(8, ABLATIONS["permutation"], EXACT) for _ in range(2))
    second.global_model.load_state_dict(first.global_model.state_dict())
    x, edges = torch.randn(30, 8), torch.zeros(2, 0, dtype=torch.int64)
    found = [block.train(is_training)(x, edges) for block in (first, second)]
    assert not torch.equal(*found)


def test_node_orders_follow_the_generator_of_torch() -> None:
    x, edges = torch.randn(30, 8), torch.zeros(2, 0, dtype=torch.int64)

    def three_passes(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        block = GraphMambaBlock(8, ABLATIONS["permutation"], EXACT)
        return [block(x, edges), block(x, edges), block.eval()(x, edges)]

    first, second, other = three_passes(5), three_passes(5), three_passes(6)
    assert all(map(torch.equal, first, second))
    assert not any(map(torch.equal, first, other))
    assert not torch.equal(first[0], first[1])


@pytest.mark.parametrize("is_reentrant", [True, False])
def test_checkpointing_changes_no_gradient(is_reentrant: bool) -> None:
    block = GraphMambaBlock(8, ABLATIONS["permutation"], EXACT)
    x, edges = torch.randn(30, 8, requires_grad=True), torch.zeros(2, 0, dtype=torch.int64)

    def gradients(run: Callable[[Tensor, Tensor], Tensor]) -> tuple[Tensor, ...]:
        torch.manual_seed(0)
        # two passes before one backward pass: the first one is not the last that was drawn
        found = run(x, edges).square().sum() + 2 * run(2 * x, edges).square().sum()
        block.zero_grad()
        x.grad = None
        found.backward()
        return tuple(p.grad.clone() for p in (x, *block.parameters()) if p.grad is not None)

    again = partial(checkpoint, block, use_reentrant=is_reentrant)
    for plain, found in zip(gradients(block), gradients(again), strict=True):
        assert torch.equal(plain, found)


def test_input_norm_is_an_option_with_its_own_parameters() -> None:
    def count(block: GraphMambaBlock) -> int:
        return sum(parameter.numel() for parameter in block.parameters())

    assert count(GraphMambaBlock(96)) == 34_080
    assert count(GraphMambaBlock(96, input_norm="layer")) == 34_080 + 192
    block = GraphMambaBlock(8, input_norm="layer", options=EXACT).eval()
    x, edges = torch.randn(6, 8), path_with_distinct_degrees()
    assert torch.allclose(block(3 * x + 1, edges), block(x, edges), atol=1e-4)


X, EDGES = torch.zeros(4, 8), torch.tensor([[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.zeros(4, 7), EDGES), r"x must have shape \[nodes, 8\], got \[4, 7\]"),
        ((X.tolist(), EDGES), "x must be a tensor, got list"),
        ((X.long(), EDGES), "x must hold floats, got torch.int64"),
        ((X.double(), EDGES), "x.dtype must be that of the parameters, torch.float32, got .*64"),
        ((X, EDGES[0]), r"edge_index must have shape \[2, edges\], got \[2\]"),
        ((X, EDGES + 0.5), "edge_index must hold integers, got torch.float32"),
        ((X, EDGES, torch.zeros(4)), "batch must hold integers, got torch.float32"),
        ((X, EDGES, torch.zeros(3, dtype=torch.int64)), r"batch must have shape \[4\], got \[3\]"),
        ((X, EDGES, torch.tensor([0, 1, 0, 1])), "batch must be sorted, got 0 after 1 at node 2"),
        ((X, EDGES + 3), "edge_index must hold numbers of the 4 nodes, 0 to 3, got 4"),
        ((X, EDGES - 1), "edge_index must hold numbers of the 4 nodes, 0 to 3, got -1"),
        (
            (X, torch.tensor([[0, 3], [1, 0]]), torch.tensor([0, 0, 1, 1])),
            "edge_index must join nodes of the same graph, got an edge from node 3 of graph 1 to "
            "node 0 of graph 0 at 1",
        ),
    ],
)
def test_bad_input_is_rejected_by_the_public_function(
    arguments: tuple[Tensor, ...], message: str
) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        GraphMambaBlock(8)(*arguments)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"graph_key": torch.arange(3)}, r"graph_key must have shape \[2\], got \[3\]"),
        ({"graph_key": torch.rand(2)}, "graph_key must hold integers, got torch.float32"),
        ({"centrality": torch.rand(4, 1)}, r"centrality must have shape \[4\], got \[4, 1\]"),
        ({"random_walk": torch.rand(4)}, r"random_walk must .* \[4, steps\], got \[4\]"),
        ({"cluster": torch.rand(4)}, "cluster must hold integers, got torch.float32"),
        ({"num_graphs": 2.0}, "num_graphs must be int, got 2.0"),
    ],
)
def test_columns_that_do_not_fit_are_rejected(columns: dict[str, object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        GraphMambaBlock(8)(X, EDGES, torch.tensor([0, 0, 1, 1]), **columns)


@pytest.mark.parametrize(
    ("policy", "columns", "message"),
    [
        (
            OrderPolicy(score="spectral"),
            {},
            "laplacian_vectors must be given for score='spectral', got",
        ),
        (
            OrderPolicy(score="spectral", num_eigenvectors=2),
            {"laplacian_vectors": torch.rand(4, 2)},
            "laplacian_values must be given for score='spectral', got None",
        ),
        (
            OrderPolicy(score="spectral"),
            {"laplacian_vectors": torch.rand(4, 2), "laplacian_values": torch.rand(4, 2)},
            "columns of laplacian_vectors must be at least 10, got 2",
        ),
        (OrderPolicy(clusters="first"), {}, "cluster must be given for clusters='first', got None"),
    ],
)
def test_what_a_policy_needs_is_asked_for_before_anything_is_drawn(
    policy: OrderPolicy, columns: dict[str, Tensor], message: str
) -> None:
    block = GraphMambaBlock(8, policy)
    before = {name: value.clone() for name, value in block.state_dict().items()}
    with pytest.raises(UserError, match=message):
        block(X, EDGES, **columns)
    assert all(torch.equal(value, before[name]) for name, value in block.state_dict().items())


def test_last_graphs_without_nodes_are_given_by_their_number() -> None:
    block, batch = GraphMambaBlock(8, options=EXACT).eval(), torch.tensor([0, 0, 1, 1])
    x, keys = torch.randn(4, 8), torch.tensor([7, 8, 9])
    given = block(x, EDGES, batch, graph_key=keys, num_graphs=3)
    assert torch.equal(given, block(x, EDGES, batch, graph_key=keys[:2]))


ROWS, EDGE_ROWS = torch.randn(5, 8), torch.randn(4, 8)
TOPOLOGY = Topology(
    edge_index=torch.tensor([[0, 1, 3, 4], [1, 0, 4, 3]]),
    batch=torch.tensor([0, 0, 1, 1, 1]),
    num_graphs=2,
    seed=torch.tensor(3),
)


@pytest.mark.parametrize(
    ("x", "e", "topology", "message"),
    [
        (
            ROWS,
            TOPOLOGY.edge_index,
            TOPOLOGY.batch,
            "topology must be Topology, got Tensor: Topology",
        ),
        (ROWS[:, :7], EDGE_ROWS, TOPOLOGY, r"x must have shape \[5, 8\], got \[5, 7\]"),
        (ROWS[:4], EDGE_ROWS, TOPOLOGY, r"x must have shape \[5, 8\], got \[4, 8\]"),
        (
            ROWS.double(),
            EDGE_ROWS,
            TOPOLOGY,
            "x.dtype must be that of the parameters, torch.float32",
        ),
        (ROWS, EDGE_ROWS[:3], TOPOLOGY, r"e must have shape \[4, 8\], got \[3, 8\]"),
        (ROWS, None, TOPOLOGY, "e must hold a row for each edge for GatedGCN, got None"),
        (
            ROWS,
            EDGE_ROWS,
            replace(TOPOLOGY, batch=torch.tensor([1, 0, 0, 1, 1])),
            "batch must be sorted, got 0 after 1 at node 1",
        ),
        (
            ROWS,
            EDGE_ROWS,
            replace(TOPOLOGY, edge_index=torch.tensor([[0, 1, 3, 4], [1, 0, 4, 5]])),
            "edge_index must hold numbers of the 5 nodes, 0 to 4, got 5",
        ),
    ],
)
def test_wrong_rows_are_rejected(x: Any, e: Any, topology: Any, message: str) -> None:
    layer = GraphMambaLayer(8)
    with typecheck_off(), pytest.raises(UserError, match=message):
        layer(x, e, topology)


def test_layers_of_one_stack_drop_different_entries() -> None:
    layer, other = (GraphMambaLayer(8, layer=number, dropout=0.5) for number in (0, 1))
    assert _sites(layer) == [*range(len(_sites(layer)))]
    other.load_state_dict(layer.state_dict())
    found, others = (each(ROWS, EDGE_ROWS, TOPOLOGY)[0] for each in (layer, other))
    assert not torch.equal(found, others)
    other.layer = other.global_model.layer = 0
    assert torch.equal(found, other(ROWS, EDGE_ROWS, TOPOLOGY)[0])


def test_all_layers_of_exphormer_drop_different_entries() -> None:
    sites = _sites(ExphormerStack(8, 3, 2, dropout=0.5))
    assert sites == [*range(len(sites))]


def _sites(module: nn.Module) -> list[int]:
    return [part.site for part in module.modules() if isinstance(part, Dropout)]
