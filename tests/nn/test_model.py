"""The public model: what it takes, what it rejects, and how it says so."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch_geometric.data import Batch, Data

from graphmamba.data.batch import Topology
from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.precompute import Precompute, add_columns
from graphmamba.errors import UserError
from graphmamba.nn import (
    Attention,
    Backbone,
    BigBird,
    GatedGCN,
    GPSLayer,
    GraphMambaLayer,
    Performer,
    ReverseEdges,
    VirtualNode,
)
from graphmamba.nn.config import (
    AttentionConfig,
    EncoderConfig,
    LaplacianConfig,
    ModelConfig,
    RandomWalkConfig,
)
from graphmamba.nn.encoders import Encoded
from graphmamba.nn.model import GraphMamba, columns_read
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.training.experiment import Experiment
from tests.helpers.experiments import generated_batch, small_experiment
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.typecheck import typecheck_off


@pytest.fixture(scope="module")
def experiment() -> Experiment:
    return small_experiment("peptides-func/graph-mamba")


@pytest.fixture(scope="module")
def model(experiment: Experiment) -> GraphMamba:
    return experiment.build().eval()


@pytest.fixture
def graphs(experiment: Experiment, model: GraphMamba) -> Batch:
    return generated_batch(experiment, model)


def without(name: str) -> Callable[[Data], None]:
    return lambda graphs: graphs.__delattr__(name)


def with_value(name: str, place: tuple[int, ...], value: int) -> Callable[[Data], None]:
    def change(graphs: Data) -> None:
        graphs[name][place] = value

    return change


def with_column(name: str, make: Callable[[Data], object]) -> Callable[[Data], None]:
    return lambda graphs: graphs.__setattr__(name, make(graphs))


def across(graphs: Data) -> Tensor:
    """The edges, the first of them from the first node to the last."""
    pairs = graphs.edge_index.clone()
    pairs[:, 0] = torch.tensor([0, graphs.num_nodes - 1])
    return pairs


MODELS: dict[str, tuple[str, dict[str, object]]] = {
    "molecules": ("peptides-func/graph-mamba", {}),
    "scores": (
        "mnist",
        {"model.ordering.score": "eigenvector", "model.ordering.clusters": "tie_breaking"},
    ),
    "expanders": ("cifar10/exphormer", {}),
    "pairs": ("pcqm-contact/graph-mamba", {}),
}
REJECTED = {
    "no x": ("molecules", without("x"), "graphs.x must be given as node features, got None"),
    "no edge_attr": ("molecules", without("edge_attr"), "edge_attr must be given as edge features"),
    "no eigenvectors": (
        "molecules",
        without("laplacian_vectors"),
        "graphs.laplacian_vectors must be given for this model",
    ),
    "too few eigenvectors": (
        "molecules",
        with_column("laplacian_values", lambda graphs: graphs.laplacian_values[:, :4]),
        "columns of graphs.laplacian_values must be at least 10, got 4",
    ),
    "too few columns": (
        "molecules",
        with_column("x", lambda graphs: graphs.x[:, :8]),
        r"graphs.x must have shape \[\d+, 9\], got \[\d+, 8\]",
    ),
    "floats for atoms": (
        "molecules",
        with_column("x", lambda graphs: graphs.x.float()),
        "graphs.x must hold integers, got torch.float32",
    ),
    "too few edge embeddings": (
        "molecules",
        with_column("edge_attr", lambda graphs: graphs.edge_attr[1:]),
        r"graphs.edge_attr must have shape \[\d+, 3\]",
    ),
    "edges the wrong way": (
        "molecules",
        with_column("edge_index", lambda graphs: graphs.edge_index.T),
        r"graphs.edge_index must have shape \[2, edges\], got \[\d+, 2\]",
    ),
    "short batch": (
        "molecules",
        with_column("batch", lambda graphs: graphs.batch[1:]),
        r"graphs.batch must have shape \[\d+\], got \[\d+\]",
    ),
    "unsorted batch": ("molecules", with_value("batch", (0,), 1), "batch must be sorted, got 0"),
    "other pointers": ("molecules", with_value("ptr", (1,), 0), "graphs.ptr must hold the first"),
    "edge to nowhere": (
        "molecules",
        with_value("edge_index", (0, 0), 99),
        r"edge_index must hold numbers of the \d+ nodes, 0 to \d+, got 99",
    ),
    "edge between graphs": (
        "molecules",
        with_column("edge_index", across),
        r"edge_index must join nodes of the same graph, got an edge from node 0 of graph 0 to "
        r"node \d+ of graph 2 at 0",
    ),
    "unknown atom": (
        "molecules",
        with_value("x", (2, 1), 5),
        "graphs.x column 1 must be in 0 to 4, got 5 in row 2",
    ),
    "unknown bond": (
        "molecules",
        with_value("edge_attr", (0, 2), -1),
        "graphs.edge_attr column 2 must be in 0 to 1, got -1 in row 0",
    ),
    "no centrality": ("scores", without("centrality"), "graphs.centrality must be given"),
    "short centrality": (
        "scores",
        with_column("centrality", lambda graphs: graphs.centrality[1:]),
        r"graphs.centrality must have shape \[\d+\], got \[\d+\]",
    ),
    "floats for clusters": (
        "scores",
        with_column("cluster", lambda graphs: graphs.cluster.float()),
        "graphs.cluster must hold integers, got torch.float32",
    ),
    "expanders between graphs": (
        "expanders",
        with_column("expander_index", across),
        "expander_index must join nodes of the same graph",
    ),
    "pairs of two graphs": (
        "pairs",
        with_column("edge_label_index", lambda graphs: graphs.ptr[:2, None]),
        "edge_label_index must join nodes of the same graph, got an edge from node 0 of graph 0",
    ),
}


@pytest.mark.parametrize(("name", "change", "message"), REJECTED.values(), ids=REJECTED)
def test_bad_batches_are_rejected(name: str, change: Callable[[Data], None], message: str) -> None:
    config, overrides = MODELS[name]
    experiment = small_experiment(config, **overrides)
    with typecheck_off():
        model = experiment.build().eval()
        graphs = generated_batch(experiment, model)
        change(graphs)
        with pytest.raises(UserError, match=message):
            model(graphs)


@pytest.mark.parametrize("name", ["x", "edge_attr"])
def test_floats_of_another_type_than_the_parameters_are_rejected(name: str) -> None:
    experiment = small_experiment("pascalvoc-sp/gatedgcn")
    model = experiment.build().eval()
    graphs = generated_batch(experiment, model)
    graphs[name] = graphs[name].double()
    message = f"graphs.{name}.dtype must be that of the parameters, torch.float32, got torch.float6"
    with pytest.raises(UserError, match=message):
        model(graphs)
    # autocast casts halves and singles to one another, and leaves doubles alone
    with torch.autocast("cpu"), pytest.raises(UserError, match=message):
        model(graphs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["pascalvoc-sp/gatedgcn", "pcqm-contact/gine"])
def test_a_converted_model_takes_floats_of_its_type_and_categories(
    name: str, dtype: torch.dtype
) -> None:
    experiment = small_experiment(name)
    model = experiment.build().eval()
    graphs = generated_batch(experiment, model)
    truth = model(graphs)
    for column, values in graphs.to_dict().items():
        graphs[column] = values.to(dtype) if values.is_floating_point() else values
    found = model.to(dtype)(graphs)
    assert found.dtype == dtype
    assert torch.allclose(found.float(), truth, atol=0.1)


def test_autocast_takes_halves_and_singles() -> None:
    experiment = small_experiment("pascalvoc-sp/gatedgcn")
    model = experiment.build().eval()
    graphs = generated_batch(experiment, model)
    truth = model(graphs)
    for dtype in (torch.float32, torch.bfloat16):
        graphs.x = graphs.x.to(dtype)
        with torch.autocast("cpu"):
            assert torch.allclose(model(graphs).float(), truth, atol=0.1)


@pytest.fixture
def laid_out(experiment: Experiment, model: GraphMamba) -> Batch:
    """Graphs that know where the edges of each node are, as those that a model is trained on."""
    drawn = synthetic_graphs(experiment.dataset_info, 3, nodes=(3, 7))
    store = GraphStore.from_pyg([add_columns(graph, model.precompute) for graph in drawn])
    return StaticGather(store).batch(torch.arange(3), StaticSize(3, 64, 192), by_source=True)


LAYOUT_REJECTED = {
    "other edges": (
        with_column("edge_index", lambda graphs: graphs.edge_index.flip(1)),
        "must be sorted by target where source_order is given",
    ),
    "other sources": (
        with_column("edge_index", lambda graphs: graphs.edge_index[[1, 1]]),
        "graphs.source_order must sort the edges by source.*: if graphs.edge_index was changed",
    ),
    "fewer places": (
        with_column("source_order", lambda graphs: graphs.source_order[1:]),
        r"graphs.source_order must have shape \[\d+\], got \[\d+\]: .* remove source_order, ",
    ),
    "an edge twice": (
        with_column("source_order", lambda graphs: graphs.source_order * 0),
        "graphs.source_order must hold each edge once",
    ),
    "unknown edge": (with_value("source_order", (0,), 999), "must hold numbers of the .* edges"),
    "other begins": (
        with_value("target_ptr", (-1,), 9999),
        "graphs.target_ptr must .*, got other numbers: .* remove source_order, ",
    ),
}


@pytest.mark.parametrize(("change", "message"), LAYOUT_REJECTED.values(), ids=LAYOUT_REJECTED)
def test_pointers_into_other_edges_are_rejected(
    model: GraphMamba, laid_out: Batch, change: Callable[[Data], None], message: str
) -> None:
    assert model(laid_out).shape == (4, 10)
    change(laid_out)
    with typecheck_off(), pytest.raises(UserError, match=message):
        model(laid_out)


def test_values_are_not_looked_at_where_the_caller_says_so(
    model: GraphMamba, graphs: Batch
) -> None:
    graphs.edge_label_index = torch.tensor([[99], [99]])
    with pytest.raises(UserError, match="edge_label_index must hold numbers"):
        model(graphs, check=True)
    assert model(graphs, check=False).shape == (3, 10)


def test_a_single_graph_needs_no_batch(model: GraphMamba, graphs: Batch) -> None:
    graph = graphs.get_example(0)
    assert model(graph).shape == (1, 10)


def test_a_batch_vector_alone_is_enough(model: GraphMamba, graphs: Batch) -> None:
    columns = graphs.to_dict()
    del columns["ptr"]
    assert torch.equal(model(Data(**columns)), model(graphs))


def test_the_batch_is_left_as_it_was(model: GraphMamba, graphs: Batch) -> None:
    before = graphs.clone()
    model(graphs)
    after = graphs.to_dict()
    assert set(before.to_dict()) == set(after)
    assert all(
        torch.equal(column.nan_to_num(), after[name].nan_to_num())
        for name, column in before.to_dict().items()
    )


def test_columns_follow_from_the_configuration() -> None:
    assert columns_read(ModelConfig(), EncoderConfig()) == Precompute()
    encoder = EncoderConfig(
        laplacian=LaplacianConfig(num_eigenvectors=4),
        random_walk=RandomWalkConfig(walk_length=7),
        stable_gate_eigenvectors=6,
    )
    assert columns_read(ModelConfig(), encoder) == Precompute(num_eigenvectors=6, walk_length=7)
    sparse = ModelConfig(global_model="exphormer", attention=AttentionConfig(expander_degree=3))
    assert columns_read(sparse, EncoderConfig()).expander_degree == 3
    assert columns_read(
        ModelConfig(ordering=OrderPolicy(score="eigenvector", clusters="tie_breaking")),
        EncoderConfig(),
    ) == Precompute(has_centrality=True, has_clusters=True)
    by_walks = ModelConfig(ordering=OrderPolicy(score="random_walk"))
    assert columns_read(by_walks, EncoderConfig()).walk_length == 20
    smooth = ModelConfig(ordering=OrderPolicy(score="spectral", num_eigenvectors=4))
    assert columns_read(smooth, EncoderConfig()) == Precompute(num_eigenvectors=4)


class GivenRows(nn.Module):
    """An encoder whose rows are already there."""

    def forward(self, graphs: Data) -> Encoded:
        return Encoded(graphs.x, graphs.e, None)


class Recomputed(nn.Module):
    """A layer whose activations are computed again in the backward pass."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor, e: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
        return checkpoint(self.layer, x, e, topology, use_reentrant=False)


