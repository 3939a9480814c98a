"""L2 normalisation as one node of autograd, held to PyTorch's."""

import torch
from torch.nn.functional import normalize

from graphmamba.ops.l2_normalize import L2Normalize, l2_normalize


def test_rows_and_gradients_are_those_of_pytorch() -> None:
    x = torch.randn(7, 5, dtype=torch.float64)
    # a row of zeros, and one whose norm is nearly that
    x[2], x[3] = 0.0, 1e-20
    mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    weight = torch.randn(7, 5, dtype=torch.float64)
    out, expected = L2Normalize.apply(mine), normalize(theirs, dim=-1)
    (out * weight).sum().backward()
    (expected * weight).sum().backward()
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(mine.grad, theirs.grad)


def test_a_cpu_has_pytorchs_own() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(l2_normalize(x), normalize(x, dim=-1))
