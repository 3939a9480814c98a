"""The last layers of a model."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from graphmamba.data.batch import Topology
from graphmamba.data.catalog import Task
from graphmamba.errors import UserError
from graphmamba.nn.heads import HEADS, GraphHead, HeadConfig, Mlp, UnitLength, pair_scores, pool
from graphmamba.nn.norm import Dropout
from tests.helpers.typecheck import typecheck_off

TOPOLOGY = Topology(
    edge_index=torch.empty(2, 0, dtype=torch.long),
    batch=torch.tensor([0, 0, 0, 2, 2]),
    num_graphs=3,
)


@pytest.mark.parametrize(
    ("channels", "outputs", "layers", "expected"),
    [(96, 10, 1, 970), (96, 21, 3, 18_624 + 2_037), (64, 5, 3, 8_645), (52, 10, 2, 3_286)],
)
def test_published_sizes(channels: int, outputs: int, layers: int, expected: int) -> None:
    mlp = Mlp(channels, outputs, HeadConfig(layers=layers))
    assert sum(parameter.numel() for parameter in mlp.parameters()) == expected


def hidden_rows(mlp: Mlp, x: Tensor) -> list[Tensor]:
    """What every linear layer but the first reads."""
    seen: list[Tensor] = []
    for part in mlp:
        if isinstance(part, nn.Linear):
            part.register_forward_hook(lambda _part, inputs, _output: seen.append(inputs[0]))
    mlp(x)
    return seen[1:]


def test_hidden_rows_have_unit_length_or_are_zero() -> None:
    mlp = Mlp(8, 3, HeadConfig(layers=3))
    with torch.no_grad():
        mlp[0].bias.fill_(0.0)
    x = torch.cat([torch.randn(20, 8), torch.zeros(1, 8)])
    first, second = hidden_rows(mlp, x)
    assert torch.allclose(first[:20].norm(dim=1), torch.ones(20), atol=1e-6)
    assert not first[20].any()
    lengths = second.norm(dim=1)
    assert torch.allclose(lengths[lengths > 0], torch.ones(1), atol=1e-6)


def test_row_normalisation_can_be_left_out() -> None:
    mlp = Mlp(8, 3, HeadConfig(layers=2, has_hidden_norm=False))
    (hidden,) = hidden_rows(mlp, 10 * torch.randn(20, 8))
    assert (hidden.norm(dim=1) > 1.1).any()


def test_tuned_form_drops_before_every_linear_layer() -> None:
    config = HeadConfig(layers=3, has_hidden_norm=False, activation="gelu", dropout=0.1)
    kinds = [type(part) for part in Mlp(8, 3, config)]
    hidden = [Dropout, nn.Linear, nn.GELU]
    assert kinds == [*hidden, *hidden, Dropout, nn.Linear]
    assert [type(part) for part in Mlp(8, 3, HeadConfig(layers=2))] == [
        nn.Linear,
        nn.ReLU,
        UnitLength,
        nn.Linear,
    ]


@pytest.mark.parametrize(
    ("options", "places"),
    [({}, "036"), ({"has_hidden_norm": False}, "024"), ({"dropout": 0.1}, "159")],
)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_weights_keep_the_names_they_are_stored_by(
    options: dict[str, object], places: str, activation: str
) -> None:
    mlp = Mlp(4, 2, HeadConfig(layers=3, activation=activation, **options))
    expected = [f"{place}.{part}" for place in places for part in ("weight", "bias")]
    assert list(mlp.state_dict()) == expected


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_hidden_rows_are_activated_before_they_are_scaled(activation: str) -> None:
    mlp, x = Mlp(8, 3, HeadConfig(layers=2, activation=activation)), torch.randn(20, 8)
    (hidden,) = hidden_rows(mlp, x)
    rows = getattr(nn.functional, activation)(mlp[0](x))
    assert torch.equal(hidden, nn.functional.normalize(rows, dim=-1))


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[2.0], [0.0], [-3.5]]),
        ("max", [[3.0], [0.0], [-3.0]]),
        ("sum", [[6.0], [0.0], [-7.0]]),
    ],
)
def test_pooling_by_hand(pooling: str, expected: list[list[float]]) -> None:
    x = torch.tensor([[1.0], [2.0], [3.0], [-3.0], [-4.0]])
    rows = pool(x, TOPOLOGY.batch, TOPOLOGY.num_graphs, pooling)
    assert torch.equal(rows, torch.tensor(expected))


@pytest.mark.parametrize(
    ("level", "rows", "columns"), [("graph", 3, 7), ("node", 5, 7), ("link", 5, 4)]
)
def test_shape_of_each_level(level: str, rows: int, columns: int) -> None:
    task = (
        Task("link", 0, "link_cross_entropy", "mrr")
        if level == "link"
        else Task(level, 7, "cross_entropy", "accuracy", classes=7)
    )
    head = HEADS[level](4, task, HeadConfig(layers=2))
    assert head(torch.randn(5, 4), TOPOLOGY).shape == (rows, columns)


def test_pair_scores_are_inner_products() -> None:
    z = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    assert pair_scores(z, torch.tensor([[0, 1], [1, 1]])).tolist() == [1.0, 10.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 0}, "head.layers must be at least 1, got 0"),
        (
            {"pooling": "median"},
            "head.pooling must be one of 'mean', 'max', 'sum', 'mean\\+max', 'mean\\+sum', got",
        ),
        ({"activation": "tanh"}, "head.activation must be one of"),
        ({"dropout": 1.0}, r"head.dropout must be in \[0, 1\), got 1.0"),
    ],
)
def test_wrong_options_are_rejected(options: dict[str, object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        HeadConfig(**options)


def test_two_poolings_stand_side_by_side() -> None:
    config = HeadConfig(layers=2, pooling="mean+sum", sum_divisor=4.0)
    head = HEADS["graph"](
        2, Task("graph", outputs=3, loss="l1", metric="mean_absolute_error"), config
    )
    assert [part.in_features for part in head.mlp if isinstance(part, nn.Linear)] == [4, 2]
    seen: list[Tensor] = []
    head.mlp.register_forward_hook(lambda _part, inputs, _output: seen.append(inputs[0]))
    head(torch.tensor([[1.0, 2], [3, 4], [5, 0], [1, 1], [3, 5]]), TOPOLOGY)
    assert seen[0].tolist() == [[3, 2, 2.25, 1.5], [0, 0, 0, 0], [2, 3, 1, 1.5]]


def test_a_divisor_must_be_a_number_above_zero() -> None:
    with pytest.raises(UserError, match=r"head\.sum_divisor must be positive and finite, got 0\.0"):
        HeadConfig(sum_divisor=0.0)


def test_numbers_of_a_graph_are_averaged_with_it_and_learned_by_themselves() -> None:
    torch.manual_seed(0)
    task = Task("graph", outputs=2, loss="l1", metric="mean_absolute_error")
    head = GraphHead(4, task, HeadConfig(), graph_columns=3)
    assert head.descriptors is not None
    numbers = torch.randn(3, 3) * torch.tensor([1.0, 50.0, 0.0]) + 7
    head.descriptors.standardize.measure(numbers)
    topology, x = replace(TOPOLOGY, columns={"graph_attr": numbers}), torch.randn(5, 4)
    head.eval()
    alone = [HEADS["graph"](4, task, HeadConfig()), head.descriptors]
    alone[0].mlp = head.mlp
    parts = [alone[0](x, TOPOLOGY), alone[1](numbers, None)]
    assert torch.allclose(head(x, topology), (parts[0] + parts[1]) / 2)
    head.train()
    head.descriptors.dropout.rate = 0.0
    seen = set()
    for seed in range(20):
        out = head(x, topology.with_dropout_seed(torch.tensor(seed)))
        chosen = [torch.isclose(out, part).all(dim=1) for part in parts]
        assert (chosen[0] ^ chosen[1]).all()
        seen.add(tuple(chosen[0].tolist()))
    assert len(seen) > 4
