"""All random generators of the process, seeded, saved and put back together."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmamba.ops.random import draw_bits

NUMPY_LIMIT = 1 << 32
"""NumPy takes seeds of 32 bits only."""


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seed everything inside, and leave the caller's random numbers as they were."""
    before = generator_tensors(), generator_words()
    seed_all(seed)
    try:
        yield
    finally:
        restore_generators(*before)


def seed_all(seed: int) -> None:
    """Seed torch on all devices, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % NUMPY_LIMIT)  # noqa: NPY002 - it is the global one that libraries use
    random.seed(seed)


def process_seed(seed: int, rank: int) -> int:
    """Seed of one process of a run; the first one has that of the run.

    Not a sum of both: the second process of one run would draw what the first one of the next does.
    """
    return int(draw_bits(torch.tensor(seed), rank)) if rank else seed


def generator_tensors() -> dict[str, Tensor]:
    """States of torch's generators, as tensors of bytes."""
    tensors = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        tensors["cuda"] = torch.cuda.get_rng_state()
    return tensors


def generator_words() -> dict[str, Any]:
    """States of NumPy's and Python's generators, as JSON can write them."""
    name, keys, place, has_gauss, gauss = np.random.get_state()  # noqa: NPY002
    version, words, spare = random.getstate()
    return {
        "numpy": [name, np.asarray(keys).tolist(), place, has_gauss, gauss],
        "python": [version, list(words), spare],
    }


def restore_generators(tensors: dict[str, Tensor], words: dict[str, Any]) -> None:
    """Put all generators back to where they stood."""
    torch.set_rng_state(tensors["torch"])
    if "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"])
    name, keys, place, has_gauss, gauss = words["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), place, has_gauss, gauss))  # noqa: NPY002
    version, state, spare = words["python"]
    random.setstate((version, tuple(state), spare))
