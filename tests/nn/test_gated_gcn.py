"""GatedGCN as a layer for graphs of any origin."""

import pytest
import torch

from graphmamba import GatedGCNConv
from graphmamba.errors import UserError
from graphmamba.nn import GatedGCN
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.typecheck import typecheck_off

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
def test_all_backends_give_the_same_layer(device: str) -> None:
    topology = random_topology()
    rows = [row.to(device) for row in random_rows(topology)]
    pairs = topology.edge_index.to(device)
    plain, fast = (GatedGCNConv(8, backend=name).to(device) for name in ("reference", "auto"))
    fast.load_state_dict(plain.state_dict())
    results = []
    for layer in (plain, fast):
        x, e = (row.clone().requires_grad_() for row in rows)
        out, edges = layer(x, pairs, e)
        (out.square().sum() + edges.square().sum()).backward()
        results.append([out, edges, x.grad, e.grad, *(p.grad for p in layer.parameters())])
    for ours, others in zip(*results, strict=True):
        torch.testing.assert_close(ours, others, rtol=1e-4, atol=1e-4)


def test_it_is_the_layer_of_the_models() -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer, conv = GatedGCN(8).eval(), GatedGCNConv(8).eval()
    conv.conv.load_state_dict(layer.state_dict())
    for ours, others in zip(
        layer(x, e, topology), conv(x, topology.edge_index.int(), e), strict=True
    ):
        assert torch.equal(ours, others)


PAIRS = torch.tensor([[0, 1], [1, 2]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.ones(3, 7)}, r"x must have shape \[nodes, 8\], got \[3, 7\]"),
        ({"x": torch.ones(3, 8).long()}, r"x must hold floats, got torch.int64"),
        ({"edge_attr": torch.ones(1, 8)}, r"edge_attr must have shape \[2, 8\], got \[1, 8\]"),
        ({"x": torch.ones(3, 8).half()}, r"x.dtype must be that of .*, torch.float32, got .*16"),
        ({"edge_attr": torch.ones(2, 8).double()}, r"edge_attr.dtype must be .*32, got .*64"),
        ({"edge_attr": None}, r"edge_attr must be a tensor, got NoneType"),
        (
            {"edge_index": PAIRS[[0, 1, 1]]},
            r"edge_index must have shape \[2, edges\], got \[3, 2\]",
        ),
        ({"edge_index": PAIRS + 0.5}, r"edge_index must hold integers, got torch.float32"),
        (
            {"edge_index": torch.tensor([[0, 1], [1, 3]])},
            r"edge_index must hold numbers of the 3 nodes, 0 to 2, got 3",
        ),
        ({"source_order": torch.tensor([0])}, r"source_order must have shape \[2\], got \[1\]"),
        ({"source_order": torch.tensor([0, 0])}, r"source_order must hold each edge once, got 0"),
    ],
)
def test_wrong_arguments_are_rejected(changes: dict[str, object], message: str) -> None:
    right = {
        "x": torch.ones(3, 8),
        "edge_index": PAIRS,
        "edge_attr": torch.ones(2, 8),
    }
    with typecheck_off(), pytest.raises(UserError, match=message):
        GatedGCNConv(8)(**{**right, **changes})


def test_dropout_draws_anew_in_training_only() -> None:
    topology = random_topology()
    x, e = random_rows(topology)
    layer = GatedGCNConv(8, dropout=0.5)
    first, second = (layer(x, topology.edge_index, e)[0] for _ in range(2))
    assert not torch.equal(first, second)
    layer.eval()
    first, second = (layer(x, topology.edge_index, e)[0] for _ in range(2))
    assert torch.equal(first, second)
