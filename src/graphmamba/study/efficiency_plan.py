"""What the efficiency study measures, as data."""

from dataclasses import dataclass, replace
from typing import Literal

from graphmamba.config import Experiment, load_experiment

Sizing = Literal["published", "matched"]
"""`published`: each model's own config; `matched`: Graph-Mamba's config with the mixer exchanged,
so that width and depth are the same. The published rivals differ in both."""

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
