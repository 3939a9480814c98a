"""The gradients of a step in one piece of memory, which is added to, summed up and scaled whole."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

ALIGNED = 4
"""Numbers that a gradient begins at a multiple of: 16 bytes, which kernels read at once."""


class FlatGradients:
    """Gradients of all parameters that have one, and what they are weighed by, end to end.

    Which parameters have gradients shows when the first ones are added; those without stay without,
    and no optimizer moves them.

    Args:
        parameters: Of the model; `grad` of those with gradients becomes a part of the memory.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        self._flat: Float[Tensor, " numbers"] | None = None
        self._parts: list[Tensor] = []
        self._has = [False] * len(parameters)

    @property
    def flat(self) -> Float[Tensor, " numbers"]:
        """All gradients, and the number of labels that they belong to as the last entry."""
        assert self._flat is not None
        return self._flat

    @property
    def labels(self) -> Float[Tensor, ""]:
        """Number of labels."""
        return self.flat[-1]

    def add(self, gradients: Sequence[Tensor | None], labels: Float[Tensor, ""]) -> None:
        """Add gradients of a loss that is summed over so many labels."""
        has = [each is not None for each in gradients]
        if self._flat is None:
            self._allocate(has)
        elif has != self._has:
            raise RuntimeError("the same parameters must have gradients at every step")
        torch._foreach_add_(self._parts, [each for each in gradients if each is not None])
        self.labels.add_(labels)

    def clear(self) -> None:
        """Begin a step."""
        if self._flat is not None:
            self._flat.zero_()

    def _allocate(self, has: list[bool]) -> None:
        self._has = has
        kept = [each for each, is_there in zip(self._parameters, has, strict=True) if is_there]
        rooms = [-(-each.numel() // ALIGNED) * ALIGNED for each in kept]
        self._flat = kept[0].new_zeros(sum(rooms) + 1)
        rows = self._flat[:-1].split(rooms)
        self._parts = [
            row[: each.numel()].view_as(each) for row, each in zip(rows, kept, strict=True)
        ]
        for parameter, part in zip(kept, self._parts, strict=True):
            parameter.grad = part
