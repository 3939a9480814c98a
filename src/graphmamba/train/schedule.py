"""The learning rate over the epochs of a run."""

import math

SMALLEST_FACTOR = 1e-6
"""Share of the learning rate in the very first epoch of a warm-up, as in the published runs."""


def warmup_cosine(epoch: int, warmup: int, epochs: int) -> float:
    """Share of the learning rate in an epoch counted from 0: a line up, then half a cosine down.

    Epoch 0 of a warm-up has next to nothing, epoch `warmup` the whole; the last has more than 0.
    """
    if epoch < warmup:
        return max(SMALLEST_FACTOR, epoch / warmup)
    # a run that is nothing but warm-up has no cosine to walk down
    progress = (epoch - warmup) / max(epochs - warmup, 1)
    return 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0)))
