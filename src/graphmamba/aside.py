"""Work that nobody waits for before the end of a step, beside all else on a GPU."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Found = TypeVar("Found", bound=tuple[Tensor, ...])


class _Held(NamedTuple):
    """What some work reads, and the event of its end."""

    done: torch.cuda.Event
    tensors: Sequence[Tensor]


class Aside:
    """Streams for gradients of weights, which the update alone reads.

    In a backward pass each operation waits for the one before it, and kernels of a small batch
    leave most of a GPU idle. Gradients of weights are a third of them and hold up the others; here
    they fill the gaps. What they read is held until `join`, or until there is too much of it.

    Args:
        streams: Where they run, in turns: what the gaps did not hold is left for the end, when
            nothing else runs, and one after the other would leave most of the GPU idle again.
        most_held: Bytes that are held when other work is given or room is asked for; any number if
            None. Where there would be more, all else waits for the oldest work.
    """

    def __init__(self, streams: Sequence[torch.cuda.Stream], most_held: int | None = None) -> None:
        self._streams, self._most_held = streams, most_held
        self._uses: dict[int, list[bool]] = {}
        self._held: deque[_Held] = deque()
        self._found: list[int] = []
        self._runs = 0

    def note(self, weight: Tensor) -> None:
        """Take down a use of a weight, in the forward pass."""
        self._uses.setdefault(weight.data_ptr(), []).append(isinstance(weight, nn.Parameter))

    def takes(self, weight: Tensor) -> bool:
        """Tell whether the gradient of a weight is left alone until the update.

        Those of several uses are added up at once, and those of a part go into the whole. A
        backward pass may be given another tensor of its memory, as `Forgetting` hands out.
        """
        return self._uses.get(weight.data_ptr()) == [True]

    def run(self, work: Callable[[], Found], reads: Sequence[Tensor]) -> Found:
        """Do work that reads what the current stream has made."""
        stream = self._streams[self._runs % len(self._streams)]
        self._runs += 1
        stream.wait_stream(torch.cuda.current_stream())
        self.make_room()
        with torch.cuda.stream(stream):
            found = work()
            done = torch.cuda.Event()
            done.record()
        self._held.append(_Held(done, reads))
        self._found += [each.data_ptr() for each in found if each.numel()]
        return found

    def make_room(self) -> None:
        """Let go of what may not be held any longer, before something large is made."""
        if self._most_held is None:
            return
        while sum(each.nbytes for held in self._held for each in held.tensors) > self._most_held:
            torch.cuda.current_stream().wait_event(self._held.popleft().done)

    def join(self, gradients: Iterable[Tensor]) -> None:
        """Wait for all work; of the gradients that it found, none may have been copied before."""
        # A stream that was given nothing is no part of the graph that is being captured.
        for stream in self._streams[: self._runs]:
            torch.cuda.current_stream().wait_stream(stream)
        missing = set(self._found) - {each.data_ptr() for each in gradients}
        self._uses.clear()
        self._held.clear()
        self._found.clear()
        self._runs = 0
        if missing:
            raise RuntimeError(f"{len(missing)} gradients were read before they were found")


_ASIDE: ContextVar[Aside | None] = ContextVar("_ASIDE", default=None)


def current_aside() -> Aside | None:
    """Where gradients of weights go; None if they are found in their turn.

    Ask in the forward pass: the backward pass runs in another thread, with a context of its own.
    """
    return _ASIDE.get()


@contextmanager
def with_aside(aside: Aside | None) -> Iterator[None]:
    """Let modules leave gradients of weights to it, until the end of the context."""
    before = _ASIDE.set(aside)
    try:
        yield
    finally:
        _ASIDE.reset(before)
