"""Forgets between forward and backward what is cheap to make anew, so that less memory is held."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import torch
from torch import SymInt, Tensor
from torch.autograd.graph import saved_tensors_hooks

Make = Callable[[], Tensor]
Extent = tuple[torch.Size, tuple[int, ...], int | SymInt]
"""Shape, strides and offset."""

LEAST_BYTES = 6 << 20
"""Smaller tensors are kept: a batch that makes no larger ones fits into any GPU; time counts."""


def is_worth_forgetting(
    rows: Tensor, channels: int, wanted: bool | None = None, least: int = LEAST_BYTES
) -> bool:
    """Tell whether a module forgets what it makes of these rows.

    Args:
        rows: The module's input.
        channels: Width of what it makes.
        wanted: Whether it shall; None if the rows are on a GPU and many.
        least: Bytes that are many.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    if wanted is not None:
        return wanted
    size = rows.shape[:-1].numel() * channels * rows.element_size()
    return rows.is_cuda and size >= least


class Recipe:
    """How a tensor is made again: once, for all that ask for it in a backward pass.

    Args:
        make: Makes it, from tensors that are kept anyway, or from other recipes.
    """

    def __init__(self, make: Make) -> None:
        self._make = make
        self._made: Tensor | None = None
        self._precisions = [
            (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
            for device in ("cpu", "cuda")
        ]
        self.is_shared = False
        """Whether what was made is held for the next one; it goes when the last one is done."""

    def __call__(self) -> Tensor:
        """Return the tensor."""
        if self._made is not None:
            return self._made
        with torch.no_grad(), ExitStack() as precision:
            for each in self._precisions:
                # A cache would hold copies of weights, which captured graphs must not share.
                precision.enter_context(torch.autocast(*each, cache_enabled=False))
            made = self._make()
        self._made = made if self.is_shared else None
        return made


class _Saved:
    """What autograd holds in the place of a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor: Tensor | None = tensor
        self.recipe: Recipe | None = None
        self.part: Extent | None = None

    def forget(self, recipe: Recipe, is_whole: bool) -> None:
        if self.tensor is not None and not is_whole:
            self.part = _extent(self.tensor)
        self.tensor, self.recipe = None, recipe
        recipe.is_shared = True

    def recall(self) -> Tensor:
        if self.recipe is None:
            assert self.tensor is not None
            return self.tensor
        made = self.recipe()
        return made if self.part is None else made.as_strided(*self.part)


class Forgetting:
    """A stretch of a forward pass that may forget what it saved for the backward pass.

    Gradients are the same to the last bit, if what is made anew is.

    Args:
        is_on: Whether anything is forgotten; else all is as without it.

    Example:
        >>> x, weight = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4)
        >>> with Forgetting(True) as kept:
        ...     wide = x @ weight
        ...     y = wide.square()
        ...     again = kept.forget(wide, lambda: x @ weight)
        >>> y.sum().backward()
    """

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on
        self._saved: list[_Saved] = []

    def __enter__(self) -> "Forgetting":
        """Begin to look at what is saved."""
        if self.is_on:
            # The hooks live as long as the graph, and with them what they refer to: not `self`.
            self._hooks = saved_tensors_hooks(partial(_save, self._saved), _Saved.recall)
            self._hooks.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of it."""
        if self.is_on:
            self._hooks.__exit__()
            self._saved.clear()

    def recipe(self, make: Make) -> Make:
        """Return the recipe of what several recipes of others use, and make once for all."""
        if not self.is_on:
            return make
        recipe = Recipe(make)
        recipe.is_shared = True
        return recipe

    def forget(self, tensor: Tensor, make: Make) -> Make:
        """Let all that was saved of a tensor until now be made anew.

        Args:
            tensor: What `make` returns. Views of it are forgotten with it if it fills its memory.
            make: Makes it, or its recipe; must not hold it, and is called without a graph being
                recorded.

        Returns:
            The recipe, for other tensors that are made of this one.
        """
        if not self.is_on:
            return make
        recipe = make if isinstance(make, Recipe) else Recipe(make)
        storage = tensor.untyped_storage()
        is_all = tensor.is_contiguous() and tensor.nbytes == storage.nbytes()
        for one in self._saved:
            if one.tensor is None or one.tensor.untyped_storage()._cdata != storage._cdata:
                continue
            is_whole = _extent(one.tensor) == _extent(tensor)
            if is_whole or is_all:
                one.forget(recipe, is_whole)
        return recipe


def _save(saved: list[_Saved], tensor: Tensor) -> _Saved:
    # Autograd hands over the tensor itself, also to the node that made it: with its graph the two
    # would hold each other for good, out of the collector's sight, where no backward pass follows.
    one = _Saved(tensor.detach())
    saved.append(one)
    return one


def _extent(tensor: Tensor) -> Extent:
    return tensor.shape, tensor.stride(), tensor.storage_offset()
