"""Which graphs are for training, validation and test: as given, or drawn by a seed."""

from collections.abc import Collection, Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.checks import check_choice
from graphmamba.data.random_bits import draw_bits
from graphmamba.errors import UserError

SPLITS = {"train": 0, "validation": 1, "test": 2}
Split = Int[Tensor, " graphs"] | Mapping[str, Collection[int]]
"""Part of each graph by number, or the graphs of each part by name."""
Fractions = tuple[float, float, float]
"""Shares of training, validation and test."""


def part_numbers(split: Split | None, graphs: int) -> Int[Tensor, " graphs"] | None:
    """Number the part of each graph; every graph is in one part."""
    if split is None or isinstance(split, Tensor):
        return split
    parts = torch.full((graphs,), -1)
    for name, members in split.items():
        check_choice("split", name, SPLITS)
        places = torch.tensor(list(members), dtype=torch.int64)
        if len(places) and not 0 <= int(places.min()) <= int(places.max()) < graphs:
            raise UserError(f"split['{name}'] must hold graphs 0 to {graphs - 1}, got others")
        if bool((parts[places] >= 0).any()) or len(places.unique()) < len(places):
            raise UserError(f"split['{name}'] must hold graphs of no other part, got one twice")
        parts[places] = SPLITS[name]
    missing = (parts < 0).nonzero()
    if len(missing):
        raise UserError(f"split must name a part for every graph, got none for {int(missing[0])}")
    return parts


def draw_split(graphs: int, fractions: Fractions, seed: int = 0) -> Int[Tensor, " graphs"]:
    """Assign graphs to training (0), validation (1) and test (2) at random.

    A part that is to have a share gets at least one graph, training first, as far as graphs go.

    Args:
        graphs: How many there are.
        fractions: Share of each part.
        seed: What the draw follows.
    """
    wanted = torch.tensor(fractions, dtype=torch.float64) * graphs
    sizes = wanted.floor().long()
    rest = (wanted - sizes).argsort(descending=True, stable=True)[: graphs - int(sizes.sum())]
    sizes[rest] += 1
    for part, share in enumerate(fractions):
        if share > 0 and sizes[part] == 0 and int(sizes.max()) > 1:
            sizes[sizes.argmax()] -= 1
            sizes[part] += 1
    split = torch.repeat_interleave(torch.arange(len(fractions)), sizes)
    order = draw_bits(torch.tensor(seed), torch.arange(graphs)).argsort(stable=True)
    return torch.empty_like(split).index_copy_(0, order, split)
