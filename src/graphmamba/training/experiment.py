"""Experiments and run options as dataclasses, and their YAML: presets, files, overrides.

A preset is `presets/DATASET/MODEL.yaml`. It holds what differs from the defaults; a comment in the
first line names the row of the paper's table.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from graphmamba.checks import (
    check_choice,
    check_fraction,
    check_is,
    check_least,
    check_seed,
    check_types,
)
from graphmamba.data.catalog import CATALOG, Benchmark, LossName, MetricName
from graphmamba.data.custom.options import KINDS_OF_FILES, DataSource
from graphmamba.data.datasets.sbm import Sizes
from graphmamba.data.splits import SPLITS
from graphmamba.errors import UserError
from graphmamba.nn.config import EncoderConfig, ModelConfig
from graphmamba.nn.heads import HeadConfig
from graphmamba.nn.model import GraphMamba
from graphmamba.parse import convert, parse, read_yaml, suggest
from graphmamba.training.losses import Objective, check_fits, objective_of

OptimizerName = Literal["adamw", "adam"]
ScheduleName = Literal["cosine", "plateau", "constant"]
DeviceName = Literal["auto", "cpu", "cuda"]
Precision = Literal["32-true", "bf16-mixed"]
CudaGraphName = Literal["auto", "on", "off"]
CompileName = Literal["auto", "on", "off"]
LoggerName = Literal["tensorboard", "wandb"]


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and schedule of the learning rate."""

    lr: float = 1e-3
    """Peak learning rate."""
    weight_decay: float = 0.0
    """Weight decay of all parameters, biases and norms included."""
    optimizer: OptimizerName = "adamw"
    """`adamw` (decoupled weight decay) or `adam` (weight decay in the gradient)."""
    max_grad_norm: float = 1.0
    """Clip gradients to this total norm; 0 for no clipping."""
    schedule: ScheduleName = "cosine"
    """`cosine`: linear warm-up over `warmup` epochs, then cosine decay; `plateau`: multiply by
    `factor` when the validation loss has not improved for `patience` epochs; `constant`."""
    warmup: int = 5
    """Warm-up epochs, for `cosine`."""
    warmup_steps: int = 0
    """Warm-up steps in place of `warmup`, for `cosine`, which then decays step by step; 0 counts
    epochs."""
    patience: int = 10
    """Epochs without a better validation loss, for `plateau`."""
    factor: float = 0.5
    """Factor on the learning rate, for `plateau`."""
    min_lr: float = 1e-5
    """Lowest learning rate, for `plateau`."""

    def __post_init__(self) -> None:
        check_types(self, "optim.")
        check_least("optim.patience", self.patience, 1)
        for name in ("warmup", "warmup_steps", "weight_decay", "max_grad_norm", "min_lr"):
            check_least(f"optim.{name}", getattr(self, name), 0)
        if not 0 < self.lr < float("inf"):
            raise UserError(f"optim.lr must be positive and finite, got {self.lr!r}")
        if not 0 < self.factor < 1:
            raise UserError(f"optim.factor must be between 0 and 1, got {self.factor!r}")


@dataclass(frozen=True)
class TrainConfig:
    """Batches, epochs and loss."""

    batch_size: int = 32
    """Graphs per batch, in each process; nodes per batch where neighbours are sampled."""
    epochs: int = 100
    """Number of epochs."""
    steps_per_epoch: int = 5
    """Full-batch steps per epoch on a single graph; with many graphs an epoch is one pass."""
    neighbours: int | None = None
    """Neighbours sampled of each node of one graph, and half as many in the second hop. 0 trains on
    the whole graph; null does so if it fits into half of the free memory, and else samples 10
    neighbours for batches of 512 nodes, or pairs for links."""
    loss: LossName | None = None
    """Loss function, which must fit the targets; null takes that of the data set. Weighted losses
    balance the classes within a batch: the loss of a batch with a single class is 0."""
    metric: MetricName | None = None
    """Metric that selects the best epoch, which must fit the targets; null takes that of the data
    set."""
    class_weights: Literal["balanced"] | tuple[float, ...] | None = None
    """Weight of each class in `cross_entropy` and `focal`; `balanced` is rows / (classes x rows of
    the class) in the training split of custom graphs."""
    positive_weights: Literal["balanced"] | tuple[float, ...] | None = None
    """Weight of positive labels per column of a multi-label task; `balanced` is negatives /
    positives in the training split of custom graphs."""
    label_smoothing: float = 0.0
    """Label smoothing of `cross_entropy`."""
    ema_decay: float = 0.0
    """Decay per step of an exponential moving average of the weights, which is then scored and
    saved in place of the weights; 0 for none."""
    early_stopping: int = 0
    """Stop after this many epochs without a better validation score; 0 for never. The run option of
    the same name overrides it."""
    recalibrate_batch_norm: int = 0
    """Recompute BatchNorm statistics from this many training batches before each evaluation; 0 uses
    the running statistics."""

    def __post_init__(self) -> None:
        check_types(self, "train.")
        for name in ("batch_size", "epochs", "steps_per_epoch"):
            check_least(f"train.{name}", getattr(self, name), 1)
        check_least("train.neighbours", self.neighbours or 0, 0)
        check_least("train.early_stopping", self.early_stopping, 0)
        check_least("train.recalibrate_batch_norm", self.recalibrate_batch_norm, 0)
        for name in ("ema_decay", "label_smoothing"):
            check_fraction(f"train.{name}", getattr(self, name))


