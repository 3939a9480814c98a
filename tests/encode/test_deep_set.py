"""The network over frequencies by kernels, held to the same in plain PyTorch."""

import pytest
import torch
from torch import Tensor

from graphmamba.encode.config import LaplacianConfig
from graphmamba.encode.deep_set import deep_set
from graphmamba.encode.laplacian import DeepSet, LaplacianEncoder
from tests.helpers.processes import only_interpreted, run_apart

SHAPES = ((70, 10, 16), (130, 3, 5), (1, 16, 32), (0, 4, 8))


def draw(nodes: int, frequencies: int, device: str) -> tuple[Tensor, Tensor, Tensor]:
    """Entries, some of them missing, eigenvalues in a wider tensor, and signs."""
    generator = torch.Generator().manual_seed(nodes)
    vectors = torch.randn(nodes, frequencies, generator=generator)
    vectors[torch.rand(nodes, frequencies, generator=generator) < 0.2] = torch.nan
    wide = torch.rand(nodes, frequencies + 3, generator=generator)
    wide[:, frequencies - 1][vectors[:, -1].isnan()] = torch.nan
    signs = 1.0 - 2.0 * torch.randint(2, (frequencies,), generator=generator)
    return vectors.to(device), wide.to(device)[:, :frequencies], signs.to(device)


def results(
    network: DeepSet, drawn: tuple[Tensor, Tensor, Tensor], grad: Tensor, is_fused: bool
) -> dict[str, Tensor]:
    vectors, values, signs = drawn
    network.zero_grad()
    if is_fused:
        out = network.fused(vectors, values, signs)
    else:
        is_missing, dtype = vectors.isnan(), grad.dtype
        pairs = torch.stack([vectors * signs, values], dim=-1).to(dtype)
        out = network(pairs.masked_fill(is_missing[:, :, None], 0.0), is_missing)
    out.backward(grad)
    found = {name: parameter.grad for name, parameter in network.named_parameters()}
    return {"out": out.detach(), **found}


def assert_fused_is_as_exact_as_torch(device: str) -> None:
    for nodes, frequencies, channels in SHAPES:
        torch.manual_seed(0)
        network = DeepSet(LaplacianConfig(channels=channels)).to(device)
        exact = DeepSet(LaplacianConfig(channels=channels)).to(device).double()
        exact.load_state_dict(network.state_dict())
        drawn = draw(nodes, frequencies, device)
        # as it comes out of a concatenation: a part of wider rows
        grad = torch.randn(nodes, channels + 7, device=device)[:, 7:]
        truth = results(exact, drawn, grad.double(), is_fused=False)
        plain = results(network, drawn, grad, is_fused=False)
        ours, again = (results(network, drawn, grad, is_fused=True) for _ in range(2))
        for part, expected in truth.items():
            error, allowed = (
                (each[part].double() - expected).abs().sum() for each in (ours, plain)
            )
            assert error <= 2 * allowed + 1e-6 * expected.abs().sum(), (nodes, part)
            assert torch.equal(ours[part], again[part])


def assert_signs_can_be_left_out() -> None:
    network = DeepSet(LaplacianConfig())
    vectors, values, signs = draw(9, 4, "cpu")
    with torch.no_grad():
        found = network.fused(vectors, values, None)
        assert torch.equal(found, network.fused(vectors, values, torch.ones_like(signs)))
        assert not torch.equal(found, network.fused(vectors, values, -torch.ones_like(signs)))


def assert_maps_may_be_frozen_and_lie_apart() -> None:
    torch.manual_seed(0)
    vectors, values, signs = draw(9, 4, "cpu")
    drawn = [torch.randn(*shape) for shape in ((6, 2), (6,), (3, 6), (3,))]
    dense = [each.clone().requires_grad_() for each in drawn]
    out = deep_set(vectors, values, signs, *dense)
    assert (out > 0).all(dim=0).any()
    expected = torch.autograd.grad(out.square().sum(), dense)
    # every second number of a tensor twice as wide; the second map is frozen
    apart = [torch.stack([each, each], dim=-1).requires_grad_() for each in drawn]
    parts = [each[..., 0] for each in apart]
    parts[2] = parts[2].detach()
    again = deep_set(vectors, values, signs, *parts)
    assert torch.equal(again, out)
    again.square().sum().backward()
    assert apart[2].grad is None
    for leaf, gradient in zip(apart, expected, strict=True):
        assert leaf.grad is None or torch.equal(leaf.grad[..., 0], gradient)


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_torch() -> None:
    run_apart(
        "from tests.encode.test_deep_set import *\n"
        "assert_fused_is_as_exact_as_torch('cpu')\n"
        "assert_signs_can_be_left_out()\n"
        "assert_maps_may_be_frozen_and_lie_apart()\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_a_gpu_is_as_exact_as_torch() -> None:
    assert_fused_is_as_exact_as_torch("cuda")


@pytest.mark.gpu
def test_the_encoder_takes_the_kernels_where_it_can() -> None:
    vectors, values, _ = draw(50, 10, "cuda")
    for layers, expected in ((2, True), (3, False)):
        encoder = LaplacianEncoder(LaplacianConfig(layers=layers)).cuda()
        assert encoder.set_network.is_fused(vectors, values) is expected
        assert encoder.set_network.is_fused(vectors.double(), values.double()) is False


def test_elsewhere_the_encoder_takes_plain_torch() -> None:
    vectors, values, _ = draw(5, 4, "cpu")
    assert not DeepSet(LaplacianConfig()).is_fused(vectors, values)