def backbone_of(*layers: nn.Module, seed: int = 0) -> Backbone:
    return Backbone(GivenRows(), layers, seed=seed)


def batch_of(topology: Topology) -> Data:
    x, e = random_rows(topology)
    return Data(x=x, e=e)


TOPOLOGY = replace(random_topology((9, 4)), seed=None)
GRAPHS = batch_of(TOPOLOGY)


def test_a_resumed_run_draws_what_the_first_would_have() -> None:
    torch.manual_seed(0)
    first, second = (backbone_of(GraphMambaLayer(8), seed=seed) for seed in (3, 4))
    first(GRAPHS, TOPOLOGY)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(GRAPHS, TOPOLOGY), second(GRAPHS, TOPOLOGY))


def test_recomputed_activations_meet_the_same_node_order() -> None:
    torch.manual_seed(0)
    plain = backbone_of(GraphMambaLayer(8, norm="layer"))
    again = backbone_of(Recomputed(plain.layers[0]))
    gradients = []
    for backbone in (plain, again):
        plain.zero_grad()
        backbone(GRAPHS, TOPOLOGY).square().sum().backward()
        gradients.append(plain.layers[0].global_model.mamba.in_proj.weight.grad.clone())
    assert torch.allclose(*gradients, atol=1e-5)


