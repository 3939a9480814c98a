"""The spectral filter against dense matrices."""

import pytest
import torch

from graphmamba.data.batch import Topology
from graphmamba.errors import UserError
from graphmamba.nn import SpectralConfig, SpectralFilter
from graphmamba.nn.spectral import SpectralBasis
from tests.helpers.graphs import path, random_rows, with_columns, with_spectrum

CONFIG = SpectralConfig(num_eigenvectors=12, cutoff=3.0, gaussians=8)
SIZES = [7, 1, 0, 5]


@pytest.fixture
def topology() -> Topology:
    return with_spectrum(torch.cat([path(7), path(5, start=8)], dim=1), SIZES, 12)


def filter_of(channels: int = 8) -> SpectralFilter:
    torch.manual_seed(0)
    made = SpectralFilter(channels, CONFIG).double()
    torch.nn.init.normal_(made.filter[1].weight)
    return made


def test_it_is_its_formula(topology: Topology) -> None:
    x, _ = random_rows(topology, dtype=torch.float64)
    made = filter_of()
    found, start = made(x, topology), 0
    centers = torch.linspace(0, 3, 8, dtype=torch.float64)
    for size in SIZES:
        rows = x[start : start + size]
        if size:
            source, target = path(size)
            adjacency = torch.zeros(size, size, dtype=torch.float64)
            adjacency[source, target] = 1
            values, U = torch.linalg.eigh(adjacency.sum(0).diag() - adjacency)
            window = 0.5 + 0.5 * torch.cos(torch.pi * (2 * values / 3 - 1).clamp(0, 1))
            bumps = torch.exp(-0.5 * ((values[:, None] - centers) / (3 / 7)) ** 2)
            response = window[:, None] * made.filter(bumps)
            expected = U @ (response * (U.T @ (rows * made.gate(rows))))
            assert torch.allclose(found[start : start + size], expected, atol=1e-5)
        start += size


def test_signs_of_eigenvectors_do_not_matter(topology: Topology) -> None:
    x, _ = random_rows(topology, dtype=torch.float64)
    flips = torch.tensor([1.0, -1.0]).repeat(6)
    vectors = topology.columns["laplacian_vectors"]
    flipped = with_columns(topology, laplacian_vectors=vectors * flips)
    made = filter_of()
    assert torch.allclose(made(x, topology), made(x, flipped), atol=1e-12)


def test_nothing_passes_the_cutoff() -> None:
    # a path of three has the eigenvalues 0, 1 and 3
    basis = SpectralBasis.of(with_spectrum(path(3), [3], 4), SpectralConfig(4, cutoff=2.0))
    assert basis.window[0].flatten().tolist() == pytest.approx([1, 1, 0, 0], abs=1e-6)
    assert not basis.vectors[0][:, :, 3].any()


def test_a_new_filter_adds_nothing_and_learns(topology: Topology) -> None:
    x, _ = random_rows(topology)
    made = SpectralFilter(8, CONFIG)
    out = made(x, topology)
    assert not out.any()
    out.sum().backward()
    assert made.filter[1].weight.grad.abs().max() > 0


def test_missing_spectra_are_asked_for(topology: Topology) -> None:
    bare = with_columns(topology, laplacian_values=None)
    with pytest.raises(UserError, match=r"topology must have laplacian_vectors and .* got None"):
        filter_of()(random_rows(topology, dtype=torch.float64)[0], bare)
