"""The full state of a run as one file: a run that reads it goes on as if it had never stopped."""

import math
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from graphmamba.data.sampler import BatchSampler
from graphmamba.errors import UserError
from graphmamba.nn.model import GraphMamba
from graphmamba.ops.random import draw_bits
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.ema import MovingAverage
from graphmamba.training.experiment import FREE, VERSION, Experiment, RunOptions, flat_entries
from graphmamba.training.graphs import check_same_graphs
from graphmamba.training.results import Scores, read_scores
from graphmamba.training.schedule import Schedule
from graphmamba.training.weights import (
    check_kind,
    check_tensors,
    load_state,
    read_tensors,
    write_tensors,
)


@dataclass(frozen=True)
class Best:
    """The epoch that was chosen so far."""

    epoch: int
    value: float
    """Its validation score."""
    scores: Mapping[str, Scores]
    """All its scores by split."""
    weights: Mapping[str, Tensor] = field(repr=False)
    """The model's tensors then."""


@dataclass
class Progress:
    """What was done, and the sums of the epoch that is going on."""

    epoch: int = 0
    """Counted from 0."""
    step: int = 0
    """Steps made in this epoch."""
    taken: int = 0
    """Steps made in all."""
    loss_sum: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """Losses of this process's steps in this epoch times their labels; stays on the device."""
    labels: int = 0
    """Labels of this process's steps in this epoch."""
    train_seconds: float = 0.0
    """Time of this epoch's steps."""
    seconds: float = 0.0
    """Time of the whole run, as far as it was saved."""
    best: Best | None = None

    def count(self, loss: Tensor, labels: int) -> None:
        """Take in a step; reads nothing from the device."""
        self.loss_sum += loss.double() * labels
        self.labels += labels
        self.step += 1
        self.taken += 1

    def next_epoch(self) -> None:
        """Begin another epoch."""
        self.epoch, self.step, self.labels, self.train_seconds = self.epoch + 1, 0, 0, 0.0
        self.loss_sum = torch.zeros_like(self.loss_sum)

    @property
    def best_epoch(self) -> int:
        """The chosen epoch, -1 where there is none."""
        return -1 if self.best is None else self.best.epoch

    def is_better(self, value: float, is_lower_better: bool) -> bool:
        """Whether a validation score beats all before; what is not a number beats nothing."""
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        return value < self.best.value if is_lower_better else value > self.best.value

    def content(self) -> dict[str, Any]:
        """Everything but tensors and sums, as JSON can write it."""
        best = self.best
        return {
            "epoch": self.epoch,
            "step": self.step,
            "taken": self.taken,
            "train_seconds": self.train_seconds,
            "seconds": self.seconds,
            "best": best and {"epoch": best.epoch, "value": best.value, "scores": best.scores},
        }


