"""Scores that weights had when they were scored once more, by `benchmarks/scores.py`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from graphmamba.errors import UserError
from graphmamba.train.results import Scores, json_numbers, read_scores


@dataclass(frozen=True)
class Rescored:
    """What one file of weights scored."""

    commit: str
    device: str
    scores: Mapping[str, Scores]
    """By split."""

    def content(self) -> dict[str, object]:
        """All of it, as JSON can write it."""
        scores = {split: json_numbers(values) for split, values in self.scores.items()}
        return {"commit": self.commit, "device": self.device, "scores": scores}


def read_rescored(path: Path) -> dict[str, Rescored]:
    """Read a record, by the names of the weights, `BENCHMARK/MODEL`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        where = content["environment"]
        splits: dict[str, dict[str, Scores]] = {}
        for row in content["rows"]:
            found = read_scores({row["split"]: row["now"]})
            splits.setdefault(row["weights"], {}).update(found)
        commit, device = str(where["commit"]), str(where["device"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as mistake:
        raise UserError(
            f"scored must be a record of benchmarks/scores.py, got '{path}': {mistake!r}"
        ) from mistake
    return {name: Rescored(commit, device, scores) for name, scores in splits.items()}
