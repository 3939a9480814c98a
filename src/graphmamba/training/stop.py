"""What ends a run before its last epoch: a loss that is not finite, signals and the clock."""

import math
import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from graphmamba.data.sampler import Ids
from graphmamba.errors import UserError
from graphmamba.nn.model import GraphMamba
from graphmamba.training.checkpoint import (
    generator_tensors,
    optimizer_tensors,
    prefixed,
    write_tensors,
)
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.experiment import VERSION
from graphmamba.training.run_dir import Scores

EVERY_ON_GPU = 100
"""Steps between two looks at the losses on a GPU, which have to be waited for."""
SHOWN = 16
"""Graphs that a message names."""


class LossNotFiniteError(UserError):
    """The loss or its gradient became infinite or NaN."""


class NonFiniteCheck:
    """Looks at the losses every so many steps, and keeps what it takes to repeat those between.

    Args:
        model: What is trained.
        optimizer: What trains it.
        team: All processes.
        dump: Where to write what failed; called with the step, returns the file.
        about: What describes the run: experiment, options.
    """

    def __init__(
        self,
        model: GraphMamba,
        optimizer: Optimizer,
        team: ProcessGroup,
        dump: Callable[[int], Path],
        about: dict[str, object],
    ) -> None:
        self._model, self._optimizer, self._team = model, optimizer, team
        self._dump, self._about = dump, about
        self._every = EVERY_ON_GPU if team.device.type == "cuda" else 1
        self._seen: list[tuple[int, Ids, Tensor]] = []
        self._good: dict[str, Tensor] = {}
        self._has_warned = False
        self._keep()

    def saw(self, step: int, ids: Ids, loss: Tensor) -> None:
        """Take note of a step: its number since the run's beginning, its graphs, its loss."""
        self._seen.append((step, ids, loss))
        if len(self._seen) >= self._every:
            self.check()

    def check(self) -> None:
        """Look at the losses since the last look; raises where one is not finite."""
        if not self._seen:
            return
        is_finite = torch.stack([loss for _, _, loss in self._seen]).isfinite().tolist()
        if not all(is_finite):
            self._fail(is_finite.index(False))
        self._seen = []
        self._keep()

    def saw_scores(self, epoch: int, validation: Scores) -> None:
        """Warn once of validation scores that are not finite."""
        odd = [name for name, value in validation.items() if not math.isfinite(value)]
        if self._has_warned or not odd:
            return
        self._has_warned = True
        cause = "its labels may be too few, or all alike, for this metric"
        if "loss" in odd:
            cause = "lower optim.lr, or set train.recalibrate_batch_norm 32"
        warnings.warn(
            f"epoch {epoch}: the validation {odd[0]} is {validation[odd[0]]}; {cause}", stacklevel=2
        )

    def _keep(self) -> None:
        """Copy what the next steps depend on."""
        tensors = {
            **prefixed("model", self._model.state_dict()),
            **prefixed("optimizer", optimizer_tensors(self._optimizer)),
        }
        if self._good.keys() >= tensors.keys():
            _copy_over([(self._good[name], each) for name, each in tensors.items()])
        else:
            self._good = {name: each.detach().clone() for name, each in tensors.items()}
        self._good |= prefixed("generator", generator_tensors())

    def _fail(self, place: int) -> None:
        step, ids, loss = self._seen[place]
        path = self._dump(step)
        if self._team.rank:
            path = path.with_stem(f"{path.stem}-{self._team.rank}")
        about = {
            **self._about,
            "kind": "dump",
            "format": VERSION,
            "rank": self._team.rank,
            "steps": [
                {"step": step, "graphs": ids.tolist()} for step, ids, _ in self._seen[: place + 1]
            ],
        }
        write_tensors(path, self._good, about)
        graphs = ", ".join(map(str, ids[:SHOWN].tolist())) + (", ..." if len(ids) > SHOWN else "")
        raise LossNotFiniteError(
            f"the loss of step {step}, or its gradient, is {float(loss)} on graphs {graphs}; "
            f"'{path}' holds the state before it and all of its graphs"
        )


def _copy_over(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Copy the second of each pair to the first, one launch for all that are alike."""
    groups: dict[object, list[tuple[Tensor, Tensor]]] = {}
    for kept, now in pairs:
        groups.setdefault((now.device, now.dtype), []).append((kept, now))
    with torch.no_grad():
        for group in groups.values():
            torch._foreach_copy_([kept for kept, _ in group], [now for _, now in group])


class StopSignals:
    """Listens for signals while it is entered; the second one ends the process as usual."""

    def __init__(self, max_time: float, checkpoint_every: float) -> None:
        self.is_signalled = self.is_interrupted = False
        self._begin = self._saved = time.monotonic()
        self._max_time, self._every = max_time, checkpoint_every
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> "StopSignals":
        # Python hands signals to the main thread alone, and only there they can be caught
        if threading.current_thread() is threading.main_thread():
            both = signal.SIGTERM, signal.SIGINT
            self._before = {each: signal.signal(each, self._catch) for each in both}
        return self

    def __exit__(self, *_: object) -> None:
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
