"""Own operators know no forward mode, and say so instead of dropping tangents."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from graphmamba import GatedGCNConv, causal_conv1d, selective_scan
from graphmamba.ops.backends import Backend

ENDS = torch.tensor([0, 2, 5])
EDGES = torch.tensor([[0, 0, 2], [0, 1, 1]])
Function = Callable[[Tensor], Tensor]


def scan_of(leaf: int, backend: Backend) -> tuple[Function, Tensor]:
    u, delta, B, C = (torch.randn(5, 3, dtype=torch.float64) for _ in range(4))
    leaves = [u, delta, -torch.rand(3, 3, dtype=torch.float64), B, C]

    def scan(changed: Tensor) -> Tensor:
        given = [*leaves[:leaf], changed, *leaves[leaf + 1 :]]
        return selective_scan(*given, cu_seqlens=ENDS, backend=backend, check=False)

    return scan, leaves[leaf]


def convolution(backend: Backend) -> tuple[Function, Tensor]:
    weight = torch.randn(3, 4, dtype=torch.float64)

    def convolve(x: Tensor) -> Tensor:
        return causal_conv1d(x, weight, cu_seqlens=ENDS, backend=backend, check=False)

    return convolve, torch.randn(5, 3, dtype=torch.float64)


def layer(backend: Backend) -> tuple[Function, Tensor]:
    conv, edges = GatedGCNConv(4, backend=backend).double().eval(), torch.randn(3, 4).double()
    conv.requires_grad_(False)
    return lambda x: conv(x, EDGES, edges, check=False)[0], torch.randn(5, 4).double()


FUNCTIONS = {
    **{f"scan-{leaf}": lambda backend, leaf=leaf: scan_of(leaf, backend) for leaf in range(5)},
    "convolution": convolution,
    "layer": layer,
}


def by_functional(function: Function, x: Tensor) -> Tensor:
    return torch.func.jvp(function, (x,), (torch.ones_like(x),))[1]


def by_dual_numbers(function: Function, x: Tensor) -> Tensor | None:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


@pytest.mark.parametrize("way", [by_functional, by_dual_numbers])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_tangents_are_rejected(name: str, way: Callable[[Function, Tensor], Tensor | None]) -> None:
    function, x = FUNCTIONS[name]("cpu")
    with pytest.raises(NotImplementedError, match="has no derivative in forward mode"):
        way(function, x)