VERSION = 2
"""Version of the format of experiments, checkpoints and weights."""
MOST = {
    **dict.fromkeys(("layers", "pre_layers", "train_samples", "eval_samples"), 1000),
    **dict.fromkeys(("num_eigenvectors", "stable_gate_eigenvectors", "walk_length"), 10**5),
    **dict.fromkeys(("expander_degree", "virtual_nodes"), 10**5),
    "batch_size": 2**31 - 1,
    "split_sizes": 10**6,
}
"""Largest values of entries, by the last part of their keys, since a file may hold any."""
MOST_PARAMETERS = 2**30
"""Most parameters of a model; with its optimizer they take 16 GiB."""


def check_version(version: object, where: str) -> None:
    """Reject files of another version."""
    if version != VERSION:
        told = (
            "a newer graphmamba wrote it"
            if isinstance(version, int) and version > VERSION
            else "`python benchmarks/migrate.py` of the source code brings older ones to today's"
        )
        raise UserError(f"{where} must be of version {VERSION}, got {version!r}: {told}")


@dataclass(frozen=True)
class Experiment:
    """Data set, model and training: one row of a table, without machine, paths and seeds."""

    version: int = VERSION
    """Version of the file format."""
    dataset: str = "pattern"
    """Benchmark data set; `graphmamba benchmarks` lists them."""
    split_sizes: Sizes | None = None
    """Training, validation and test graphs to generate (CLUSTER, PATTERN); null for the published
    numbers."""
    data: DataSource | None = None
    """Your graphs, in place of `dataset`; null for none."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """From input features to embeddings."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The layers."""
    head: HeadConfig = field(default_factory=HeadConfig)
    """From node embeddings to predictions."""
    optim: OptimConfig = field(default_factory=OptimConfig)
    """Optimizer and learning-rate schedule."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Batches, epochs and loss."""
    chosen: str = ""
    """Defaults that were chosen for custom graphs, and why (written by the program)."""

    def __post_init__(self) -> None:
        check_types(self)
        check_version(self.version, "version")
        check_choice("dataset", self.dataset, tuple(CATALOG))
        for name, size in zip(SPLITS, self.split_sizes or (), strict=False):
            check_least(f"split_sizes of {name}", size, 1)
        for key, value in flat_entries(asdict(self)).items():
            most, given = MOST.get(key.rpartition(".")[2]), value
            given = max(value) if isinstance(value, tuple | list) and value else value
            if most is not None and isinstance(given, int) and given > most:
                raise UserError(f"{key} must be at most {most}, got {given}")

    @property
    def dataset_info(self) -> Benchmark:
        """The entry of the catalogue, or its equivalent for custom graphs."""
        found = CATALOG[self.dataset] if self.data is None else self.data.as_benchmark()
        metric, task = self.train.metric, found.task
        if metric is None:
            return found
        fitting = dict.fromkeys([task.metric, *task.metrics])
        check_choice(f"train.metric of {task.in_words}", metric, fitting)
        return replace(found, task=replace(task, metric=metric))

    @property
    def metrics(self) -> tuple[MetricName, ...]:
        """Metrics that are reported, beginning with the one that selects the best epoch.

        For custom graphs all that fit the task; for a benchmark its own.
        """
        task = self.dataset_info.task
        others = (CATALOG[self.dataset].task.metric,) if self.data is None else task.metrics
        return tuple(dict.fromkeys([task.metric, *others]))

    @property
    def loss(self) -> LossName:
        """The loss: `train.loss`, or else that of the data set."""
        self.check_loss()
        return self.train.loss or self.dataset_info.task.loss

    def check_loss(self) -> None:
        """Reject a loss, class weights or a metric that do not fit the labels.

        Custom graphs must have been read.
        """
        task = self.dataset_info.task
        if self.train.loss is not None:
            check_fits("train.loss", self.train.loss, task)
        self.objective()

    def objective(self) -> Objective:
        """The loss with its weights, and the units of the targets."""
        train, data, task = self.train, self.data, self.dataset_info.task
        return objective_of(
            train.loss or task.loss,
            task,
            data.statistics if data else None,
            train.class_weights,
            train.positive_weights,
            train.label_smoothing,
        )

    def build(self, seed: int = 0) -> GraphMamba:
        """Build the model; node orders follow `seed`, initial weights torch's generator."""
        self.outline()
        return self._build(seed)

    def outline(self) -> GraphMamba:
        """Build the model on the meta device; reject one that is too large."""
        try:
            with torch.device("meta"):
                model = self._build(seed=0)
            parameters = sum(each.numel() for each in model.parameters())
        except (OverflowError, RuntimeError) as error:  # more than PyTorch can count
            raise UserError(f"the sizes of model, encoder and head are too large: {error}") from (
                error
            )
        if parameters > MOST_PARAMETERS:
            raise UserError(
                f"the model must have at most {MOST_PARAMETERS:,} parameters, got {parameters:,}: "
                "choose smaller sizes, such as model.channels"
            )
        return model

    def _build(self, seed: int) -> GraphMamba:
        data = self.dataset_info
        return GraphMamba(data.features, data.task, self.model, self.encoder, self.head, seed=seed)

    def content(self) -> dict[str, object]:
        """All entries, defaults included, as nested mappings of JSON values."""
        content: dict[str, object] = json.loads(json.dumps(asdict(self)))
        return content

    def to_yaml(self) -> str:
        """Write all entries, defaults included; `load_experiment` reads them again."""
        import yaml

        return str(yaml.safe_dump(self.content(), sort_keys=False, allow_unicode=True))

    @classmethod
    def of(cls, content: Mapping[str, object], where: str) -> "Experiment":
        """Make the experiment from its content; `where` names it in messages."""
        check_version(content.get("version", VERSION), where)
        return parse(cls, content, where)


