"""What the closed formulas are made of: products, pointwise functions, dropouts, norms."""

from typing import cast

from torch import nn

from graphmamba.study.flops import Flops
from graphmamba.study.operator_flops.costs import DROPOUT, KNOWN_NORM, NORM


def linear(rows: int, layer: nn.Module) -> Flops:
    """A product; its bias is the value that the sum starts from."""
    own = cast(nn.Linear, layer)
    return Flops(products=2 * rows * own.in_features * own.out_features)


def pointwise(*counts: int) -> Flops:
    """Numbers that pointwise functions return, or sums take in."""
    return Flops(elementwise=sum(counts))


def dropped(numbers: int, rate: float, module: nn.Module) -> Flops:
    """Dropout, which at evaluation or at rate 0 does nothing."""
    return pointwise(DROPOUT * numbers if rate and module.training else 0)


def batch_norm(module: nn.Module) -> int:
    """Cost of a BatchNorm for each number; at evaluation its statistics are known."""
    return NORM if module.training else KNOWN_NORM
