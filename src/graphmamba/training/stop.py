"""Reasons to stop before the last epoch: non-finite losses, signals, the time limit."""

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
"""Steps between two checks on a GPU, each of which waits for it."""
SHOWN = 16
"""Number of graphs named in a message."""


class LossNotFiniteError(UserError):
    """The loss or its gradient became infinite or NaN."""


class NonFiniteCheck:
    """Checks the losses every few steps, and keeps the state to repeat these steps from.

    Args:
        model: What is trained.
        optimizer: What trains it.
        team: All processes.
        dump: Returns the file to write a failed state to; called with the step.
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
        """Record a step: its number since the start of the run, its graphs and its loss."""
        self._seen.append((step, ids, loss))
        if len(self._seen) >= self._every:
            self.check()

    def check(self) -> None:
        """Check the losses since the last check; raises if one is not finite."""
        if not self._seen:
            return
        is_finite = torch.stack([loss for _, _, loss in self._seen]).isfinite().tolist()
        if not all(is_finite):
            self._fail(is_finite.index(False))
        self._seen = []
        self._keep()

    def saw_scores(self, epoch: int, validation: Scores) -> None:
        """Warn once about validation scores that are not finite."""
        odd = [name for name, value in validation.items() if not math.isfinite(value)]
        if self._has_warned or not odd:
            return
        self._has_warned = True
        cause = "its labels may be too few, or all alike, for this metric"
        if "loss" in odd:
            cause = "lower optim.lr, or set train.recalibrate_batch_norm 32"
        warnings.warn(
            f"epoch {epoch + 1}: the validation {odd[0]} is {validation[odd[0]]}; {cause}",
            stacklevel=2,
        )

    def _keep(self) -> None:
        """Copy the state that the next steps start from."""
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
    """Copy the second tensor of each pair to the first, in one launch per device and dtype."""
    groups: dict[object, list[tuple[Tensor, Tensor]]] = {}
    for kept, now in pairs:
        groups.setdefault((now.device, now.dtype), []).append((kept, now))
    with torch.no_grad():
        for group in groups.values():
            torch._foreach_copy_([kept for kept, _ in group], [now for _, now in group])


class StopSignals:
    """Context that records SIGTERM and SIGINT; a second signal ends the process as usual."""

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
        """Seconds since the start."""
        return time.monotonic() - self._begin

    @property
    def is_over(self) -> bool:
        """Whether the time limit has passed."""
        return self.seconds >= self._max_time

    @property
    def is_save_due(self) -> bool:
        """Whether the next checkpoint is due."""
        return time.monotonic() - self._saved >= self._every

    def saved(self) -> None:
        """Record that a checkpoint was saved."""
        self._saved = time.monotonic()
