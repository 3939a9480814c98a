"""A split for graphs that came without one: drawn by a seed, the same on every machine."""

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.own.options import Fractions
from graphmamba.data.random_bits import draw_bits


def draw_split(graphs: int, fractions: Fractions, seed: int = 0) -> Int[Tensor, " graphs"]:
    """Deal graphs to training (0), validation (1) and test (2) at random.

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
