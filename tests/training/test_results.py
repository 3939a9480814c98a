"""What a run found."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphmamba.errors import UserError
from graphmamba.training.results import RunResult, SeedsResult, deviation_of, read_result

RUN = RunResult(
    run_dir=Path("runs/one"),
    seed=0,
    metric="accuracy",
    best_epoch=2,
    scores={"train": {"loss": 0.5}, "test": {"loss": math.nan, "accuracy": 0.8}},
    epochs=3,
    stop_reason="finished",
    parameters=10,
    seconds=1.5,
    peak_memory=100,
    environment={"torch": "2"},
)


def scored(value: float) -> RunResult:
    return replace(RUN, scores={"test": {"accuracy": value}})


def test_content_is_strict_json() -> None:
    written = json.loads(json.dumps(RUN.content(), allow_nan=False))
    assert written["scores"]["test"] == {"loss": None, "accuracy": 0.8}
    assert written["run_dir"] == "runs/one"


def test_mean_and_deviation_are_those_of_published_tables() -> None:
    runs = SeedsResult(Path("runs"), tuple(map(scored, (0.7, 0.8, 0.9))))
    assert runs.mean("test", "accuracy") == pytest.approx(0.8)
    # divided by the number of runs, not by one less
    assert runs.deviation("test", "accuracy") == pytest.approx(math.sqrt(0.02 / 3))
    written = json.loads(json.dumps(runs.content(), allow_nan=False))
    assert written["scores"]["test"]["accuracy"]["mean"] == pytest.approx(0.8)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_runs_that_are_not_done_do_not_count_beside_others(place: int) -> None:
    runs = [*map(scored, (0.7, 0.9))]
    for other in (replace(RUN, seed=5, stop_reason="max time"), replace(RUN, seed=5, scores={})):
        mixed = SeedsResult(Path("runs"), (*runs[:place], other, *runs[place:]))
        assert mixed.mean("test", "accuracy") == pytest.approx(0.8)
        written = json.loads(json.dumps(mixed.content(), allow_nan=False))
        assert (len(written["seeds"]), len(written["counted"])) == (3, 2)
        assert written["scores"]["test"]["accuracy"]["mean"] == pytest.approx(0.8)


def test_where_no_run_is_done_those_with_scores_count() -> None:
    stopped = replace(scored(0.7), stop_reason="max time")
    none = replace(stopped, scores={})
    assert SeedsResult(Path("runs"), (none, stopped)).counted == (stopped,)
    assert SeedsResult(Path("runs"), (none,)).content()["scores"] == {}


@pytest.mark.parametrize("scores", [5, None, {"test": 0.5}])
def test_scores_of_another_form_are_rejected(scores: object, tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    file.write_text(json.dumps(RUN.content() | {"scores": scores}))
    with pytest.raises(UserError, match="must be the results of one run"):
        read_result(file)


def test_a_run_without_an_epoch_has_no_score() -> None:
    assert math.isnan(replace(RUN, scores={}).test)


@pytest.mark.parametrize(
    ("stop_reason", "is_done"),
    [
        ("finished", True),
        ("early stopping", True),
        ("max time", False),
        ("signal", False),
        ("interrupt", False),
    ],
)
def test_what_was_interrupted_is_not_done(stop_reason: str, is_done: bool) -> None:
    assert replace(RUN, stop_reason=stop_reason).is_done == is_done


def test_deviations_are_divided_by_the_number_of_values() -> None:
    values = [1.0, 2.0, 6.0]
    expected = float(np.std(values))
    assert deviation_of(values) == pytest.approx(expected)