FREE = frozenset({"max_time", "checkpoint_every", "loggers"})
"""Options that may change when a run resumes, since they do not affect results."""


@dataclass(frozen=True)
class RunOptions:
    """Options of a run: seed, device, precision, when to stop, loggers."""

    seed: int = 0
    """Random seed of weights, batches, node orders and dropout."""
    device: DeviceName = "auto"
    """`auto` uses a GPU if there is one."""
    devices: int = 1
    """Processes on this machine, each with a GPU (or the CPU)."""
    nodes: int = 1
    """Number of machines."""
    precision: Precision = "32-true"
    """`bf16-mixed`: mixed precision with bfloat16; weights stay in float32."""
    tf32: bool = True
    """Allow TF32 in matrix products on a GPU."""
    compile: CompileName = "auto"
    """Use torch.compile; `auto` does on a GPU for runs that are long enough to win back the
    time it takes."""
    cuda_graph: CudaGraphName = "auto"
    """Capture training steps as CUDA graphs; `auto` does on a GPU where possible."""
    accumulate_grad_batches: int = 1
    """Batches whose gradients are accumulated for one optimizer step."""
    early_stopping: int | None = None
    """Stop after this many epochs without a better validation score; 0 for never, null for
    `train.early_stopping`."""
    max_time: float = math.inf
    """Save a checkpoint and stop after this many seconds."""
    checkpoint_every: float = 300.0
    """Seconds between checkpoints."""
    sync_batchnorm: bool = False
    """Synchronise BatchNorm statistics across processes."""
    loggers: tuple[LoggerName, ...] = ()
    """Log to TensorBoard or Weights & Biases, in addition to `metrics.csv`."""

    def __post_init__(self) -> None:
        check_types(self)
        for name in ("devices", "nodes", "accumulate_grad_batches"):
            check_least(name, getattr(self, name), 1)
        check_least("early_stopping", self.early_stopping or 0, 0)
        for name in ("max_time", "checkpoint_every"):
            check_least(name, getattr(self, name), 0)
        check_seed("seed", self.seed)

    def content(self) -> dict[str, object]:
        """All entries as JSON values."""
        # JSON has no word for infinity
        max_time = self.max_time if math.isfinite(self.max_time) else None
        return asdict(self) | {"loggers": list(self.loggers), "max_time": max_time}

    @classmethod
    def of(cls, content: Mapping[str, object], where: str) -> "RunOptions":
        """Make the options from their content; `where` names them in messages."""
        entries = dict(content)
        if entries.get("max_time", 0.0) is None:
            del entries["max_time"]
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


