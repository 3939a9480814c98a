"""Experiments from YAML, unknown keys rejected.

The package carries one file per published row, `presets/BENCHMARK/MODEL.yaml`; each holds only
what differs from the defaults, under a first line that names the row.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from graphmamba.checks import check_is
from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.parse import read_yaml, suggest
from graphmamba.reported import Score, published
from graphmamba.training.experiment import VERSION, Experiment, check_version
from graphmamba.training.run_dir import RunConfig, parse_run_config

__all__ = [
    "DEFAULT",
    "PRESETS",
    "VERSION",
    "Experiment",
    "config_names",
    "experiment_of",
    "load_experiment",
    "load_run_config",
    "reported_for",
]

PRESETS = Path(__file__).parent / "presets"
DEFAULT = "pattern/default"
"""The experiment of `graphmamba train` without a name: small enough for a laptop."""


def config_names() -> list[str]:
    """Name all experiments in the package as `BENCHMARK/MODEL`, benchmarks as in the catalogue."""
    return [
        f"{benchmark}/{file.stem}"
        for benchmark in CATALOG
        for file in sorted((PRESETS / benchmark).glob("*.yaml"))
    ]


def load_experiment(name: str | Path, overrides: Mapping[str, object] | None = None) -> Experiment:
    """Read an experiment; of a run's own file, not how it was run.

    Args:
        name: `BENCHMARK/MODEL`; `BENCHMARK` alone for Graph-Mamba on it; or a YAML file.
        overrides: What replaces entries of the file, by dotted key: `{"model.layers": 6}`.
    """
    return load_run_config(name, overrides).experiment


def load_run_config(name: str | Path, overrides: Mapping[str, object] | None = None) -> RunConfig:
    """Read an experiment, and how a run of it was started where the file says that as well.

    Args:
        name: As for `load_experiment`.
        overrides: As there.
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
    """Make an experiment from entries by dotted key; all others have their defaults."""
    content: dict[str, object] = {}
    for key, value in entries.items():
        _put(content, key, value)
    return Experiment.of(content, where)


def reported_for(experiment: Experiment) -> Score | None:
    """Find what is reported for this model on this set; None for other models and other data."""
    if experiment.data is not None or experiment.split_sizes is not None:
        return None
    for file in sorted((PRESETS / experiment.dataset).glob("*.yaml")):
        listed = load_experiment(file)
        score = published(experiment.dataset, file.stem)
        same = all(
            getattr(listed, part) == getattr(experiment, part)
            for part in ("encoder", "model", "head")
        )
        if same and score is not None:
            return score
    return None


def _path_of(name: str | Path) -> Path:
    if Path(name).suffix in {".yaml", ".yml"}:
        return Path(name)
    name = str(name)
    full = f"{name}/graph-mamba" if name in CATALOG else name
    known = config_names()
    if full not in known:
        if Path(name).is_file():
            raise UserError(f"no experiment '{name}': files are .yaml, custom graphs .npz or .csv")
        told = suggest(name, [*CATALOG, *known], _listed(name.partition("/")[0], known))
        raise UserError(f"no experiment '{name}', and no such folder or file; {told}")
    return PRESETS / f"{full}.yaml"


def _listed(benchmark: str, known: Iterable[str]) -> str:
    """Name the models of a benchmark, or the benchmarks where there is none of this name."""
    models = [name for name in known if name.startswith(f"{benchmark}/")]
    return f"there is: {', '.join(models or CATALOG)}"


def _put(content: dict[str, object], key: str, value: object) -> None:
    """Set a dotted key, making the levels in between where they are missing."""
    *levels, last = key.split(".")
    for level in levels:
        below = content.get(level)
        if not isinstance(below, dict):
            below = content[level] = {}
        content = below
    content[last] = value
