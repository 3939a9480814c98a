"""What the efficiency study measures, as data."""

from dataclasses import dataclass, replace
from typing import Literal, get_args

from graphmamba.config import Experiment, load_experiment

Part = Literal["all", "malnet", "mixers"]
Figure = Literal["fractions", "mixers", "batches"]
"""Tables of the study, the most telling first."""
Sizing = Literal["published", "matched"]
"""`published`: each model's own config; `matched`: Graph-Mamba's config with the mixer exchanged,
so that width and depth are the same. The published rivals differ in both."""
SIZINGS: dict[Sizing, str] = {"published": "as published", "matched": "same width and depth"}
"""What figures and tables call them."""

TITLES = {
    "graph-mamba": "Graph-Mamba",
    "gps-transformer": "Transformer",
    "gps-performer": "Performer",
    "gps-bigbird": "BigBird",
    "exphormer": "Exphormer",
    "gatedgcn": "GatedGCN alone",
}
"""The models of the second figure by the names of their configs."""
OURS = "graph-mamba"
FIRST_FIGURE = (OURS, "gps-transformer")
"""Models of the first figure: 285,125 and 286,725 parameters."""
FIRST_SET = "malnet-tiny"
PAPER_BATCH = 256
"""Whole MalNet-Tiny graphs that the paper says fit into 24 GB with Graph-Mamba."""


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    fractions: tuple[float, ...] = (0.05, *(tenth / 10 for tenth in range(1, 11)))
    """Shares of the nodes of each MalNet-Tiny graph."""
    batch_size: int = 16
    """Of the first figure."""
    batches: int = 4
    """Batches of each measurement."""
    largest: int = 1024
    """Where the search for the largest batch ends at last."""
    sets: tuple[str, ...] = ("pcqm-contact", "cluster", "peptides-func", "pascalvoc-sp")
    """Of the second figure; batches have the size that Graph-Mamba is trained with."""
    models: tuple[str, ...] = tuple(TITLES)
    """Of the second figure."""
    largest_batch_size: int | None = None
    """Bound on that size."""
    scale: float = 1.0
    """Size of the graphs over that of the benchmarks' own."""
    repeats: int = 5
    """Steps timed with each batch."""


FULL = Plan()
QUICK = Plan(
    fractions=(0.1, 0.5, 1.0), batch_size=4, batches=1, largest=16, largest_batch_size=4,
    scale=0.1, repeats=1,
)  # fmt: skip
"""Small graphs and few of them: a minute on a laptop."""


@dataclass(frozen=True)
class Claim:
    """What the paper says Graph-Mamba saves."""

    benchmark: str
    rival: str
    memory: float
    """Share of the rival's memory that is saved."""
    flops: float
    """Share of its operations."""


CLAIMS = (
    Claim("peptides-func", "gps-transformer", memory=0.74, flops=0.66),
    Claim("peptides-func", "exphormer", memory=0.40, flops=0.40),
)


def experiment_of(benchmark: str, model: str, sizing: Sizing) -> Experiment:
    """Make the experiment of a model, as published or as wide and deep as Graph-Mamba."""
    own = load_experiment(f"{benchmark}/{model}")
    if sizing == "published":
        return own
    base = load_experiment(f"{benchmark}/{OURS}")
    # Performer's published heads are as wide as if the model were far larger.
    attention = replace(own.model.attention, head_width=None)
    return replace(base, model=replace(base.model, mixer=own.model.mixer, attention=attention))


def is_the_same_work(one: Experiment, other: Experiment) -> bool:
    """Tell whether a step of both costs the same.

    The recipe only says how they are trained, and Mamba alone reads how it lines nodes up.
    """
    model = one.model
    if model.mixer != "mamba":
        same = other.model
        model = replace(model, order=same.order, mamba=same.mamba, input_norm=same.input_norm)
    return replace(one, model=model, recipe=other.recipe) == other


@dataclass(frozen=True)
class Cell:
    """One measurement."""

    figure: Figure
    benchmark: str
    model: str
    sizing: Sizing = "published"
    fraction: float = 1.0

    def __str__(self) -> str:
        match self.figure:
            case "fractions":
                return f"{self.benchmark} at {self.fraction:g} {self.model}"
            case "mixers":
                return f"{self.benchmark} {self.model} {self.sizing}"
            case "batches":
                return f"{self.benchmark} {self.model} largest batch"


def cells(plan: Plan) -> list[Cell]:
    """List all measurements in the order of the tables."""
    return [
        *(
            Cell("fractions", FIRST_SET, model, fraction=fraction)
            for fraction in plan.fractions
            for model in FIRST_FIGURE
        ),
        *(
            Cell("mixers", benchmark, model, sizing)
            for benchmark in plan.sets
            for sizing in SIZINGS
            for model in plan.models
        ),
        *(Cell("batches", FIRST_SET, model) for model in FIRST_FIGURE),
    ]


def cells_by_worth(plan: Plan, part: Part) -> list[Cell]:
    """List the measurements of a part so that a study that is cut off has the best of them.

    Whole MalNet-Tiny graphs and ever smaller shares of them, then the sets that the paper makes
    claims about, the others, and the largest batches, which take longest.
    """
    claimed = {claim.benchmark for claim in CLAIMS}

    def rank(cell: Cell) -> tuple[int, float, bool]:
        return get_args(Figure).index(cell.figure), -cell.fraction, cell.benchmark not in claimed

    chosen = (cell for cell in cells(plan) if part in ("all", PART_OF[cell.figure]))
    return sorted(chosen, key=rank)


PART_OF: dict[Figure, Part] = {"fractions": "malnet", "mixers": "mixers", "batches": "malnet"}
