"""Runs that are already on disk: their `results.json`, read again."""

import json
import math
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from graphmamba.errors import UserError
from graphmamba.train.folder import RunFolder
from graphmamba.train.results import RunResult


def read_run(folder: Path) -> RunResult:
    """Read what a run found; its folder is the one it is in now."""
    path = RunFolder(folder).results
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as mistake:
        raise UserError(f"'{path}' must be JSON: {mistake}") from mistake
    needed = {field.name for field in fields(RunResult)}
    if not isinstance(content, dict) or needed - content.keys():
        raise UserError(f"'{path}' must be the results of one run, with {sorted(needed)}")
    known = {name: content[name] for name in needed}
    return RunResult(**known | {"folder": folder, "scores": _scores(known["scores"])})


def _scores(splits: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """JSON writes null for what is no number."""
    return {
        split: {name: math.nan if value is None else value for name, value in scores.items()}
        for split, scores in splits.items()
    }
