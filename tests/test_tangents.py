"""Our operators have no forward-mode derivative, and raise instead of dropping tangents."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from graphmamba import GatedGCNConv, causal_conv1d, selective_scan

ENDS = torch.tensor([0, 2, 5])
EDGES = torch.tensor([[0, 0, 2], [0, 1, 1]])
Function = Callable[[Tensor], Tensor]


def random(*size: int) -> Tensor:
    return torch.randn(size, dtype=torch.float64)


def scan(argument: int, changed: Tensor) -> Tensor:
    leaves = [random(5, 3), random(5, 3), -torch.rand(3, 3).double(), random(5, 3), random(5, 3)]
    leaves[argument] = changed
    return selective_scan(*leaves, cu_seqlens=ENDS, backend="cpu", check=False)


def convolution(x: Tensor) -> Tensor:
    return causal_conv1d(x, random(3, 4), cu_seqlens=ENDS, backend="cpu", check=False)


CONV = GatedGCNConv(3, backend="cpu").double().eval().requires_grad_(False)
ROWS = random(3, 3)


def layer(x: Tensor) -> Tensor:
    return CONV(x, EDGES, ROWS, check=False)[0]


CALLS: dict[str, tuple[Function, tuple[int, int]]] = {
    **{f"scan-{i}": (lambda x, i=i: scan(i, x), (3 if i == 2 else 5, 3)) for i in range(5)},
    "convolution": (convolution, (5, 3)),
    "layer": (layer, (5, 3)),
}


def by_functional(function: Function, x: Tensor) -> Tensor:
    return torch.func.jvp(function, (x,), (torch.ones_like(x),))[1]


def by_dual_numbers(function: Function, x: Tensor) -> Tensor | None:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


@pytest.mark.parametrize("way", [by_functional, by_dual_numbers])
@pytest.mark.parametrize("name", CALLS)
def test_tangents_are_rejected(name: str, way: Callable[[Function, Tensor], Tensor | None]) -> None:
    function, size = CALLS[name]
    with pytest.raises(NotImplementedError, match="has no derivative in forward mode"):
        way(function, random(*size))
