"""Test scores reported in papers, one row per model in `reported.csv`.

A score without a standard deviation is a single run, or its paper gives none.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

from graphmamba.training.experiment import PRESETS, Experiment, load_experiment

GRAPH_MAMBA = "Graph-Mamba paper"


@dataclass(frozen=True)
class Score:
    """A reported test score, in the metric of its data set."""

    mean: float
    std: float | None
    source: str
    """The paper."""

    def __str__(self) -> str:
        return f"{self.mean:.4f}" + ("" if self.std is None else f" ± {self.std:.4f}")


def _read(path: Path) -> dict[str, Score]:
    scores = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            model, paper = row.pop("model"), row.pop("paper")
            for dataset, text in row.items():
                if text:
                    mean, _, std = text.partition(" ± ")
                    scores[f"{dataset}/{model}"] = Score(
                        float(mean), float(std) if std else None, paper
                    )
    return scores


PUBLISHED = _read(Path(__file__).with_suffix(".csv"))
"""Scores by `DATASET/MODEL`."""


def published(dataset: str, model: str) -> Score | None:
    """Find the reported score of a model on a data set; None if there is none."""
    # the papers' GIN reads edge features on the long-range sets, where its preset is named GINE
    return PUBLISHED.get(f"{dataset}/{'gin' if model == 'gine' else model}")


def reported_for(experiment: Experiment) -> Score | None:
    """Find the reported score of the same model on the same data; None if there is none."""
    if experiment.data is not None or experiment.split_sizes is not None:
        return None
    for file in sorted((PRESETS / experiment.dataset).glob("*.yaml")):
        score, preset = published(experiment.dataset, file.stem), load_experiment(file)
        same = ("encoder", "model", "head")
        if score and all(getattr(preset, part) == getattr(experiment, part) for part in same):
            return score
    return None
