"""What commands print: each line as it is, in one of the processes, and tables that fit."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from graphmamba.commands.printing import results_table, say, scores_table
from graphmamba.reported import Score
from graphmamba.training.metrics import COLUMNS, metric_title
from graphmamba.training.run_dir import RunResult, SeedsResult
from tests.training.test_progress import RESULT

NAMES = ("loss", *COLUMNS)
PAPER = Score(0.3395, 0.0013, "Graph-Mamba paper")


def printed(table: object, width: int) -> list[str]:
    made = io.StringIO()
    Console(file=made, width=width, soft_wrap=True, highlight=False).print(table)
    lines = made.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    return [line.strip() for line in lines]


def scores(first: int) -> dict[str, float]:
    """A number for each metric that no other has."""
    return {name: (first + place) / 10_000 for place, name in enumerate(NAMES)}


def link_run(seed: int = 0) -> RunResult:
    parts = {"train": {"loss": 0.1}, "validation": scores(2000), "test": scores(3000 + seed)}
    return replace(RESULT, seed=seed, stop_reason="finished", metric="mrr", scores=parts)


@pytest.mark.parametrize("width", [40, 80])
def test_each_metric_has_a_row_that_fits(width: int) -> None:
    lines = printed(scores_table("a on b", {"test": scores(1000)}), width)
    rows = [f"{metric_title(name)} {value:.4f}" for name, value in scores(1000).items()]
    assert [" ".join(line.split()) for line in lines if "0." in line] == rows


def test_splits_and_the_published_score_are_columns() -> None:
    lines = [" ".join(line.split()) for line in printed(results_table(link_run(), PAPER), 80)]
    assert any(line.startswith("train validation test") for line in lines)
    assert "loss 0.1000 0.2000 0.3000" in lines
    assert "MRR 0.2001 0.3001 0.3395 ± 0.0013" in lines
    assert "hits@10 extended 0.2012 0.3012" in lines


def test_runs_that_are_not_finished_are_named_and_left_out() -> None:
    stopped = replace(link_run(7), stop_reason="max time", scores={})
    runs = SeedsResult(Path("runs"), (stopped, link_run(0), link_run(2)))
    lines = [" ".join(line.split()) for line in printed(results_table(runs), 150)]
    assert any("seeds 0, 2 · without seed 7: stopped by max time" in line for line in lines)
    assert any("0.3002 ± 0.0001" in line for line in lines)


@pytest.mark.parametrize("path", ["exp[a]", "q[/b]", ":dog:", "a b " * 50])
def test_a_path_is_printed_as_it_is(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"best weights  {path}")
    assert capsys.readouterr().out == f"best weights  {path}\n"


def test_the_first_process_speaks_for_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    say("one")
    monkeypatch.setenv("RANK", "0")
    say("another")
    assert capsys.readouterr().out == "another\n"
