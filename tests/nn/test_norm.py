"""Normalisation of batches of any size, and dropout that follows a seed."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from graphmamba.nn import GatedGCN, GPSLayer
from graphmamba.nn.norm import BatchNorm, Dropout, number_dropouts
from graphmamba.ops.dropout import Drop, dropped
from tests.helpers.graphs import random_rows, random_topology


def test_the_mask_follows_seed_and_site_and_keeps_the_mean() -> None:
    part, x = Dropout(0.25), torch.ones(400, 50)
    part.site = 3
    found = part(x, torch.tensor(7))
    assert torch.equal(found, dropped(x, Drop(0.25, torch.tensor(7), 3)))
    assert found.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert abs(float(found.mean()) - 1) < 0.02
    part.site = 4
    assert not torch.equal(part(x, torch.tensor(7)), found)
    assert torch.equal(part.eval()(x, torch.tensor(7)), x)


def test_without_a_seed_it_is_drawn_anew() -> None:
    part, x = Dropout(0.5), torch.ones(50, 8)
    torch.manual_seed(0)
    first, second = part(x), part(x)
    torch.manual_seed(0)
    assert not torch.equal(first, second)
    assert torch.equal(part(x), first)


def test_dropouts_of_a_layer_drop_different_entries() -> None:
    both = nn.ModuleList([GPSLayer(4, GatedGCN(4), None), GatedGCN(4)])
    number_dropouts(both)
    sites = [part.site for part in both.modules() if isinstance(part, Dropout)]
    assert sites == list(range(8))


def test_a_layer_follows_the_seed_of_its_pass() -> None:
    topology = random_topology((30,), seed=1)
    x, e = random_rows(topology)
    layer = GatedGCN(8, dropout=0.5)
    first, second = (layer(x, e, topology)[0] for _ in range(2))
    assert torch.equal(first, second)
    other = layer(x, e, replace(topology, seed=torch.tensor(2)))[0]
    assert not torch.equal(first, other)


class TestBatchNorm:
    @pytest.mark.parametrize("rows", [0, 1])
    def test_small_batches_use_what_was_seen(self, rows: int) -> None:
        norm = BatchNorm(4)
        norm(torch.randn(50, 4) * 3 + 1)
        seen = norm.running_mean.clone()
        x = torch.randn(rows, 4)
        trained = norm(x)
        assert torch.equal(norm.running_mean, seen)
        assert torch.equal(trained, norm.eval()(x))
