"""Checkpoints: files of weights, and the full state from which a run resumes."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from graphmamba.atomic import atomic_write
from graphmamba.data.sampler import BatchSampler
from graphmamba.errors import UserError
from graphmamba.nn.model import GraphMamba
from graphmamba.ops.random import draw_bits
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.ema import MovingAverage
from graphmamba.training.experiment import (
    FREE,
    VERSION,
    Experiment,
    RunOptions,
    check_version,
    flat_entries,
)
from graphmamba.training.graphs import check_same_graphs
from graphmamba.training.run_dir import Rank, Scores, rank_of, read_scores
from graphmamba.training.schedule import Schedule

WEIGHTS, STATE = "weights", "state"
"""Kinds of files."""
META, DIGEST = "graphmamba", "sha256"
"""Keys in the header of a safetensors file: the JSON, and the digest of JSON and tensors."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
    """Write tensors with a JSON description in the header, atomically."""
    from safetensors.torch import save

    # several names for one storage, and views, are more than the format knows
    apart = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    told = json.dumps(about)
    content = save(apart, metadata={META: told, DIGEST: digest_of(apart, told)})
    atomic_write(path, lambda partial: partial.write_bytes(content))


def digest_of(tensors: Mapping[str, Tensor], about: str) -> str:
    """Digest of all that a file holds, so that no damaged one is taken for a whole one."""
    found = sha256(about.encode())
    for name in sorted(tensors):
        each = tensors[name]
        found.update(f"{name} {each.dtype} {list(each.shape)}".encode())
        found.update(each.flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def read_tensors(path: Path, kind: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of `write_tensors`, of the given kind; never runs code from the file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"'{path}' must be a file, and there is none")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            header = file.metadata() or {}
        told = header.get(META, "{}")
        about = json.loads(told)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise UserError(f"'{path}' is corrupt or no safetensors file: {error}") from error
    if not isinstance(about, dict):
        raise UserError(f"'{path}' must describe itself in its header, got {about!r}")
    if kind and about.get("kind") != kind:
        raise UserError(f"'{path}' must be a file of {kind}, got {about.get('kind')!r}")
    check_version(about.get("format", VERSION), f"'{path}'")
    # files of before have no digest
    if DIGEST in header and header[DIGEST] != digest_of(tensors, told):
        raise UserError(f"'{path}' must hold all that was written to it, and it has changed since")
    return tensors, about


DAMAGED = (
    ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""Errors that a damaged or forged file may cause."""


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Report errors inside as a damaged file."""
    try:
        yield
    except UserError:
        raise
    except DAMAGED as error:
        told = " ".join(str(error).split())
        raise UserError(f"'{path}' must hold all that was written to it: {told}") from error


class Weights(NamedTuple):
    """The content of a file of weights."""

    experiment: Experiment
    """The model and its training."""
    state: dict[str, Tensor]
    """Parameters and buffers by their names, on the CPU."""
    metadata: dict[str, Any]
    """The whole header: also `features`, `task`, `class_names`, `options`, `epoch`, `scores`, and
    `scored_again` if the weights were scored later."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes or label columns; empty where they have none.

        Weights without names (older ones of a benchmark) have those of the data set.
        """
        known = self.experiment.dataset_info
        names, count = self.metadata.get("class_names"), known.task.classes or known.task.outputs
        if not names:
            return known.names
        if type(names) is not list or (known.task.level != "link" and len(names) != count):
            raise UserError(f"class_names must be {count} classes or labels, got {names!r}")
        return tuple(map(str, names))

    @property
    def options(self) -> RunOptions:
        """Options of the run; the defaults if none are stored."""
        return RunOptions.of(self.metadata.get("options", {}), "options")

    @property
    def rank(self) -> Rank:
        """Sort key by validation score, the best first."""
        metric = self.experiment.dataset_info.task.metric
        return rank_of(read_scores(self.metadata.get("scores", {})), metric, self.options.seed)

    @property
    def reported(self) -> dict[str, dict[str, float]]:
        """Scores by split: the latest ones, or else those of the run."""
        again = self.metadata.get("scored_again") or {}
        found = self.metadata.get("scores", {}) | again.get("scores", {})
        # what a run says of training graphs was found while the weights changed
        return {split: each for split, each in read_scores(found).items() if split != "train"}


def save_weights(
    path: Path | str,
    model: GraphMamba,
    experiment: Experiment,
    *,
    state: Mapping[str, Tensor] | None = None,
    class_names: Sequence[str] = (),
    options: RunOptions | None = None,
    epoch: int = -1,
    scores: Mapping[str, Mapping[str, float]] | None = None,
    graphs: str = "",
) -> None:
    """Write the weights of a model, atomically.

    Args:
        path: The file, `.safetensors` by custom.
        model: What is written.
        experiment: What the model was built from.
        state: Tensors to write instead of the current ones.
        class_names: Names of the classes or target columns.
        options: How the run was started, its seed included; None for the defaults.
        epoch: The weights' epoch, counted from 0; -1 for weights of no epoch.
        scores: What the model reached, by split.
        graphs: Which custom graphs it was trained on; see `identity_of`.
    """
    options = options or RunOptions()
    metadata = {
        "kind": WEIGHTS,
        "format": VERSION,
        "experiment": experiment.content(),
        "features": asdict(model.features),
        "task": asdict(model.task),
        "class_names": list(class_names),
        "options": options.content(),
        "graphs": graphs,
        "seed": options.seed,
        "epoch": epoch,
        "scores": {split: dict(values) for split, values in (scores or {}).items()},
    }
    write_tensors(Path(path), model.state_dict() if state is None else state, metadata)


def load_weights(path: Path | str) -> Weights:
    """Read a file of weights; a corrupt one, another kind and a newer format are rejected."""
    state, metadata = read_tensors(Path(path), WEIGHTS)
    return Weights(Experiment.of(metadata["experiment"], str(path)), state, metadata)


def build_model(weights: Weights, where: Path | str = "weights") -> GraphMamba:
    """Build the model on the CPU, in evaluation mode."""
    model = weights.experiment.build(weights.metadata.get("seed", 0))
    load_state(model, weights.state, where)
    return model.eval()


def load_state(model: GraphMamba, state: Mapping[str, Tensor], where: Path | str) -> None:
    """Load a state dict; missing, unknown or misshaped tensors are rejected by name."""
    with readable(Path(where)):
        model.load_state_dict(dict(state))


@dataclass(frozen=True)
class Best:
    """The best epoch so far."""

    epoch: int
    value: float
    """Its validation score."""
    scores: Mapping[str, Scores]
    """All its scores by split."""
    weights: Mapping[str, Tensor] = field(repr=False)
    """The state dict of the model."""


@dataclass
class Progress:
    """Progress of a run, and sums over the current epoch."""

    epoch: int = 0
    """Counted from 0."""
    step: int = 0
    """Steps taken in this epoch."""
    taken: int = 0
    """Steps taken in total."""
    loss_sum: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    """Sum of the losses times labels of this process in this epoch, on the device."""
    labels: int = 0
    """Labels of this process's steps in this epoch."""
    train_seconds: float = 0.0
    """Time of this epoch's steps."""
    seconds: float = 0.0
    """Wall time of the run up to the last checkpoint."""
    best: Best | None = None

    @property
    def best_epoch(self) -> int:
        """The best epoch, -1 if there is none."""
        return -1 if self.best is None else self.best.epoch


@dataclass
class RunState:
    """The state of a run, with the settings that must not change when it resumes."""

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
    """Fingerprint of custom graphs; see `identity_of`."""

    @property
    def scored(self) -> GraphMamba:
        """The model that is evaluated and saved: the moving average, if there is one."""
        return self.model if self.average is None else self.average.model

    @property
    def parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(each.numel() for each in self.model.parameters())

    def about(self) -> dict[str, object]:
        """Experiment and options of the run."""
        return {"experiment": self.experiment.content(), "options": self.options.content()}

    def save(self, path: Path) -> None:
        """Write the state, atomically; all processes have to call it."""
        progress, best = self.progress, self.progress.best
        sums = torch.stack([progress.loss_sum, progress.loss_sum.new_tensor(progress.labels)])
        # what differs from process to process has a row for each
        own = {"sums": sums, **prefixed("generator", generator_tensors())}
        tensors = {
            **prefixed("model", self.model.state_dict()),
            **prefixed("average", self.average.state_dict() if self.average else {}),
            **prefixed("optimizer", optimizer_tensors(self.optimizer)),
            **prefixed("best", best.weights if best else {}),
            **{name: torch.cat(self.team.gather(each[None])).cpu() for name, each in own.items()},
        }
        about = {
            "kind": STATE,
            "format": VERSION,
            **self.about(),
            "graphs": self.graphs,
            "progress": {
                **{name: getattr(progress, name) for name in COUNTED},
                "best": best and {"epoch": best.epoch, "value": best.value, "scores": best.scores},
            },
            "schedule": self.schedule.state_dict(),
            "sampler": self.sampler.state_dict(),
            "generators": generator_words(),
        }
        # nobody may go on and read an older state than the others
        self.team.rank_zero_first(lambda: write_tensors(path, tensors, about))

    def load(self, path: Path) -> None:
        """Restore the state; rejected if the run was started with other settings."""
        tensors, about = read_tensors(path, STATE)
        self._reject_changes(path, about)
        use = "put them back, or start another run"
        check_same_graphs(self.experiment, about.get("graphs"), self.graphs, use)
        self.sampler.load_state_dict(about["sampler"])
        self.schedule.load_state_dict(about["schedule"])
        load_state(self.model, under("model", tensors), path)
        if self.average:
            self.average.load_state_dict(under("average", tensors))
        load_optimizer(self.optimizer, under("optimizer", tensors))

        progress, content = self.progress, about["progress"]
        for name in COUNTED:
            setattr(progress, name, content[name])
        loss_sum, labels = tensors["sums"][self.team.rank]
        progress.loss_sum, progress.labels = loss_sum.to(progress.loss_sum.device), int(labels)
        if best := content["best"]:
            scores, weights = read_scores(best["scores"]), under("best", tensors)
            progress.best = Best(best["epoch"], best["value"], scores, weights)

        # a row of a table may lie where no generator can read it
        rows = under("generator", tensors).items()
        own = {name: each[self.team.rank].clone() for name, each in rows}
        if self.team.device.type == "cpu":
            # that of a GPU, which need not be here, has no say in this run
            own.pop("cuda", None)
        restore_generators(own, about["generators"])

    def _reject_changes(self, path: Path, about: Mapping[str, Any]) -> None:
        """Reject settings other than those of the run, naming the first one."""
        began = Experiment.of(about["experiment"], str(path)).content()
        how = RunOptions.of(about["options"], str(path)).content()
        saved = {**flat_entries(began), **flat_entries(how)}
        wanted = {
            **flat_entries(self.experiment.content()), **flat_entries(self.options.content())
        }  # fmt: skip
        for key in [*wanted, *saved]:
            # statistics follow from the graphs, which are compared by themselves
            if key in FREE or key.startswith("data.statistics"):
                continue
            if saved.get(key) != wanted.get(key):
                raise UserError(
                    f"{key} must be {saved.get(key)!r}, as when the run was started, "
                    f"got {wanted.get(key)!r}"
                )


COUNTED = ("epoch", "step", "taken", "train_seconds", "seconds")
"""Of the progress, what JSON can write."""


def optimizer_tensors(optimizer: Optimizer) -> dict[str, Tensor]:
    """State tensors of an optimizer, by parameter and name."""
    state = optimizer.state_dict()["state"]
    return {
        f"{place}.{name}": torch.as_tensor(value)
        for place, entries in state.items()
        for name, value in entries.items()
    }


def load_optimizer(optimizer: Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore the state tensors of an optimizer; its settings stay."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        place, _, name = key.partition(".")
        state.setdefault(int(place), {})[name] = tensor
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def prefixed(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Put the name of a part before the names of its tensors."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors of a part, by their names without its own."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): tensor
        for name, tensor in tensors.items()
        if name.startswith(start)
    }


@contextmanager
def own_generators(seed: int) -> Iterator[None]:
    """Seed all generators inside; restore those of the caller on exit."""
    before = generator_tensors(), generator_words()
    seed_all(seed)
    try:
        yield
    finally:
        restore_generators(*before)


def seed_all(seed: int) -> None:
    """Seed torch on all devices, NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - it is the global one that libraries use
    random.seed(seed)


def process_seed(seed: int, rank: int) -> int:
    """Seed of one process of a run; the first one has that of the run.

    Not the sum of seed and rank: runs with consecutive seeds would share streams.
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
    """Restore all generators."""
    torch.set_rng_state(tensors["torch"])
    if "cuda" in tensors:
        torch.cuda.set_rng_state(tensors["cuda"])
    name, keys, place, has_gauss, gauss = words["numpy"]
    np.random.set_state((name, np.array(keys, np.uint32), place, has_gauss, gauss))  # noqa: NPY002
    version, state, spare = words["python"]
    random.setstate((version, tuple(state), spare))
