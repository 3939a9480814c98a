"""The ablation: its rows, resuming, and its table."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmamba.ordering.policy import PUBLISHED
from graphmamba.studies import ablation as module
from graphmamba.studies.ablation import (
    ORDER_ROWS,
    PLUS_ROWS,
    Entry,
    ablation,
    row_experiment,
    row_experiments,
    write_ablation,
)
from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.run_dir import RunDir, RunResult, write_config

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "split_sizes": (3, 1, 1),
    "encoder.laplacian.channels": 4,
    "model.channels": 8,
    "model.layers": 1,
    "train.epochs": 1,
    "train.batch_size": 3,
}


def result(folder: Path, seed: int, score: float, stop_reason: str = "finished") -> RunResult:
    return RunResult(
        run_dir=folder,
        seed=seed,
        metric="average_precision",
        best_epoch=3,
        scores={"test": {"loss": 1.0, "average_precision": score}},
        epochs=5,
        stop_reason=stop_reason,  # type: ignore[arg-type]
        parameters=373_018,
        seconds=60.0,
        peak_memory=10**9,
        environment={"device": "a device"},
    )


def train_small(folder: Path, **more: Any) -> None:
    given = {"datasets": "pattern", "seeds": "0", "data_dir": folder / "sets"}
    ablation(folder / "runs", **{**given, "options": {"device": "cpu"}, "overrides": SMALL, **more})


def fake_fit(monkeypatch: pytest.MonkeyPatch, stop_reason: Callable[[Path], str]) -> list[bool]:
    """Replace training; returns a list that gets `resume` of each call."""
    calls: list[bool] = []

    def fit(_e: Any, _s: Any, options: RunOptions, folder: Path, **given: bool) -> RunResult:
        calls.append(given["resume"])
        return result(folder, options.seed, 0.5, stop_reason(folder))

    monkeypatch.setattr(module, "fit", fit)
    return calls


def csv_rows(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((folder / "ablation.csv").read_text().splitlines()))


@pytest.mark.parametrize(("benchmark", "bins"), [("peptides-func", 1), ("pascalvoc-sp", 2)])
def test_order_rows_differ_in_their_ordering_only(benchmark: str, bins: int) -> None:
    base = load_experiment(f"{benchmark}/graph-mamba")
    rows = {row: row_experiment(benchmark, "order", row) for row in ORDER_ROWS}
    assert rows["degree"] == base
    assert rows["none"].model.ordering == PUBLISHED["Mamba"]
    assert len({str(row.model.ordering) for row in rows.values()}) == len(ORDER_ROWS)
    for name, row in rows.items():
        assert row.model.ordering.bins == (1 if name == "none" else bins)
        assert replace(row, model=replace(row.model, ordering=base.model.ordering)) == base


@pytest.mark.parametrize("benchmark", ["peptides-func", "pascalvoc-sp"])
def test_plus_rows_restore_one_component_of_the_paper_each(benchmark: str) -> None:
    paper = load_experiment(f"{benchmark}/graph-mamba")
    rows = row_experiments(benchmark, "plus")
    plus = rows.pop("plus")
    assert plus == load_experiment(f"{benchmark}/graph-mamba-plus")
    assert all(row not in (plus, paper) for row in rows.values())
    assert rows.pop("no-mamba").model == replace(plus.model, global_model="none")
    # all of them together are the paper's model
    together = plus
    for name in rows:
        together = PLUS_ROWS[name].make(together, paper)
    assert together == paper


def test_a_component_equal_to_the_paper_s_has_no_row() -> None:
    same: dict[str, object] = {
        "model.ordering.score": "spectral",
        "model.ordering.direction": "bidirectional",
        "model.ordering.bins": 2,
    }
    rows = row_experiments("pascalvoc-sp", "plus", same)
    assert set(PLUS_ROWS) - rows.keys() == {"paper-order", "paper-block", "paper-layer"}


def test_every_row_is_trained_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train_small(tmp_path)
    assert f"Files: {tmp_path / 'runs'}\n" in capsys.readouterr().out
    assert (tmp_path / "runs" / "pattern" / "cluster" / "seed-0" / "results.json").exists()
    first = csv_rows(tmp_path / "runs")
    assert [line["row"] for line in first] == list(ORDER_ROWS)
    calls = fake_fit(monkeypatch, lambda _: "finished")
    train_small(tmp_path)
    assert csv_rows(tmp_path / "runs") == first
    assert not calls


def test_a_stopped_run_ends_the_study_and_is_resumed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = fake_fit(monkeypatch, lambda at: "max time" if "permutation" in str(at) else "finished")
    with pytest.raises(ValueError, match=r"stopped by max time.*the same command resumes"):
        train_small(tmp_path)
    assert [line["row"] for line in csv_rows(tmp_path / "runs")] == ["none"]
    run = RunDir(tmp_path / "runs" / "pattern" / "none" / "seed-0")
    run.path.mkdir(parents=True, exist_ok=True)
    write_config(run.config, row_experiment("pattern", "order", "none", SMALL), RunOptions())
    with pytest.raises(ValueError, match="stopped by max time"):
        train_small(tmp_path)
    assert calls == [False, False, True, False]
    with pytest.raises(ValueError, match="must hold runs of the same experiment"):
        train_small(tmp_path, overrides={**SMALL, "train.epochs": 2})


def test_a_report_reads_finished_runs_also_of_another_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, kept, out = tmp_path / "runs", tmp_path / "kept", tmp_path / "out[a]"
    given: Any = {"datasets": "pattern", "also": kept, "out": out, "report": True}
    with pytest.raises(ValueError, match="run_dir must hold finished runs for a report"):
        ablation(runs, **given)
    for place, row, stop_reason in (
        (runs / "pattern" / "none" / "seed-1", "none", "finished"),
        (runs / "pattern" / "cluster" / "seed-0", "cluster", "max time"),
        (kept / "pattern" / "graph-mamba" / "seed-2", "degree", "finished"),
        (kept / "pattern" / "other" / "seed-0", "permutation", "signal"),
    ):
        run = RunDir(place)
        run.path.mkdir(parents=True, exist_ok=True)
        write_config(run.config, row_experiment("pattern", "order", row), RunOptions())
        run.write_results(result(place, int(place.name[-1]), 0.5, stop_reason))
    ablation(runs, **given)
    assert [(row["row"], row["seeds"]) for row in csv_rows(out)] == [("none", "1"), ("degree", "2")]
    assert not (runs / "ablation.csv").exists()
    assert "cluster permutation, seed 0: no finished run" in capsys.readouterr().err


def test_tables_have_mean_and_deviation_beside_the_paper(tmp_path: Path) -> None:
    runs = tuple(result(tmp_path, seed, 0.6 + 0.01 * seed) for seed in range(3))
    entries = [Entry("peptides-func", "none", runs), Entry("peptides-func", "degree", runs[:1])]
    write_ablation(entries, tmp_path)
    _, _, first, second = (tmp_path / "ablation.md").read_text().splitlines()
    assert "no permutation | 0,1,2 | 0.6100 | 0.0082 | 0.6000 | 0.6200 | 0.6581 |" in first
    assert "| 0 | 0.6000 |  | 0.6000 |" in second
    rows = csv_rows(tmp_path)
    assert (rows[0]["scores"], rows[1]["deviation"]) == ("0.600000 0.610000 0.620000", "")
    assert len(json.loads((tmp_path / "ablation.json").read_text())["runs"]) == 4


@pytest.mark.parametrize(
    ("folder", "given"),
    [
        ("ablation", {"datasets": "peptides-func", "also": ROOT / "results"}),
        ("ablation-50", {"datasets": "pascalvoc-sp", "overrides": {"train.epochs": 50}}),
    ],
)
def test_the_files_of_the_page_are_those_of_the_runs(
    folder: str, given: dict[str, Any], tmp_path: Path
) -> None:
    ablation(ROOT / "results" / folder, out=tmp_path, report=True, **given)
    for name in ("ablation.md", "ablation.csv"):
        assert (tmp_path / name).read_text() == (ROOT / "docs" / folder / name).read_text()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"datasets": "peptides"}, "datasets must be one of"),
        ({"seeds": "one"}, "seeds must be whole numbers"),
        ({"options": {"seed": 3}}, "seeds must be given in the place of seed"),
        ({"overrides": {"dataset": "mnist"}}, "rows of the table decide dataset"),
        ({"overrides": {"model.ordering.score": "none"}}, "decide model.ordering.score, got"),
    ],
)
def test_errors_are_rejected(given: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        ablation(tmp_path / "new", **given)
