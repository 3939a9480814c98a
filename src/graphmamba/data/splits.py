"""Splits into training, validation and test: as given, or random."""

from collections.abc import Callable, Collection, Mapping, Sequence

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.checks import check_choice
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits

SPLITS = {"train": 0, "validation": 1, "test": 2}
SPLIT_WORDS = SPLITS | {"training": 0, "val": 1, "valid": 1, "dev": 1, "testing": 2}
"""Names of the splits in files."""
Split = Int[Tensor, " graphs"] | Mapping[str, Collection[int]]
"""Split of each graph, or graphs of each split by name."""
SplitRatios = tuple[float, float, float]  # shares of training, validation and test


def split_numbers(split: Split | None, graphs: int) -> Int[Tensor, " graphs"] | None:
    """Return the split of each graph (0, 1, 2); every graph must be in one."""
    if split is None or isinstance(split, Tensor):
        return split
    for name in split:
        check_choice("split", name, SPLITS)
    places = [torch.tensor(list(members), dtype=torch.int64) for members in split.values()]
    every = torch.cat([torch.empty(0, dtype=torch.int64), *places])
    if not torch.equal(every.sort().values, torch.arange(graphs)):
        raise UserError(f"split must name each of the graphs 0 to {graphs - 1} once, got others")
    parts = [torch.full_like(each, SPLITS[name]) for name, each in zip(split, places, strict=True)]
    return torch.empty(graphs, dtype=torch.int64).index_copy_(0, every, torch.cat(parts))


def random_split(graphs: int, fractions: SplitRatios, seed: int = 0) -> Int[Tensor, " graphs"]:
    """Assign graphs to training (0), validation (1) and test (2) at random."""
    split = torch.repeat_interleave(torch.arange(len(fractions)), split_sizes(graphs, fractions))
    order = draw_bits(torch.tensor(seed), torch.arange(graphs)).argsort(stable=True)
    return torch.empty_like(split).index_copy_(0, order, split)


def split_sizes(graphs: int, fractions: SplitRatios) -> Int[Tensor, " splits"]:
    """Number of graphs of each split, by the largest remainder method.

    A split with a positive ratio gets at least one graph, training first, if there are enough.
    """
    wanted = torch.tensor(fractions, dtype=torch.float64) * graphs
    sizes = wanted.floor().long()
    rest = (wanted - sizes).argsort(descending=True, stable=True)[: graphs - int(sizes.sum())]
    sizes[rest] += 1
    for number, share in enumerate(fractions):
        if share > 0 and sizes[number] == 0 and int(sizes.max()) > 1:
            sizes[sizes.argmax()] -= 1
            sizes[number] += 1
    return sizes


def split_of_words(
    cells: Sequence[str], where: Callable[[int], str], empty: int | None = None
) -> Int[Tensor, " graphs"]:
    """Split of each row from its name; `empty` is that of an empty cell."""
    words = SPLIT_WORDS if empty is None else {**SPLIT_WORDS, "": empty}
    found = [words.get(cell.strip().lower(), -1) for cell in cells]
    if -1 in found:
        row, others = found.index(-1), "" if empty is None else " or empty"
        raise UserError(
            f"{where(row)}: split must be one of {', '.join(SPLITS)}{others}, got {cells[row]!r}"
        )
    return torch.tensor(found, dtype=torch.int64)
