"""Experiments as data: one frozen dataclass, read from YAML, unknown keys refused.

The package carries one file per published row, `configs/BENCHMARK/MODEL.yaml`; each holds only
what differs from the defaults, under a first line that names the row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from graphmamba.checks import check_choice
from graphmamba.data.catalog import CATALOG, Benchmark, LossName
from graphmamba.encode.config import EncoderConfig
from graphmamba.errors import UserError
from graphmamba.parse import parse
from graphmamba.stack.config import StackConfig
from graphmamba.task.heads import HeadConfig
from graphmamba.task.model import GraphMamba
from graphmamba.train.recipe import Recipe

CONFIGS = Path(__file__).parent / "configs"


@dataclass(frozen=True)
class Experiment:
    """Everything that makes one row of a table; machine, paths and seeds are not part of it."""

    benchmark: str = "pattern"
    """Data set, by its name in the catalogue."""
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    """From raw columns to rows."""
    model: StackConfig = field(default_factory=StackConfig)
    """The layers."""
    head: HeadConfig = field(default_factory=HeadConfig)
    """From rows to predictions."""
    recipe: Recipe = field(default_factory=Recipe)
    """How it is trained."""

    def __post_init__(self) -> None:
        check_choice("benchmark", self.benchmark, tuple(CATALOG))

    @property
    def data(self) -> Benchmark:
        """The benchmark's entry in the catalogue."""
        return CATALOG[self.benchmark]

    @property
    def loss(self) -> LossName:
        """What is minimised: the recipe's choice, or else the benchmark's own."""
        return self.recipe.loss or self.data.task.loss

    def build(self, seed: int = 0) -> GraphMamba:
        """Make the model; its random line-ups follow `seed`, its weights torch's generator."""
        return GraphMamba(
            self.data.features, self.data.task, self.model, self.encoder, self.head, seed=seed
        )


def config_names() -> list[str]:
    """Name all experiments in the package as `BENCHMARK/MODEL`, benchmarks as in the catalogue."""
    return [
        f"{benchmark}/{file.stem}"
        for benchmark in CATALOG
        for file in sorted((CONFIGS / benchmark).glob("*.yaml"))
    ]


def load_experiment(
    name_or_path: str | Path, overrides: Mapping[str, object] | None = None
) -> Experiment:
    """Read an experiment.

    Args:
        name_or_path: `BENCHMARK/MODEL`; `BENCHMARK` alone for Graph-Mamba on it; or a YAML file.
        overrides: What replaces entries of the file, by dotted key: `{"model.layers": 6}`.
    """
    import yaml

    path = _path_of(name_or_path)
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as mistake:
        raise UserError(f"{path} must be YAML: {mistake}") from mistake
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold keys and values, got {type(content).__name__}")
    for key, value in (overrides or {}).items():
        _put(content, key, value)
    return parse(Experiment, content, str(name_or_path))


def _path_of(name_or_path: str | Path) -> Path:
    if Path(name_or_path).suffix in {".yaml", ".yml"}:
        return Path(name_or_path)
    name = str(name_or_path)
    full = f"{name}/graph-mamba" if name in CATALOG else name
    known = config_names()
    if full not in known:
        from graphmamba.parse import nearest

        raise UserError(
            f"no experiment '{name}'; did you mean '{nearest(name, [*CATALOG, *known])}'?"
        )
    return CONFIGS / f"{full}.yaml"


def _put(content: dict[str, object], key: str, value: object) -> None:
    """Set a dotted key, making the levels in between where they are missing."""
    *levels, last = key.split(".")
    for level in levels:
        below = content.get(level)
        if not isinstance(below, dict):
            below = content[level] = {}
        content = below
    content[last] = value
