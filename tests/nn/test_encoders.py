"""Features and positions into rows."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, CATALOG, Features
from graphmamba.data.transforms.precompute import Precompute, add_columns
from graphmamba.errors import UserError
from graphmamba.nn.config import EncoderConfig, LaplacianConfig, RandomWalkConfig
from graphmamba.nn.encoders import (
    EDGE_STATISTICS,
    LARGEST_INPUT,
    NODE_STATISTICS,
    CategoryEncoder,
    GateEncoder,
    GraphEncoder,
    LaplacianEncoder,
    PreLayer,
    RandomWalkEncoder,
    RawColumns,
    ScaleWords,
    Standardize,
    scaling_of,
)
from tests.helpers.layers import count
from tests.helpers.synthetic import synthetic_graphs

ASKED = Precompute(num_eigenvectors=10, walk_length=20)
FORMS = ["deepset", "transformer"]


def batch_of(name: str) -> Data:
    graphs = synthetic_graphs(CATALOG[name], count=3)
    return Batch.from_data_list([add_columns(graph, ASKED) for graph in graphs])


def test_atoms_and_bonds_have_the_published_sizes() -> None:
    assert count(CategoryEncoder(ATOM_VOCABULARY, 80)) == 13_920
    assert count(CategoryEncoder(BOND_VOCABULARY, 96)) == 1_248


def test_categories_sum_one_vector_per_column() -> None:
    encoder = CategoryEncoder((3, 2), 4)
    rows = encoder(torch.tensor([[2, 1], [0, 0]]))
    assert torch.equal(rows[0], encoder.weight[2] + encoder.weight[4])
    assert torch.equal(rows[1], encoder.weight[0] + encoder.weight[3])


def test_each_table_has_its_own_xavier_bound() -> None:
    weight = CategoryEncoder((1000, 2), 50).weight.detach()
    for table in (weight[:1000], weight[1000:]):
        bound = (6 / (table.shape[0] + 50)) ** 0.5
        assert 0.8 * bound < table.abs().max() <= bound


@pytest.mark.parametrize("name", ["pascalvoc-sp", "coco-sp"])
def test_published_statistics_scale_to_mean_zero_and_deviation_one(name: str) -> None:
    for table, columns in ((NODE_STATISTICS, 14), (EDGE_STATISTICS, 2)):
        scaling = Standardize(table[name])
        mean, deviation = (torch.tensor([row]) for row in (table[name].mean, table[name].deviation))
        assert torch.equal(scaling(mean), torch.zeros(1, columns))
        assert torch.allclose(scaling(mean + deviation), torch.ones(1, columns), atol=1e-4)


def test_the_training_graphs_scale_the_inputs() -> None:
    rows = torch.tensor([[1.0, 7.0, 0.0], [3.0, 7.0, 1e6], [5.0, 7.0, 0.0], [7.0, 7.0, 0.0]])
    scaling = scaling_of("train", 3, NODE_STATISTICS)
    assert isinstance(scaling, Standardize)
    scaling.measure(rows)
    scaled = scaling(rows)
    assert torch.allclose(scaled.mean(dim=0), torch.zeros(3), atol=1e-6)
    assert scaled[:, 1].tolist() == [0.0] * 4  # a constant column says nothing
    scaling.measure(rows[:0])  # such as edges, where training graphs have none
    assert torch.equal(scaling(rows), scaled)
    assert torch.allclose(scaled[:, [0, 2]].std(dim=0, correction=0), torch.ones(2))
    assert float(scaling(1000 * rows).abs().max()) == LARGEST_INPUT
    assert set(scaling.state_dict()) == {"mean", "deviation"}


def test_bags_of_words_do_not_depend_on_their_length() -> None:
    rows = (torch.rand(20, 50) < 0.1).float()
    rows[0] = 0
    scaling = scaling_of("bag_of_words", 50, NODE_STATISTICS)
    assert isinstance(scaling, ScaleWords)
    scaling.measure(rows)
    assert torch.allclose(scaling(rows), scaling(3 * rows))
    assert float(scaling(rows).square().mean()) == pytest.approx(1.0, abs=1e-5)
    assert float(scaling(rows)[0].abs().max()) == 0.0


def test_the_degree_is_one_more_column() -> None:
    config = EncoderConfig(has_degree=True)
    raw = RawColumns("nodes", Features(node_columns=2), 4, config)
    graph = Data(x=torch.zeros(3, 2), edge_index=torch.tensor([[0, 1, 2], [1, 0, 1]]))
    assert torch.allclose(raw.columns(graph)[:, 2], torch.tensor([1.0, 2.0, 0.0]).log1p())
    assert raw(graph).shape == (3, 4)


def test_features_come_first_and_positions_last() -> None:
    config = EncoderConfig(laplacian=LaplacianConfig(), random_walk=RandomWalkConfig())
    graphs = batch_of("peptides-func")
    encoder = GraphEncoder(CATALOG["peptides-func"].features, 96, config).eval()
    atoms, laplacian, walks = encoder.nodes[0].parts
    parts = [atoms(graphs), laplacian(graphs), walks(graphs)]
    assert [part.shape[1] for part in parts] == [52, 16, 28]
    assert torch.equal(encoder(graphs).x, torch.cat(parts, dim=1))


@pytest.mark.parametrize("name", ["peptides-func", "pascalvoc-sp", "malnet-tiny"])
def test_every_kind_of_columns_gets_rows_of_the_width_asked_for(name: str) -> None:
    config = EncoderConfig(laplacian=LaplacianConfig(), stable_gate_eigenvectors=8, pre_layers=1)
    graphs = batch_of(name)
    encoded = GraphEncoder(CATALOG[name].features, 24, config)(graphs)
    assert encoded.x.shape == encoded.gate.shape == (graphs.num_nodes, 24)
    # without edge features one row stands for all edges
    assert encoded.e.shape == (1 if name == "malnet-tiny" else graphs.num_edges, 24)


def test_malnet_has_its_published_encoder() -> None:
    config = EncoderConfig(has_node_norm=True, pre_layers=1)
    assert count(GraphEncoder(Features("numbers", 5), 64, config)) == 384 + 64 + 128 + 4_224


def test_norms_come_right_after_the_encoders() -> None:
    config = EncoderConfig(has_node_norm=True, has_edge_norm=True)
    encoder, graphs = GraphEncoder(CATALOG["mnist"].features, 24, config), batch_of("mnist")
    encoded = encoder(graphs)
    for rows, part in ((encoded.x, encoder.nodes), (encoded.e, encoder.edges)):
        expected = nn.functional.batch_norm(part[0](graphs), None, None, training=True)
        assert torch.allclose(rows, expected, atol=1e-6)


def test_pre_layer_normalizes_rows() -> None:
    rows = PreLayer(16)(torch.randn(30, 16))
    assert (rows >= 0).all()
    assert torch.allclose(rows.norm(dim=1), torch.ones(30))


def test_positions_must_leave_room() -> None:
    config = EncoderConfig(laplacian=LaplacianConfig(channels=16))
    with pytest.raises(UserError, match=r"channels must be more than the 16 .* got 16"):
        GraphEncoder(CATALOG["mnist"].features, 16, config)


def spectrum(nodes: int, num_eigenvectors: int, missing: int = 0) -> Data:
    vectors, values = torch.randn(2, nodes, num_eigenvectors)
    if missing:
        vectors[:, -missing:] = values[:, -missing:] = torch.nan
    return Data(laplacian_vectors=vectors, laplacian_values=values)


@pytest.mark.parametrize(
    ("channels", "layers", "expected"), [(8, 2, 184), (16, 2, 624), (16, 1, 48), (16, 3, 1_680)]
)
def test_deepset_sizes(channels: int, layers: int, expected: int) -> None:
    assert count(LaplacianEncoder(LaplacianConfig(channels=channels, layers=layers))) == expected


def test_deepset_by_hand() -> None:
    encoder = LaplacianEncoder(LaplacianConfig(channels=3, num_eigenvectors=2)).eval()
    graphs = spectrum(4, 2)
    first, _, second, _ = encoder.set_network.mlp
    total = torch.zeros(4, 3)
    for k in range(2):
        pair = torch.stack([graphs.laplacian_vectors[:, k], graphs.laplacian_values[:, k]], dim=1)
        total += second(first(pair).relu()).relu()
    assert torch.allclose(encoder(graphs), total, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_missing_frequencies_count_for_nothing(form: str) -> None:
    """Ten eigenvectors of which four are missing are worth as much as the six alone."""
    encoder = LaplacianEncoder(LaplacianConfig(form=form, num_eigenvectors=10)).eval()
    padded = spectrum(5, 10, missing=4)
    alone = Data(
        laplacian_vectors=padded.laplacian_vectors[:, :6],
        laplacian_values=padded.laplacian_values[:, :6],
    )
    rows = encoder(padded)
    assert torch.allclose(rows, encoder(alone), atol=1e-5)
    rows.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters())
    assert not encoder(spectrum(2, 10, missing=10)).any()


def test_signs_flip_in_training_only_and_go_on_with_a_checkpoint() -> None:
    encoder, graphs = LaplacianEncoder(LaplacianConfig()), spectrum(6, 10)
    draws = torch.stack([encoder(graphs) for _ in range(8)])
    assert len(draws.unique(dim=0)) > 1
    resumed = LaplacianEncoder(LaplacianConfig())
    resumed.load_state_dict(encoder.state_dict())
    assert torch.equal(encoder(graphs), resumed(graphs))
    encoder.eval()
    assert torch.equal(encoder(graphs), encoder(graphs))


def test_gate_positions_are_linear_and_never_flipped() -> None:
    encoder, graphs = GateEncoder(num_eigenvectors=4, channels=6), spectrum(3, 5, missing=2)
    vectors = graphs.laplacian_vectors[:, :4].nan_to_num()
    assert torch.allclose(encoder(graphs), encoder.linear(vectors))


WALKS = Data(random_walk=torch.rand(12, 20, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RandomWalkConfig(), 40 + 20 * 28 + 28),
        (RandomWalkConfig(has_norm=False), 20 * 28 + 28),
        (RandomWalkConfig(walk_length=16, channels=20), 32 + 16 * 20 + 20),
        (RandomWalkConfig(form="mlp"), 40 + 20 * 56 + 56 + 56 * 28 + 28),
    ],
)
def test_random_walk_sizes(config: RandomWalkConfig, expected: int) -> None:
    encoder = RandomWalkEncoder(config)
    assert count(encoder) == expected
    assert encoder(WALKS).shape == (12, config.channels)


def test_paddings_do_not_count_in_the_norm_of_walks() -> None:
    encoder = RandomWalkEncoder(RandomWalkConfig())
    alone = encoder(Data(random_walk=WALKS.random_walk[:8]))
    padded = encoder(Data(random_walk=WALKS.random_walk, num_real_nodes=torch.tensor(8)))
    assert torch.allclose(padded[:8], alone, atol=1e-5)
