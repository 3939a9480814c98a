"""Two branches of a layer side by side on a GPU, where a captured graph can hold them so."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor

_SIDE: ContextVar[torch.cuda.Stream | None] = ContextVar("_SIDE", default=None)


@contextmanager
def with_side_stream(stream: torch.cuda.Stream) -> Iterator[None]:
    """Let layers put one of their branches on this stream, until the end of the context.

    Small kernels leave most of a GPU idle, and local and global exchange do not wait for each
    other. Launched one by one they gain nothing; inside of a captured graph they overlap, in the
    backward pass too, whose operations run on the streams of the forward pass.
    """
    before = _SIDE.set(stream)
    try:
        yield
    finally:
        _SIDE.reset(before)


class Branch:
    """One branch of a layer: on the side stream if there is one, else where the other runs.

    Args:
        inputs: What the branch reads and the current stream has made: it must not be given away
            before the branch is done with it.

    Example:
        >>> x = torch.ones(2)
        >>> branch = Branch([x])
        >>> with branch:
        ...     near = x + 1
        >>> far = x + 2
        >>> branch.join(near) + far
        tensor([5., 5.])
    """

    def __init__(self, inputs: Iterable[Tensor]) -> None:
        self._side = _SIDE.get()
        self._context = nullcontext() if self._side is None else torch.cuda.stream(self._side)
        if self._side is not None:
            self._side.wait_stream(torch.cuda.current_stream())
            for each in inputs:
                each.record_stream(self._side)

    def __enter__(self) -> None:
        """Begin the branch."""
        self._context.__enter__()

    def __exit__(self, *mistake: object) -> None:
        """Go on with the other."""
        self._context.__exit__(*mistake)

    def join(self, result: Tensor) -> Tensor:
        """Wait for the branch, and return what it made."""
        if self._side is not None:
            here = torch.cuda.current_stream()
            here.wait_stream(self._side)
            result.record_stream(here)
        return result
