"""When both operations are one, and that it makes no difference."""

import pytest
import torch
from torch import Tensor

from graphmamba.encode.norm import BatchNorm
from graphmamba.errors import UserError
from graphmamba.stack import GatedGCN
from graphmamba.stack.edge_update import _is_joint, gate_edges, norm_edges
from graphmamba.stack.gated_sum import gated_sum
from tests.helpers.gated_calls import draw
from tests.helpers.graphs import random_rows, random_topology
from tests.helpers.processes import only_interpreted, run_apart

CHANNELS = 5


@pytest.mark.parametrize("is_training", [True, False])
def test_it_is_the_sum_and_the_norm(is_training: bool) -> None:
    call = draw((2, 3, 0, 4), CHANNELS).to(torch.float32)
    norms = [BatchNorm(CHANNELS).train(is_training) for _ in range(2)]
    count = torch.tensor(7)
    x_hat, e_hat = gated_sum(call.nodes, call.edges, call.layout())
    follow = {"activation": "relu", "rate_after": 0.3, "seed": torch.tensor(4)}
    expected = norms[0](e_hat, count, after=call.edges, **follow)
    found = gate_edges(call.nodes, call.edges, call.layout(), norms[1])
    assert torch.equal(found.x_hat, x_hat)
    assert found.link is None
    assert torch.equal(norm_edges(found, norms[1], count, after=call.edges, **follow), expected)
    assert torch.equal(norms[0].running_mean, norms[1].running_mean)


def test_both_are_one_only_where_kernels_do_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr("graphmamba.scan.backends._FOUND", {"cpu": True, "fused": True})
    norm, rows = BatchNorm(CHANNELS), torch.zeros(3, CHANNELS)
    norm.backend = "fused"
    assert _is_joint("fused", norm, rows)
    assert not _is_joint("cpu", norm, rows)
    assert not _is_joint("reference", norm, rows)
    assert not _is_joint("fused", norm.eval(), rows)
    norm.train().backend = "reference"
    assert not _is_joint("fused", norm, rows)
    norm.backend = "auto"
    assert not _is_joint("fused", norm, rows)
    norm.is_synced = True
    assert not _is_joint("fused", norm, rows)
    norm.backend, norm.is_synced = "fused", False
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not _is_joint("fused", norm, rows)


@only_interpreted
def test_a_layer_gives_the_same_whether_both_are_one_or_not() -> None:
    run_apart(
        "from tests.stack.edge_update.test_edge_update import *\n"
        "for rate in (0.0, 0.4):\n"
        "    apart = layer_results(False, False, rate)\n"
        "    for forgets in (False, True):\n"
        "        joint = layer_results(True, forgets, rate)\n"
        "        for ours, plain in zip(joint, apart, strict=True):\n"
        "            torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)\n"
        "check_messages()\n",
        TRITON_INTERPRET="1",
    )


def layer_results(is_joint: bool, forgets: bool, rate: float) -> list[Tensor]:
    """Outputs and gradients of a layer on a batch with ghosts, and what its norms remember."""
    torch.manual_seed(0)
    layer = GatedGCN(CHANNELS, dropout=rate, backend="fused" if is_joint else "cpu")
    layer.node_norm.backend = layer.edge_norm.backend = "fused" if is_joint else "reference"
    layer.edges.backend = layer.edge_norm.backend
    layer.forgets = forgets
    topology = random_topology()
    x, e = (rows.requires_grad_() for rows in random_rows(topology, CHANNELS))
    fields = {"num_real_nodes": torch.tensor(20), "num_real_edges": torch.tensor(57)}
    topology = type(topology)(**{**vars(topology), **fields})
    out, edges = layer(x, e, topology)
    weights = torch.linspace(0, 1, CHANNELS)
    (out * weights).sum().add((edges * weights).square().sum()).backward()
    found = [x.grad, e.grad, *(each.grad for each in layer.parameters())]
    return [out.detach(), edges.detach(), *found, *(each.clone() for each in layer.buffers())]


def check_messages() -> None:
    """Bad input is refused by name, as where one operation follows the other."""
    call = draw((2, 3), CHANNELS).to(torch.float32)
    norm = BatchNorm(CHANNELS)
    norm.backend = "fused"
    gated = gate_edges(call.nodes, call.edges, call.layout(), norm, backend="fused")
    for wrong, text in (
        ({"after": call.edges[1:]}, "after must have shape"),
        ({"rate_after": 1.5}, "rate_after must be"),
        ({"activation": "tanh"}, "activation must be"),
    ):
        with pytest.raises(UserError, match=text):
            norm_edges(gated, norm, **wrong)
    with pytest.raises(UserError, match="scale must have shape"):
        gate_edges(call.nodes, call.edges, call.layout(), norm, torch.ones(3), backend="fused")
