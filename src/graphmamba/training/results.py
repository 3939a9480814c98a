"""What a run found, and what a table of several runs says."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from graphmamba.errors import UserError
from graphmamba.training.metrics import LOWER_IS_BETTER

Scores = Mapping[str, float]
"""`loss`, and the metrics by their names."""
StopReason = Literal["finished", "early stopping", "max time", "signal", "interrupt"]
"""`interrupt` is Ctrl-C, `signal` that of a system that ends a process, SIGTERM."""
Rank = tuple[bool, float, int]


def is_sound(scores: Mapping[str, Scores]) -> bool:
    """Tell whether there is a number for every validation graph, as far as the loss shows it."""
    return not math.isnan(scores.get("validation", {}).get("loss", 0.0))


def rank_of(scores: Mapping[str, Scores], metric: str, seed: int) -> Rank:
    """Sort runs by their validation score, the best first; the lower seed among equals.

    Weights that find no number for some graphs serve nobody, whatever their score: they come last.
    """
    value = scores.get("validation", {}).get(metric, math.nan)
    value = value if metric in LOWER_IS_BETTER else -value
    return not is_sound(scores), math.inf if math.isnan(value) else value, seed


@dataclass(frozen=True)
class RunResult:
    """One run of one seed."""

    run_dir: Path
    """Where its files are."""
    seed: int
    metric: str
    """What the best epoch was chosen by."""
    best_epoch: int
    """Counted from 0; -1 where none was chosen."""
    scores: Mapping[str, Scores]
    """Scores of `train`, `validation` and `test` in the best epoch; of `train` the loss alone."""
    epochs: int
    """Epochs that were finished."""
    stop_reason: StopReason
    """Why it ended; after `max time`, `signal` and `interrupt` it can be resumed."""
    parameters: int
    seconds: float
    """Wall time, that of earlier parts of a resumed run included."""
    peak_memory: int
    """Bytes: of the GPU, or of the process where there is none."""
    environment: Mapping[str, object]
    """Versions, device and commit."""
    is_sampled: bool = False
    """Whether nodes were scored by sampled neighbours, as where one graph does not fit."""

    @property
    def test(self) -> float:
        """Test score of the best epoch; NaN where there is none."""
        return self.scores.get("test", {}).get(self.metric, math.nan)

    @property
    def validation(self) -> float:
        """Validation score of the best epoch; NaN where there is none."""
        return self.scores.get("validation", {}).get(self.metric, math.nan)

    @property
    def is_sound(self) -> bool:
        """Whether its weights find a number for every validation graph, as far as is known."""
        return is_sound(self.scores)

    @property
    def rank(self) -> Rank:
        """Sorts runs, the best first; see `rank_of`."""
        return rank_of(self.scores, self.metric, self.seed)

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to resume."""
        return self.stop_reason in ("finished", "early stopping")

    def content(self) -> dict[str, object]:
        """All entries as JSON can write them; numbers that are none become null."""
        return asdict(self) | {
            "run_dir": str(self.run_dir),
            "scores": {split: json_numbers(scores) for split, scores in self.scores.items()},
            "environment": dict(self.environment),
        }


def read_result(path: Path) -> RunResult:
    """Read what a run found from its `results.json`; the folder is the one that it is in now."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"'{path}' must be JSON: {error}") from error
    needed = {field.name for field in fields(RunResult)} - {"is_sampled"}
    if not isinstance(content, dict) or needed - content.keys():
        raise UserError(f"'{path}' must be the results of one run, with {sorted(needed)}")
    known = {name: content[name] for name in needed}
    known["is_sampled"] = bool(content.get("is_sampled", False))
    try:
        scores = read_scores(known["scores"])
    except UserError as error:
        raise UserError(f"'{path}' must be the results of one run: {error}") from error
    return RunResult(**known | {"run_dir": path.parent, "scores": scores})


def read_scores(splits: Any) -> dict[str, dict[str, float]]:
    """Take scores from JSON, which writes null for what is no number."""
    try:
        return {
            split: {name: math.nan if each is None else float(each) for name, each in found.items()}
            for split, found in splits.items()
        }
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise UserError("scores must be numbers by split and name, got others") from error


@dataclass(frozen=True)
class SeedsResult:
    """Runs that differ by their seed alone."""

    run_dir: Path
    runs: tuple[RunResult, ...]

    @property
    def best(self) -> RunResult:
        """The one that validation chooses."""
        return min(self.runs, key=lambda run: run.rank)

    @property
    def counted(self) -> tuple[RunResult, ...]:
        """Runs whose scores are joined: those that are done; all with scores where none is."""
        scored = tuple(run for run in self.runs if run.scores)
        return tuple(run for run in scored if run.is_done) or scored

    def mean(self, split: str, name: str) -> float:
        """Mean over the seeds that count."""
        return mean_of(self._values(split, name))

    def deviation(self, split: str, name: str) -> float:
        """Standard deviation over the seeds that count."""
        return deviation_of(self._values(split, name))

    def content(self) -> dict[str, object]:
        """Mean and deviation of each score, then all runs, as JSON can write them."""
        counted = self.counted
        table = {
            split: {
                name: json_numbers(
                    {"mean": self.mean(split, name), "deviation": self.deviation(split, name)}
                )
                for name in scores
            }
            for split, scores in (counted[0].scores if counted else {}).items()
        }
        return {
            "metric": self.runs[0].metric,
            "seeds": [run.seed for run in self.runs],
            "counted": [run.seed for run in counted],
            "scores": table,
            "runs": [run.content() for run in self.runs],
        }

    def _values(self, split: str, name: str) -> Sequence[float]:
        values = [run.scores.get(split, {}).get(name, math.nan) for run in self.counted]
        return values or [math.nan]


@dataclass(frozen=True)
class FoldsResult(SeedsResult):
    """Runs of which each has another part of the graphs for its test set."""

    @property
    def predictions(self) -> Path:
        """A CSV with a prediction of each graph by the model that did not see it."""
        return self.run_dir / "out_of_fold.csv"

    def content(self) -> dict[str, object]:
        """Mean and deviation of each score, then all runs, as JSON can write them."""
        content = super().content()
        del content["seeds"], content["counted"]
        return {"folds": len(self.runs)} | content


def mean_of(values: Sequence[float]) -> float:
    """Mean, rounded once."""
    return math.fsum(values) / len(values)


def deviation_of(values: Sequence[float]) -> float:
    """Standard deviation, divided by the number of values as in published tables."""
    mean = mean_of(values)
    return math.sqrt(mean_of([(value - mean) ** 2 for value in values]))


def json_numbers(scores: Scores) -> dict[str, float | None]:
    """Return scores as JSON can write them, which has no word for NaN and infinity."""
    return {name: value if math.isfinite(value) else None for name, value in scores.items()}