KIND = "state"
DAMAGED = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What comes of a state whose entries are not what was written."""


@dataclass
class RunState:
    """Everything of a run that changes, and what must not."""

    experiment: Experiment
    options: RunOptions
    model: GraphMamba
    optimizer: Optimizer
    schedule: Schedule
    sampler: BatchSampler
    progress: Progress
    team: ProcessGroup
    average: MovingAverage | None = None
    graphs: str = ""
    """What tells custom graphs from others; see `identity_of`."""

    @property
    def scored(self) -> GraphMamba:
        """The model that is evaluated and kept: the average of the weights, if there is one."""
        return self.model if self.average is None else self.average.model

    @property
    def parameters(self) -> int:
        """Numbers that are learned."""
        return sum(each.numel() for each in self.model.parameters())

    def save(self, path: Path) -> None:
        """Write the state, whole or not at all; every process has to call it."""
        tensors, about = self._tensors(), self._about()
        # nobody may go on and read an older state than the others
        self.team.rank_zero_first(lambda: write_tensors(path, tensors, about))

    def _tensors(self) -> dict[str, Tensor]:
        best = self.progress.best
        sums = torch.stack(
            [self.progress.loss_sum, self.progress.loss_sum.new_tensor(self.progress.labels)]
        )
        return {
            **prefixed("model", self.model.state_dict()),
            **prefixed("average", self.average.state_dict() if self.average else {}),
            **prefixed("optimizer", optimizer_tensors(self.optimizer)),
            **prefixed("best", best.weights if best else {}),
            **prefixed("generator", self._of_all(generator_tensors())),
            **self._of_all({"sums": sums}),
        }

    def _of_all(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What differs from process to process, one row for each."""
        return {
            name: torch.cat(self.team.gather(tensor[None])).cpu()
            for name, tensor in tensors.items()
        }

    def about(self) -> dict[str, object]:
        """What the run was started with."""
        return {"experiment": self.experiment.content(), "options": self.options.content()}

    def _about(self) -> dict[str, object]:
        return {
            "kind": KIND,
            "format": VERSION,
            **self.about(),
            "graphs": self.graphs,
            "progress": self.progress.content(),
            "schedule": self.schedule.state_dict(),
            "sampler": self.sampler.state_dict(),
            "generators": generator_words(),
        }

    def load(self, path: Path) -> None:
        """Go on where the state was saved; a run that was started otherwise is rejected."""
        tensors, about = read_tensors(path)
        check_kind(path, about, KIND)
        state: Any = about
        try:
            _reject_changes(path, state, self.experiment, self.options)
            use = "put them back, or start another run"
            check_same_graphs(self.experiment, state.get("graphs"), self.graphs, use)
            self.sampler.load_state_dict(state["sampler"])
            self.schedule.load_state_dict(state["schedule"])
            if not 0 < state["schedule"]["rate"] < math.inf:
                raise ValueError(f"the rate of its schedule is {state['schedule']['rate']!r}")
            load_state(self.model, _under("model", tensors), path)
            if self.average:
                self.average.load_state_dict(_under("average", tensors))
            load_optimizer(self.optimizer, _under("optimizer", tensors))
            self._load_progress(state["progress"], tensors, path)
            # a row of a table may lie where no generator can read it
            rows = _under("generator", tensors).items()
            own = {name: each[self.team.rank].clone() for name, each in rows}
            if self.team.device.type == "cpu":
                # that of a GPU, which need not be here, has no say in this run
                own.pop("cuda", None)
            restore_generators(own, state["generators"])
        except UserError:
            raise
        except DAMAGED as error:
            raise UserError(f"'{path}' must hold a whole state: {error}") from error

    def _load_progress(
        self, content: dict[str, Any], tensors: Mapping[str, Tensor], path: Path
    ) -> None:
        progress, best, sampler = self.progress, content["best"], self.sampler
        for name in ("epoch", "step", "taken", "train_seconds", "seconds"):
            kind = type(getattr(progress, name))
            if type(content[name]) is not kind or not 0 <= content[name] < math.inf:
                raise ValueError(f"{name} of its progress is {content[name]!r}")
            setattr(progress, name, content[name])
        if (progress.epoch, progress.step) != (sampler.epoch, sampler.step):
            raise ValueError(f"epoch and step are not those of its sampler, {sampler.state_dict()}")
        sums = tensors["sums"]
        if sums.shape != (self.team.world, 2) or not bool(sums.isfinite().all()):
            raise ValueError(f"its sums are {sums.tolist()}")
        loss_sum, labels = sums[self.team.rank]
        progress.loss_sum, progress.labels = loss_sum.to(progress.loss_sum.device), int(labels)
        if best:
            weights = _under("best", tensors)
            check_tensors(self.scored.state_dict(), weights, path, "best.")
            if type(best["epoch"]) is not int or not 0 <= best["epoch"] <= progress.epoch:
                raise ValueError(f"its best epoch is {best['epoch']!r}")
            scores, value = read_scores(best["scores"]), float(best["value"])
            if math.isnan(value):
                raise ValueError("its best score is no number")
            progress.best = Best(best["epoch"], value, scores, weights)


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """What an optimiser remembers, by parameter and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{place}.{name}": torch.as_tensor(value)
        for place, entries in state.items()
        for name, value in entries.items()
    }


def load_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Let an optimiser remember again; its settings stay as they are."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    for key, tensor in tensors.items():
        place, _, name = key.partition(".")
        # counters of steps are single numbers
        shape = () if name == "step" else parameters[int(place)].shape
        if not place.isdecimal() or tensor.shape != shape or not tensor.is_floating_point():
            raise ValueError(f"'optimizer.{key}' is {tensor.dtype} of shape {list(tensor.shape)}")
        state.setdefault(int(place), {})[name] = tensor
    if len({frozenset(entries) for entries in state.values()}) > 1:
        raise ValueError("its optimizer remembers more of some parameters than of others")
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put the name of a part before the names of its tensors."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    start = f"{prefix}."
    return {
        name.removeprefix(start): tensor
        for name, tensor in tensors.items()
        if name.startswith(start)
    }


def _reject_changes(
    path: Path, about: Mapping[str, Any], experiment: Experiment, options: RunOptions
) -> None:
    """Name the first entry that is not what the run was started with."""
    began = (
        Experiment.of(about["experiment"], str(path)),
        RunOptions.of(about["options"], str(path)),
    )
    saved, wanted = (
        {**flat_entries(each.content()), **flat_entries(how.content())}
        for each, how in (began, (experiment, options))
    )
    for key in [*wanted, *saved]:
        # they follow from the graphs, which are compared by themselves
        if key.startswith("data.statistics"):
            continue
        if key not in FREE and saved.get(key) != wanted.get(key):
            raise UserError(
                f"{key} must be {saved.get(key)!r}, as when the run was started, "
                f"got {wanted.get(key)!r}"
            )


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