OPTIONS = "options"
"""Key of the run options in `config.yaml`."""
SEEDS = "seeds"
"""Key of the seeds of a series in `config.yaml`."""
FOLDS = "folds"
"""Key of the number of folds of a series in `config.yaml`."""


class RunConfig(NamedTuple):
    """Content of the `config.yaml` of a run or series."""

    experiment: Experiment
    options: RunOptions
    seeds: tuple[int, ...]
    """Seeds of a series of runs; empty for a single run."""
    folds: int = 0
    """Folds of a cross-validation; 0 for none."""


def parse_run_config(content: Mapping[str, object], where: str) -> RunConfig:
    """Parse a `config.yaml`; without options and seeds it is an experiment only.

    Args:
        content: The parsed YAML.
        where: Name of the file in messages.
    """
    entries = dict(content)
    given = entries.pop(OPTIONS, {})
    if not isinstance(given, Mapping):
        raise UserError(f"{where}: {OPTIONS} must hold keys and values, got {given!r}")
    options = RunOptions.of(given, f"{where}: {OPTIONS}")
    seeds = convert(entries.pop(SEEDS, []), tuple[int, ...], f"{where}: {SEEDS}")
    folds = convert(entries.pop(FOLDS, 0), int, f"{where}: {FOLDS}")
    assert isinstance(seeds, tuple)
    assert isinstance(folds, int)
    return RunConfig(Experiment.of(entries, where), options, seeds, folds)


PRESETS = Path(__file__).parents[1] / "presets"
DEFAULT = "pattern/default"
"""The experiment of `graphmamba train` without a name, small enough for a laptop."""


def config_names() -> list[str]:
    """Names `BENCHMARK/MODEL` of all presets, in the order of the catalogue."""
    return [
        f"{benchmark}/{file.stem}"
        for benchmark in CATALOG
        for file in sorted((PRESETS / benchmark).glob("*.yaml"))
    ]


def load_experiment(name: str | Path, overrides: Mapping[str, object] | None = None) -> Experiment:
    """Read an experiment: a preset, or a YAML file (such as the `config.yaml` of a run).

    Args:
        name: `BENCHMARK/MODEL`; `BENCHMARK` alone for Graph-Mamba on it; or a YAML file.
        overrides: Entries that override those of the file, by dotted key: `{"model.layers": 6}`.
    """
    return load_run_config(name, overrides).experiment


def load_run_config(name: str | Path, overrides: Mapping[str, object] | None = None) -> RunConfig:
    """Read an experiment, and the options of the run if the file has them.

    Args:
        name: As for `load_experiment`.
        overrides: As for `load_experiment`.
    """
    check_is("name", name, str | Path)
    check_is("overrides", overrides, Mapping | None)
    path = _path_of(name)
    try:
        content = read_yaml(path.read_text(encoding="utf-8"), str(path)) or {}
    except OSError as error:
        raise UserError(
            "name must be an experiment of the package or a .yaml file that can be read, "
            f"got '{name}': {error.strerror}"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} must be YAML: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold keys and values, got {type(content).__name__}")
    check_version(content.get("version", VERSION), str(path))
    for key, value in (overrides or {}).items():
        _put(content, key, value)
    return parse_run_config(content, str(name))


def experiment_of(entries: Mapping[str, object], where: str = "experiment") -> Experiment:
    """Make an experiment from entries by dotted key; others have their defaults."""
    content: dict[str, object] = {}
    for key, value in entries.items():
        _put(content, key, value)
    return Experiment.of(content, where)


def _path_of(name: str | Path) -> Path:
    if Path(name).suffix in {".yaml", ".yml"}:
        return Path(name)
    name = str(name)
    full = f"{name}/graph-mamba" if name in CATALOG else name
    known = config_names()
    if full not in known:
        if Path(name).is_file():
            raise UserError(
                f"no experiment '{name}': a file must be a .yaml, and graphs {KINDS_OF_FILES}"
            )
        benchmark = name.partition("/")[0]
        models = [each for each in known if each.startswith(f"{benchmark}/")]
        listed = f"there is: {', '.join(models or CATALOG)}"
        told = suggest(name, [*CATALOG, *known], listed)
        raise UserError(f"no experiment '{name}', and no such folder or file; {told}")
    return PRESETS / f"{full}.yaml"


def _put(content: dict[str, object], key: str, value: object) -> None:
    """Set a dotted key, creating missing levels."""
    *levels, last = key.split(".")
    for level in levels:
        below = content.get(level)
        if not isinstance(below, dict):
            below = content[level] = {}
        content = below
    content[last] = value
