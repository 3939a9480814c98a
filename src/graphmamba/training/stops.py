"""When a run has to stop or to save: signals and the clock."""

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stops:
    """Listens for signals while it is entered; the second one ends the process as usual.

    Args:
        max_time: Seconds after which to stop.
        checkpoint_every: Seconds between two saved states.
    """

    def __init__(self, max_time: float, checkpoint_every: float) -> None:
        self.is_signalled = self.is_interrupted = False
        self._begin = self._saved = time.monotonic()
        self._max_time, self._every = max_time, checkpoint_every
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "Stops":
        # Python hands signals to the main thread alone, and only there they can be caught
        if threading.current_thread() is threading.main_thread():
            self._before = {each: signal.signal(each, self._catch) for each in SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._let_go()

    def _catch(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self.is_signalled, self.is_interrupted = True, number == signal.SIGINT
        self._let_go()

    def _let_go(self) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)
        self._before = {}

    @property
    def seconds(self) -> float:
        """Time since the beginning."""
        return time.monotonic() - self._begin

    @property
    def is_over(self) -> bool:
        """Whether the time is used up."""
        return self.seconds >= self._max_time

    @property
    def is_save_due(self) -> bool:
        """Whether the last saved state is old."""
        return time.monotonic() - self._saved >= self._every

    def saved(self) -> None:
        """Take note of a saved state."""
        self._saved = time.monotonic()
