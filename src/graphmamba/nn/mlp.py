"""The small network that several encodings share."""

from itertools import pairwise

from torch import nn


def relu_mlp(columns: int, channels: int, layers: int) -> nn.Sequential:
    """Stack linear layers, each with a ReLU; hidden ones are twice as wide as the result."""
    widths = [columns, *[2 * channels] * (layers - 1), channels]
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        parts += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*parts)
