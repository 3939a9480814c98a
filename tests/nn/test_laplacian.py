"""Positions from the Laplacian's spectrum."""

import pytest
import torch
from torch_geometric.data import Data

from graphmamba.nn.encoder_config import LaplacianConfig
from graphmamba.nn.laplacian import GateEncoder, LaplacianEncoder

FORMS = ["deepset", "transformer"]


def spectrum(nodes: int, frequencies: int, missing: int = 0, seed: int = 0) -> Data:
    generator = torch.Generator().manual_seed(seed)
    vectors = torch.randn(nodes, frequencies, generator=generator)
    values = torch.rand(nodes, frequencies, generator=generator)
    if missing:
        vectors[:, -missing:] = values[:, -missing:] = torch.nan
    return Data(laplacian_vectors=vectors, laplacian_values=values)


@pytest.mark.parametrize(
    ("channels", "layers", "expected"), [(8, 2, 184), (16, 2, 624), (16, 1, 48), (16, 3, 1_680)]
)
def test_deepset_sizes(channels: int, layers: int, expected: int) -> None:
    encoder = LaplacianEncoder(LaplacianConfig(channels=channels, layers=layers))
    assert sum(parameter.numel() for parameter in encoder.parameters()) == expected


def test_deepset_by_hand() -> None:
    encoder = LaplacianEncoder(LaplacianConfig(channels=3, frequencies=2)).eval()
    graphs = spectrum(4, 2)
    first, _, second, _ = encoder.set_network.mlp
    total = torch.zeros(4, 3)
    for k in range(2):
        pair = torch.stack([graphs.laplacian_vectors[:, k], graphs.laplacian_values[:, k]], dim=1)
        total += second(first(pair).relu()).relu()
    assert torch.allclose(encoder(graphs), total, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_missing_frequencies_change_nothing(form: str) -> None:
    """Ten frequencies of which four are missing are worth as much as the six alone."""
    encoder = LaplacianEncoder(LaplacianConfig(form=form, frequencies=10)).eval()
    padded = spectrum(5, 10, missing=4)
    alone = Data(
        laplacian_vectors=padded.laplacian_vectors[:, :6],
        laplacian_values=padded.laplacian_values[:, :6],
    )
    rows = encoder(padded)
    assert not torch.isnan(rows).any()
    assert torch.allclose(rows, encoder(alone), atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_nothing_but_missing_frequencies_is_zero(form: str) -> None:
    encoder = LaplacianEncoder(LaplacianConfig(form=form, frequencies=3)).eval()
    assert not encoder(spectrum(2, 3, missing=3)).any()


@pytest.mark.parametrize("form", FORMS)
def test_gradients_are_finite_beside_missing_frequencies(form: str) -> None:
    encoder = LaplacianEncoder(LaplacianConfig(form=form, frequencies=4))
    encoder(spectrum(6, 4, missing=2)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in encoder.parameters())


def test_signs_flip_in_training_only() -> None:
    encoder = LaplacianEncoder(LaplacianConfig())
    graphs = spectrum(6, 10)
    encoder.eval()
    assert torch.equal(encoder(graphs), encoder(graphs))
    encoder.train()
    draws = torch.stack([encoder(graphs) for _ in range(8)])
    assert len(draws.unique(dim=0)) > 1


def test_a_sign_is_shared_by_the_whole_batch() -> None:
    encoder = LaplacianEncoder(LaplacianConfig(frequencies=10))
    assert encoder.draw_signs().shape == (10,)


def test_signs_are_fair_and_independent() -> None:
    torch.manual_seed(0)
    encoder = LaplacianEncoder(LaplacianConfig(frequencies=10))
    signs = torch.stack([encoder.draw_signs() for _ in range(4000)])
    assert set(signs.unique().tolist()) == {-1.0, 1.0}
    # four standard deviations of a mean of 4000 fair signs
    assert signs.mean(dim=0).abs().max() < 4 / 4000**0.5
    among = (signs.T @ signs / 4000).fill_diagonal_(0)
    assert among.abs().max() < 5 / 4000**0.5
    assert (signs[1:] * signs[:-1]).mean(dim=0).abs().max() < 5 / 4000**0.5


def test_signs_follow_the_seed_and_the_checkpoint() -> None:
    def fresh() -> LaplacianEncoder:
        torch.manual_seed(5)
        return LaplacianEncoder(LaplacianConfig())

    first, second = fresh(), fresh()
    assert torch.equal(first.draw_signs(), second.draw_signs())
    torch.manual_seed(6)
    resumed = LaplacianEncoder(LaplacianConfig())
    resumed.load_state_dict(first.state_dict())
    for _ in range(5):
        assert torch.equal(first.draw_signs(), resumed.draw_signs())


def test_gate_positions_are_linear_and_never_flipped() -> None:
    encoder = GateEncoder(frequencies=4, channels=6)
    graphs = spectrum(3, 5, missing=2)
    rows = encoder(graphs)
    vectors = graphs.laplacian_vectors[:, :4].nan_to_num()
    assert torch.equal(rows, encoder(graphs))
    assert torch.allclose(rows, encoder.linear(vectors))
