"""A trained model as one file: weights, and in the header what it takes to build the model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from graphmamba.atomic import atomic_write
from graphmamba.checks import check_seed
from graphmamba.data.catalog import Features, Task
from graphmamba.errors import UserError
from graphmamba.nn.model import GraphMamba
from graphmamba.parse import parse
from graphmamba.training.experiment import VERSION, Experiment, RunOptions, check_version
from graphmamba.training.results import Rank, rank_of, read_scores

KIND = "weights"
META = "graphmamba"
"""Key of a safetensors file's header under which our JSON is."""


class Weights(NamedTuple):
    """What a file of weights holds."""

    experiment: Experiment
    """Which model, and how it was trained."""
    state: dict[str, Tensor]
    """Parameters and buffers by their names, on the CPU."""
    metadata: dict[str, object]
    """All of the header: also `features`, `task`, `class_names`, `options`, `epoch`, `scores`, and
    `scored_again` where somebody has."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes or label columns; empty where they have none.

        Weights that do not say are called as their data are: older ones of a benchmark.
        """
        names, known = self.metadata.get("class_names"), self.experiment.dataset_info.names
        if not names:
            return known
        task = self.experiment.dataset_info.task
        count = task.classes or task.outputs
        if not isinstance(names, list) or (task.level != "link" and len(names) != count):
            raise UserError(f"class_names must be {count} classes or labels, got {names!r}")
        return tuple(map(str, names))

    @property
    def options(self) -> RunOptions:
        """How the run computed; the defaults for weights that say nothing about it."""
        content = self.metadata.get("options")
        return RunOptions.of(content, "options") if isinstance(content, dict) else RunOptions()

    @property
    def rank(self) -> Rank:
        """Sorts weights by what validation says of them, the best first."""
        return rank_of(
            _scores(self.metadata), self.experiment.dataset_info.task.metric, self.options.seed
        )

    @property
    def reported(self) -> dict[str, dict[str, float]]:
        """Scores by split: those that the weights had last, or else those of their run."""
        again = self.metadata.get("scored_again")
        found = _scores(self.metadata) | (_scores(again) if isinstance(again, dict) else {})
        # what a run says of training graphs was found while the weights changed
        found.pop("train", None)
        return found


def _scores(about: Mapping[str, object]) -> dict[str, dict[str, float]]:
    scores = about.get("scores")
    return read_scores(scores) if isinstance(scores, dict) else {}


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
    """Write a model, whole or not at all.

    Args:
        path: The file, `.safetensors` by custom.
        model: What is written.
        experiment: What the model was built from.
        state: Tensors in the place of the model's own, such as earlier ones.
        class_names: What predictions are called.
        options: How the run was started, its seed included; None for the defaults.
        epoch: The weights' epoch, counted from 0; -1 for weights of no epoch.
        scores: What the model reached, by split.
        graphs: Which custom graphs it was trained on; see `identity_of`.
    """
    options = options or RunOptions()
    metadata = {
        "kind": KIND,
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
    path = Path(path)
    state, metadata = read_tensors(path)
    check_kind(path, metadata, KIND)
    content = metadata.get("experiment")
    if not isinstance(content, dict):
        raise UserError(f"'{path}' must hold an experiment, got {content!r}")
    return Weights(Experiment.of(content, str(path)), state, metadata)


def check_kind(path: Path, about: Mapping[str, object], kind: str) -> None:
    """Reject a file that holds something else, or that another version wrote."""
    if about.get("kind") != kind:
        raise UserError(f"'{path}' must be a file of {kind}, got {about.get('kind')!r}")
    version = about.get("format")
    if not isinstance(version, int) or version < 1:
        raise UserError(f"'{path}' must say its format, got {version!r}")
    check_version(version, f"'{path}'")


def build_model(weights: Weights, where: Path | str = "weights") -> GraphMamba:
    """Make the model again, on the CPU, ready for evaluation.

    Args:
        weights: What `load_weights` read.
        where: What a message calls the file.
    """
    outline = weights.experiment.outline()
    for name, kind, own in (("features", Features, outline.features), ("task", Task, outline.task)):
        content = weights.metadata.get(name)
        if not isinstance(content, dict) or parse(kind, content, f"{where}: {name}") != own:
            raise UserError(f"'{where}': {name} must be those of its experiment, got {content}")
    # only now memory is taken, no more than the file has
    check_tensors(outline.state_dict(), weights.state, where)
    seed: Any = weights.metadata.get("seed", 0)
    check_seed(f"'{where}': seed", seed)
    model = weights.experiment.build(seed)
    model.load_state_dict(weights.state)
    return model.eval()


def load_state(model: GraphMamba, state: Mapping[str, Tensor], where: Path | str) -> None:
    """Fill a model; tensors that are missing, unknown or of another shape are rejected by name."""
    check_tensors(model.state_dict(), state, where)
    model.load_state_dict(dict(state))


def check_tensors(
    wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], where: Path | str, prefix: str = ""
) -> None:
    """Reject tensors that are not those of a model; `prefix` is what their file calls them."""
    for name, tensor in wanted.items():
        if name not in found:
            raise UserError(f"'{where}' must hold a tensor '{prefix}{name}', and it does not")
        if found[name].shape != tensor.shape:
            raise UserError(
                f"'{where}': tensor '{prefix}{name}' must have shape {list(tensor.shape)}, "
                f"got {list(found[name].shape)}"
            )
        if found[name].is_floating_point() != tensor.is_floating_point():
            raise UserError(
                f"'{where}': tensor '{prefix}{name}' must be of {tensor.dtype}, "
                f"got {found[name].dtype}"
            )
    unknown = sorted(found.keys() - wanted.keys())
    if unknown:
        raise UserError(
            f"'{where}' must hold no tensor '{prefix}{unknown[0]}', which the model lacks"
        )


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
    """Write tensors with a JSON description in the header, whole."""
    from safetensors.torch import save

    # several names for one storage, and views, are more than the format knows
    apart = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}

    def write(partial: Path) -> None:
        partial.write_bytes(save(apart, metadata={META: json.dumps(about)}))

    atomic_write(path, write)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write_tensors` wrote; never runs code of the file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"'{path}' must be a file, and there is none")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads((file.metadata() or {})[META])
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise UserError(f"'{path}' is corrupt or no safetensors file: {error}") from error
    except KeyError as error:
        raise UserError(f"'{path}' was not written by graphmamba: its header says nothing") from (
            error
        )
    if not isinstance(about, dict):
        raise UserError(f"'{path}' must be described by keys and values, got {about!r}")
    return tensors, about
