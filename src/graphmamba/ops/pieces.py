"""Cuts the packed axis into pieces of work that threads may take in any order."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import SymInt, Tensor

LIMIT = 4096
"""Steps of the longest sequence that is walked in one go; the cuts ignore the number of threads."""

GROUP = 1024
"""Steps after which the next piece opens a new group."""

LOW, HIGH, ENTERS, LEAVES = range(4)
"""Columns of the table of pieces: its steps are `LOW` to `HIGH`; the state that enters it and the
one that it hands on have these numbers, or -1 where a sequence starts or ends."""


@dataclass(frozen=True)
class Pieces:
    """Pieces in walking order within each sequence, sequences one after another."""

    table: Int[np.ndarray, "pieces 4"]
    groups: Int[np.ndarray, " groups_and_1"]
    """The first piece of each group, and the number of pieces."""
    cuts: int
    """Number of states that pieces hand on."""

    @property
    def group_count(self) -> int:
        """Number of groups."""
        return len(self.groups) - 1


def most_cuts(steps: int | SymInt) -> int | SymInt:
    """No batch of that many steps has more cuts."""
    # A sequence that is cut has more than LIMIT steps, and so fewer cuts than steps / LIMIT. It is
    # rounded up so that any steps give room for one: an exported program knows then that with the
    # first block there are two states, and is not limited to graphs with more than one.
    return -(-steps // LIMIT)


def cut(cu_seqlens: Int[Tensor, " boundaries"], *, reverse: bool) -> Pieces:
    """Cut sequences longer than `LIMIT` evenly, and gather short ones in groups."""
    bounds = cu_seqlens.to(torch.int64).numpy()
    start, length = bounds[:-1], np.diff(bounds)
    start, length = start[length > 0], length[length > 0]
    parts = -(-length // LIMIT)

    sequence = np.repeat(np.arange(len(parts)), parts)
    part = np.arange(len(sequence)) - np.repeat(np.cumsum(parts) - parts, parts)
    size = -(-length // np.maximum(parts, 1))[sequence]
    walked, until = part * size, np.minimum((part + 1) * size, length[sequence])

    table = np.empty((len(sequence), 4), np.int64)
    first, last = start[sequence], (start + length)[sequence]
    table[:, LOW] = last - until if reverse else first + walked
    table[:, HIGH] = last - walked if reverse else first + until
    handed = np.cumsum(part > 0)
    table[:, ENTERS] = np.where(part > 0, handed - 1, -1)
    table[:, LEAVES] = np.where(part + 1 < parts[sequence], handed, -1)

    steps = until - walked
    group = (np.cumsum(steps) - steps) // GROUP
    firsts = np.flatnonzero(np.diff(group, prepend=-1))
    groups = np.append(firsts, len(sequence))
    return Pieces(table, groups, int(np.count_nonzero(part)))
