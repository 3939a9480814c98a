"""The last layers of a model."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from graphmamba.data.batch import Topology
from graphmamba.data.catalog import Task
from graphmamba.nn.heads import GraphHead, HeadConfig, Mlp, NodeHead, UnitLength, pair_scores
from graphmamba.nn.norm import Dropout
from tests.helpers.layers import count

TOPOLOGY = Topology(
    edge_index=torch.empty(2, 0, dtype=torch.long),
    batch=torch.tensor([0, 0, 0, 2, 2]),
    num_graphs=3,
)
REGRESSION = Task("graph", outputs=2, loss="l1", metric="mean_absolute_error")


@pytest.mark.parametrize(
    ("channels", "outputs", "layers", "expected"),
    [(96, 10, 1, 970), (96, 21, 3, 18_624 + 2_037), (64, 5, 3, 8_645), (52, 10, 2, 3_286)],
)
def test_published_sizes(channels: int, outputs: int, layers: int, expected: int) -> None:
    assert count(Mlp(channels, outputs, HeadConfig(layers=layers))) == expected


@pytest.mark.parametrize("has_norm", [True, False])
def test_hidden_rows_are_activated_then_scaled_to_unit_length(has_norm: bool) -> None:
    mlp, x = Mlp(8, 3, HeadConfig(layers=2, has_hidden_norm=has_norm)), torch.randn(20, 8)
    seen: list[Tensor] = []
    mlp[-1].register_forward_hook(lambda _part, inputs, _output: seen.append(inputs[0]))
    mlp(x)
    rows = mlp[0](x).relu()
    assert torch.equal(seen[0], nn.functional.normalize(rows, dim=-1) if has_norm else rows)
    assert not UnitLength()(torch.zeros(1, 8)).any()


def test_parts_stand_where_weights_are_stored_by_their_places() -> None:
    tuned = HeadConfig(layers=3, has_hidden_norm=False, activation="gelu", dropout=0.1)
    hidden = [Dropout, nn.Linear, nn.GELU]
    assert [type(part) for part in Mlp(8, 3, tuned)] == [*hidden, *hidden, Dropout, nn.Linear]
    published = [nn.Linear, nn.ReLU, UnitLength, nn.Linear]
    assert [type(part) for part in Mlp(8, 3, HeadConfig(layers=2))] == published


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[3, 2], [0, 0], [2, 3]]),
        ("max", [[5, 4], [0, 0], [3, 5]]),
        ("sum", [[2.25, 1.5], [0, 0], [1, 1.5]]),
        ("mean+max", [[3, 2, 5, 4], [0, 0, 0, 0], [2, 3, 3, 5]]),
        ("mean+sum", [[3, 2, 2.25, 1.5], [0, 0, 0, 0], [2, 3, 1, 1.5]]),
    ],
)
def test_poolings_stand_side_by_side(pooling: str, expected: list[list[float]]) -> None:
    head = GraphHead(2, REGRESSION, HeadConfig(layers=2, pooling=pooling, sum_divisor=4.0))
    seen: list[Tensor] = []
    head.mlp.register_forward_hook(lambda _part, inputs, _output: seen.append(inputs[0]))
    head(torch.tensor([[1.0, 2], [3, 4], [5, 0], [1, 1], [3, 5]]), TOPOLOGY)
    assert seen[0].tolist() == expected


def test_nodes_are_predicted_and_nodes_of_pairs_embedded() -> None:
    classes = Task("node", 7, "cross_entropy", "accuracy", classes=7)
    for task, columns in ((classes, 7), (Task("link", 0, "link_cross_entropy", "mrr"), 4)):
        head = NodeHead(4, task, HeadConfig(layers=2))
        assert head(torch.randn(5, 4), TOPOLOGY).shape == (5, columns)


def test_pair_scores_are_inner_products() -> None:
    z = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    assert pair_scores(z, torch.tensor([[0, 1], [1, 1]])).tolist() == [1.0, 10.0]


def test_numbers_of_a_graph_are_averaged_with_it_and_learned_by_themselves() -> None:
    head = GraphHead(4, REGRESSION, HeadConfig(), graph_columns=3)
    assert head.descriptors is not None
    numbers = torch.randn(3, 3) * torch.tensor([1.0, 50.0, 0.0]) + 7
    head.descriptors.standardize.measure(numbers)
    topology, x = replace(TOPOLOGY, columns={"graph_attr": numbers}), torch.randn(5, 4)
    head.eval()
    alone = GraphHead(4, REGRESSION, HeadConfig())
    alone.mlp = head.mlp
    parts = [alone(x, TOPOLOGY), head.descriptors(numbers, None)]
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
