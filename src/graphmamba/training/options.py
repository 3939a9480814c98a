"""How and where an experiment is run, as data; none of it belongs to the experiment itself."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from graphmamba.checks import check_least, check_seed, check_types
from graphmamba.errors import UserError
from graphmamba.parse import parse

DeviceName = Literal["auto", "cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]
FastName = Literal["auto", "on", "off"]
CompileName = Literal["auto", "on", "off"]
LoggerName = Literal["tensorboard", "wandb"]

FREE = frozenset({"max_time", "checkpoint_every", "loggers"})
"""Options that may change when a run is resumed, since no number follows from them."""

MOST_BATCHES = 2**31 - 1
"""In one step: as many as a batch may have graphs."""


@dataclass(frozen=True)
class RunOptions:
    """One run: its seed, its machine, when it stops and what it writes."""

    seed: int = 0
    """What weights, batches, line-ups and dropout follow."""
    device: DeviceName = "auto"
    """`auto` is a GPU where there is one."""
    devices: int = 1
    """Processes on this machine, each with a device of its own."""
    nodes: int = 1
    """Machines."""
    precision: Precision = "32-true"
    """`bf16-mixed` computes in bfloat16 what bears it; weights stay in 32 bits."""
    tf32: bool = True
    """Whether matrix products on a GPU may round what they multiply to TF32."""
    compile: CompileName = "auto"
    """Whether torch.compile makes the model's forward and backward pass; `auto` does so on a GPU
    for runs of 5,000 steps or more, which win the time back that it takes."""
    fast: FastName = "auto"
    """Whether the step is captured as CUDA graphs; `auto` does so on a GPU where it can be."""
    accumulate: int = 1
    """Batches whose gradients make one step."""
    early_stopping: int = 0
    """Epochs without a better validation score after which to stop; 0 never does."""
    max_time: float = math.inf
    """Seconds after which the run saves its state and stops."""
    checkpoint_every: float = 300.0
    """Seconds between two saved states."""
    sync_batchnorm: bool = False
    """Whether BatchNorm looks at the batches of all processes together."""
    loggers: tuple[LoggerName, ...] = ()
    """Where numbers go beside `metrics.csv`."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("devices", "nodes", "accumulate"):
            check_least(name, getattr(self, name), 1)
        if self.accumulate > MOST_BATCHES:
            raise UserError(f"accumulate must be at most {MOST_BATCHES}, got {self.accumulate}")
        for name in ("early_stopping", "max_time", "checkpoint_every"):
            check_least(name, getattr(self, name), 0)
        check_seed("seed", self.seed)

    def content(self) -> dict[str, object]:
        """All entries as JSON and YAML can write them."""
        return asdict(self) | {"loggers": list(self.loggers), "max_time": _finite(self.max_time)}

    @classmethod
    def of(cls, content: Mapping[str, object], where: str) -> "RunOptions":
        """Make the options again from their content; `where` is what a message calls it."""
        entries = dict(content)
        if entries.get("max_time", 0.0) is None:
            del entries["max_time"]
        if isinstance(entries.get("compile"), bool):
            # Runs of before 2026-11-19 wrote it so.
            entries["compile"] = "on" if entries["compile"] else "off"
        return parse(cls, entries, where)


def _finite(seconds: float) -> float | None:
    """JSON has no word for infinity."""
    return seconds if math.isfinite(seconds) else None
