"""Structure from random walks."""

import pytest
import torch
from torch_geometric.data import Data

from graphmamba.nn.encoder_config import RandomWalkConfig
from graphmamba.nn.random_walk import RandomWalkEncoder

WALKS = Data(random_walk=torch.rand(12, 20, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RandomWalkConfig(), 40 + 20 * 28 + 28),
        (RandomWalkConfig(has_norm=False), 20 * 28 + 28),
        (RandomWalkConfig(walks=16, channels=20), 32 + 16 * 20 + 20),
        (RandomWalkConfig(form="mlp"), 40 + 20 * 56 + 56 + 56 * 28 + 28),
    ],
)
def test_sizes(config: RandomWalkConfig, expected: int) -> None:
    encoder = RandomWalkEncoder(config)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == expected
    assert encoder(WALKS).shape == (12, config.channels)


def test_norm_standardises_each_step() -> None:
    encoder = RandomWalkEncoder(RandomWalkConfig())
    normed = encoder.norm(WALKS.random_walk)
    assert torch.allclose(normed.mean(dim=0), torch.zeros(20), atol=1e-5)
    assert torch.allclose(encoder(WALKS), encoder.network(normed))


def test_ghosts_do_not_count_in_the_norm() -> None:
    encoder = RandomWalkEncoder(RandomWalkConfig())
    alone = encoder(Data(random_walk=WALKS.random_walk[:8]))
    padded = encoder(Data(random_walk=WALKS.random_walk, num_real_nodes=torch.tensor(8)))
    assert torch.allclose(padded[:8], alone, atol=1e-5)
