"""Features and positions into rows."""

import pytest
import torch
from torch import nn
from torch_geometric.data import Batch, Data

from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, CATALOG, Features
from graphmamba.data.transforms.precompute import Precompute, add_columns
from graphmamba.errors import UserError
from graphmamba.nn.categories import CategoryEncoder
from graphmamba.nn.encoder import Concat, GraphEncoder, NodeFeatures, PreLayer
from graphmamba.nn.encoder_config import EncoderConfig, LaplacianConfig, RandomWalkConfig
from graphmamba.nn.norm import BatchNorm
from graphmamba.nn.numbers import NumberEncoder
from graphmamba.nn.superpixels import EDGE_STATISTICS, NODE_STATISTICS
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.typecheck import typecheck_off

ASKED = Precompute(frequencies=10, walks=20)


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


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
def test_standardisation_gives_the_mean_zero(name: str) -> None:
    for table, columns in ((NODE_STATISTICS, 14), (EDGE_STATISTICS, 2)):
        statistics = table[name]
        encoder = NumberEncoder(columns, 8, statistics)
        mean = torch.tensor([statistics.mean])
        assert torch.allclose(encoder(mean), encoder.linear.bias[None])
        above = mean + torch.tensor([statistics.deviation])
        assert torch.allclose(encoder.standardize(above), torch.ones(1, columns), atol=1e-4)
        assert set(encoder.state_dict()) >= {"standardize.mean", "standardize.deviation"}


def test_concatenation_takes_any_number() -> None:
    graphs = batch_of("mnist")
    parts = [
        NodeFeatures(CATALOG["mnist"].features, width, EncoderConfig()) for width in (1, 2, 3, 4)
    ]
    assert Concat(*parts)(graphs).shape == (graphs.num_nodes, 10)


def test_features_come_first_and_positions_last() -> None:
    config = EncoderConfig(laplacian=LaplacianConfig(), random_walk=RandomWalkConfig())
    graphs = batch_of("peptides-func")
    encoder = GraphEncoder(CATALOG["peptides-func"].features, 96, config).eval()
    x = encoder(graphs).x
    atoms, laplacian, walks = encoder.nodes[0].parts
    assert torch.equal(x[:, :52], atoms(graphs))
    assert torch.equal(x[:, 52:68], laplacian(graphs))
    assert torch.equal(x[:, 68:], walks(graphs))


@pytest.mark.parametrize("name", CATALOG)
def test_every_set_gets_rows_of_the_width_asked_for(name: str) -> None:
    config = EncoderConfig(laplacian=LaplacianConfig(), gate_frequencies=8, pre_layers=1)
    graphs = batch_of(name)
    encoded = GraphEncoder(CATALOG[name].features, 24, config)(graphs)
    assert encoded.x.shape == (graphs.num_nodes, 24)
    assert encoded.e is not None
    assert encoded.e.shape == (graphs.num_edges, 24)
    assert encoded.gate is not None
    assert encoded.gate.shape == (graphs.num_nodes, 24)


def test_edges_can_be_left_out() -> None:
    encoder = GraphEncoder(CATALOG["mnist"].features, 24, EncoderConfig(has_edges=False))
    assert encoder(batch_of("mnist")).e is None


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


def test_pre_layer_makes_unit_rows() -> None:
    rows = PreLayer(16)(torch.randn(30, 16))
    assert (rows >= 0).all()
    assert torch.allclose(rows.norm(dim=1), torch.ones(30))


def test_positions_must_leave_room() -> None:
    config = EncoderConfig(laplacian=LaplacianConfig(channels=16))
    with pytest.raises(UserError, match=r"channels must be more than the 16 .* got 16"):
        GraphEncoder(CATALOG["mnist"].features, 16, config)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LaplacianConfig(form="sum"), "laplacian.form must be one of 'deepset'"),
        (lambda: LaplacianConfig(form="transformer", heads=3), "must divide channels=16, got 3"),
        (lambda: RandomWalkConfig(walks=0), "random_walk.walks must be at least 1, got 0"),
        (lambda: EncoderConfig(standardization="mnist"), "standardization must be one of"),
        (lambda: EncoderConfig(pre_layers=-1), "pre_layers must be at least 0, got -1"),
    ],
)
def test_wrong_options_are_refused_at_construction(make: object, message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        make()


class TestBatchNorm:
    def test_is_torch_for_two_rows_or_more(self) -> None:
        ours, theirs = BatchNorm(4), nn.BatchNorm1d(4)
        x = torch.randn(7, 4)
        assert torch.equal(ours(x), theirs(x))
        # ours are moved in two steps, which may round once more
        torch.testing.assert_close(ours.running_mean, theirs.running_mean)
        torch.testing.assert_close(ours.running_var, theirs.running_var)

    @pytest.mark.parametrize("rows", [0, 1])
    def test_small_batches_use_what_was_seen(self, rows: int) -> None:
        norm = BatchNorm(4)
        norm(torch.randn(50, 4) * 3 + 1)
        seen = norm.running_mean.clone()
        x = torch.randn(rows, 4)
        trained = norm(x)
        assert torch.equal(norm.running_mean, seen)
        assert torch.equal(trained, norm.eval()(x))
