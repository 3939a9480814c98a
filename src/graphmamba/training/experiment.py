"""Everything that makes one row of a table, as data, and the options of one run of it."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal

import torch

from graphmamba.checks import check_choice, check_fraction, check_least, check_seed, check_types
from graphmamba.data.catalog import CATALOG, Benchmark, LossName
from graphmamba.data.custom.options import OwnSource
from graphmamba.data.datasets.sbm import Sizes
from graphmamba.data.splits import SPLITS
from graphmamba.errors import UserError
from graphmamba.nn.config import EncoderConfig, StackConfig
from graphmamba.nn.heads import HeadConfig
from graphmamba.nn.model import GraphMamba, check_parts_fit
from graphmamba.parse import parse
from graphmamba.training.losses import check_fits

OptimizerName = Literal["adamw", "adam"]
ScheduleName = Literal["cosine", "plateau", "constant"]
DeviceName = Literal["auto", "cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]
FastName = Literal["auto", "on", "off"]
CompileName = Literal["auto", "on", "off"]
LoggerName = Literal["tensorboard", "wandb"]


@dataclass(frozen=True)
class Recipe:
    """Optimiser, schedule and batches of one run."""

    batch_size: int = 32
    """Graphs in a batch."""
    epochs: int = 100
    """Passes over the training set."""
    learning_rate: float = 1e-3
    """Highest learning rate."""
    weight_decay: float = 0.0
    """Pull of all parameters towards 0, biases and norms included."""
    optimizer: OptimizerName = "adamw"
    """`adamw` decays the weights themselves, `adam` through the gradient."""
    clip: float = 1.0
    """Largest norm of the gradient of all parameters together; 0 leaves it as it is."""
    schedule: ScheduleName = "cosine"
    """`cosine`: a line up over `warmup`, then half a cosine down; `plateau`: times `factor` where
    the validation loss has not improved for `patience` epochs; `constant`."""
    warmup: int = 5
    """Epochs on the way up, where `schedule` is `cosine`."""
    patience: int = 10
    """Epochs without progress, where `schedule` is `plateau`."""
    factor: float = 0.5
    """What the learning rate is multiplied by then."""
    least_learning_rate: float = 1e-5
    """Where a `plateau` schedule stops lowering it."""
    loss: LossName | None = None
    """What is minimised, one of those that fit the labels; null takes the benchmark's own. Weighted
    ones balance the classes of a batch: one whose labels are all the same teaches nothing."""
    average: float = 0.0
    """How much of the moving average of the weights is left after a step; it is scored, chosen and
    kept in the place of the weights themselves. 0 averages nothing."""
    statistics: int = 0
    """Batches of training graphs over which norms take their statistics anew before each epoch is
    scored; 0 scores with the running ones."""

    def __post_init__(self) -> None:
        check_types(self, "recipe.")
        for name in ("batch_size", "epochs", "patience"):
            check_least(f"recipe.{name}", getattr(self, name), 1)
        for name in ("warmup", "weight_decay", "clip", "least_learning_rate", "statistics"):
            check_least(f"recipe.{name}", getattr(self, name), 0)
        check_fraction("recipe.average", self.average)
        if not 0 < self.learning_rate < float("inf"):
            raise UserError(
                f"recipe.learning_rate must be positive and finite, got {self.learning_rate!r}"
            )
        if not 0 < self.factor < 1:
            raise UserError(f"recipe.factor must be between 0 and 1, got {self.factor!r}")


VERSION = 1
"""Counts changes after which older programs would misread an experiment."""
MOST = {
    "layers": 1000,
    "pre_layers": 1000,
    "train_samples": 1000,
    "eval_samples": 1000,
    "frequencies": 10**5,
    "walks": 10**5,
    "expander_degree": 10**5,
    "virtual_nodes": 10**5,
    "batch_size": 2**31 - 1,
}
"""Largest values of entries, by the last word of their keys: far beyond all that has been trained,
and small enough to find out at once."""
MOST_GRAPHS = 10**6
"""Of a part of a set that is drawn: published ones have a hundredth of it."""
MOST_PARAMETERS = 2**30
"""Parameters of a model, which together with its optimiser take 16 GiB."""


@dataclass(frozen=True)
class Experiment:
    """Everything that makes one row of a table; machine, paths and seeds are not part of it."""

    version: int = VERSION
    """Of the form that the experiment is written in."""
    benchmark: str = "pattern"
    """Data set, by its name in the catalogue."""
    sizes: Sizes | None = None
    """Graphs of training, validation and test, where the set is drawn; null takes the published
    sizes."""
    own: OwnSource | None = None
    """Own graphs in the place of the benchmark."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """From raw columns to rows."""
    model: StackConfig = field(default_factory=StackConfig)
    """The layers."""
    head: HeadConfig = field(default_factory=HeadConfig)
    """From rows to predictions."""
    recipe: Recipe = field(default_factory=Recipe)
    """How it is trained."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.version > VERSION:
            raise UserError(
                f"version must be {VERSION} or older, got {self.version}: "
                "it was written by a newer graphmamba"
            )
        check_choice("benchmark", self.benchmark, tuple(CATALOG))
        for key, value in flat_entries(asdict(self)).items():
            most = MOST.get(key.rpartition(".")[2])
            if most is not None and isinstance(value, int) and value > most:
                raise UserError(f"{key} must be at most {most}, got {value}")
        for name, size in zip(SPLITS, self.sizes or (), strict=False):
            check_least(f"sizes of {name}", size, 1)
            if size > MOST_GRAPHS:
                raise UserError(f"sizes of {name} must be at most {MOST_GRAPHS}, got {size}")

    @property
    def data(self) -> Benchmark:
        """The benchmark's entry in the catalogue, or what stands in its place for own graphs."""
        return CATALOG[self.benchmark] if self.own is None else self.own.as_benchmark()

    @property
    def loss(self) -> LossName:
        """What is minimised: the recipe's choice, or else the benchmark's own."""
        self.check_loss()
        return self.recipe.loss or self.data.task.loss

    def check_loss(self) -> None:
        """Refuse a recipe whose loss does not fit the data; own graphs must have been read."""
        if self.recipe.loss is not None:
            check_fits("recipe.loss", self.recipe.loss, self.data.task)

    def check_parts(self) -> None:
        """Refuse an encoder that fits neither the data nor the layers; own graphs must be read."""
        check_parts_fit(self.data.features, self.model, self.encoder)

    def build(self, seed: int = 0) -> GraphMamba:
        """Make the model; its random line-ups follow `seed`, its weights torch's generator."""
        self.outline()
        return self._build(seed)

    def outline(self) -> GraphMamba:
        """Make the model without memory for its tensors; refuse one that is too large for any."""
        try:
            with torch.device("meta"):
                model = self._build(seed=0)
            parameters = sum(each.numel() for each in model.parameters())
        except (OverflowError, RuntimeError) as mistake:  # more than PyTorch can count
            raise UserError(f"the sizes of model, encoder and head are too large: {mistake}") from (
                mistake
            )
        if parameters > MOST_PARAMETERS:
            raise UserError(
                f"the model must have at most {MOST_PARAMETERS:,} parameters, got {parameters:,}: "
                "choose smaller sizes, such as model.channels"
            )
        return model

    def _build(self, seed: int) -> GraphMamba:
        data = self.data
        return GraphMamba(data.features, data.task, self.model, self.encoder, self.head, seed=seed)

    def content(self) -> dict[str, object]:
        """All entries as nested mappings, defaults included, as JSON and YAML can write them."""
        return {name: _plain(value) for name, value in asdict(self).items()}

    def to_yaml(self) -> str:
        """Write all entries, defaults included; `config.load_experiment` reads them again."""
        import yaml

        return str(yaml.safe_dump(self.content(), sort_keys=False, allow_unicode=True))

    @classmethod
    def of(cls, content: Mapping[str, object], where: str) -> "Experiment":
        """Make the experiment again from its content; `where` is what a message calls it."""
        return parse(cls, content, where)


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
        # JSON has no word for infinity
        max_time = self.max_time if math.isfinite(self.max_time) else None
        return asdict(self) | {"loggers": list(self.loggers), "max_time": max_time}

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


def changed_entries(before: Experiment, after: Experiment) -> list[str]:
    """Name the entries that differ, each with both values."""
    one, other = flat_entries(before.content()), flat_entries(after.content())
    return [
        f"{key} {other.get(key)!r} instead of {one.get(key)!r}"
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key)
    ]


def flat_entries(content: object, prefix: str = "") -> dict[str, object]:
    """Entries of nested mappings by dotted keys."""
    if not isinstance(content, dict):
        return {prefix: content}
    below = [
        flat_entries(value, f"{prefix}.{key}" if prefix else str(key))
        for key, value in content.items()
    ]
    return {key: value for entries in below for key, value in entries.items()}


def _plain(value: object) -> object:
    """Lists for tuples, which YAML has no word for."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return list(value) if isinstance(value, tuple) else value