def test_what_layers_share_is_what_each_would_find() -> None:
    torch.manual_seed(0)
    global_models = (BigBird(8, 2), BigBird(8, 4, block=2), Attention(8, 2), Performer(8, 2))
    layers = [GPSLayer(8, None, global_model).eval() for global_model in global_models]
    x, e = GRAPHS.x, GRAPHS.e
    for layer in layers:
        x, e = layer(x, e, TOPOLOGY)
    assert torch.equal(backbone_of(*layers)(GRAPHS, TOPOLOGY), x)


class AddOne(nn.Module):
    """In the place of a layer."""

    def forward(self, x: Tensor, e: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        return x + 1, e


def test_a_virtual_node_hears_its_graph_and_is_carried_on() -> None:
    topology = random_topology((3, 1, 0, 4))
    x, _ = random_rows(topology, dtype=torch.float64)
    node = VirtualNode(8).double()

    def rounds(rows: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        hidden = node.norm(node.fc1(v + rows.sum(0)))
        new = node.fc2(hidden.relu())
        return rows + new, new

    first, v = node(x, None, topology)
    second, _ = node(first, v, topology)
    for graph in (0, 1, 3):
        nodes = topology.batch == graph
        rows, own = rounds(x[nodes], torch.zeros(8, dtype=torch.float64))
        assert torch.allclose(first[nodes], rows)
        assert torch.allclose(second[nodes], rounds(rows, own)[0])


def test_jumping_knowledge_is_the_mean_over_layers() -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    stack = Backbone(GivenRows(), [AddOne(), AddOne(), AddOne()], has_jumping_knowledge=True)
    assert torch.allclose(stack(Data(x=x, e=e), topology), x + 2)


def test_reverse_edges_carry_messages_backwards() -> None:
    """One layer on a doubled path: its ends hear what lies behind them, by edges of another row."""
    topology = replace(random_topology((3,)), edge_index=torch.tensor([[0, 1], [1, 2]]))
    x, e = random_rows(topology)
    reverse = ReverseEdges(8)
    doubled = reverse.both_ways(topology)
    assert doubled.edge_index.tolist() == [[0, 1, 1, 2], [1, 0, 2, 1]]
    rows = reverse(e)
    assert torch.equal(rows[0::2], e)
    assert torch.allclose(rows[1::2] - rows[0::2], reverse.reverse.expand_as(e), atol=1e-6)
    layer = GatedGCN(8).eval()
    out, _ = layer(x, rows, doubled)
    by_hand = replace(doubled, edge_layout=None)
    assert torch.equal(out, layer(x, rows, by_hand)[0])
    other = x.clone()
    other[2] += 1
    changed = (layer(other, rows, doubled)[0] != out).any(dim=1).tolist()
    assert changed == [False, True, True]
    forward_only = (layer(other, e, topology)[0] != layer(x, e, topology)[0]).any(dim=1)
    assert forward_only.tolist() == [False, False, True]
