"""The ablation's rows, and runs that are made once."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmamba.ordering.policy import PUBLISHED
from graphmamba.studies import ablation as study
from graphmamba.studies.ablation import (
    ORDER_ROWS,
    PLUS_ROWS,
    Ablation,
    Entry,
    ablation,
    ablation_table,
    row_experiment,
    row_experiments,
    write_ablation,
)
from graphmamba.training.experiment import Experiment, RunOptions, load_experiment
from graphmamba.training.run_dir import RunDir, RunResult, write_config

SMALL = {
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


def small_study(folder: Path, rows: tuple[str, ...] = ("degree",), **overrides: object) -> Ablation:
    experiments = {
        ("pattern", row): row_experiment("pattern", "order", row, {**SMALL, **overrides})
        for row in rows
    }
    options = RunOptions(device="cpu")
    return Ablation(experiments, (0,), folder / "study", options, folder / "root")


def begin(place: RunDir, experiment: Experiment) -> None:
    """Leave what a run leaves that was killed before its first checkpoint."""
    place.path.mkdir(parents=True, exist_ok=True)
    write_config(place.config, experiment, RunOptions(device="cpu"))


@pytest.mark.parametrize(("benchmark", "bins"), [("peptides-func", 1), ("pascalvoc-sp", 2)])
def test_rows_differ_from_the_main_model_by_their_order_alone(benchmark: str, bins: int) -> None:
    base = load_experiment(f"{benchmark}/graph-mamba")
    rows = {row: row_experiment(benchmark, "order", row) for row in ORDER_ROWS}
    assert rows["degree"] == base
    assert rows["none"].model.ordering == PUBLISHED["Mamba"]
    assert len({str(row.model.ordering) for row in rows.values()}) == len(ORDER_ROWS)
    for name, row in rows.items():
        assert row.model.ordering.bins == (1 if name == "none" else bins)
        assert replace(row, model=replace(row.model, ordering=base.model.ordering)) == base


@pytest.mark.parametrize("benchmark", ["peptides-func", "pascalvoc-sp"])
def test_each_row_puts_back_one_piece_of_the_paper_s_model(benchmark: str) -> None:
    paper = load_experiment(f"{benchmark}/graph-mamba")
    rows = row_experiments(benchmark, "plus")
    plus = rows.pop("plus")
    assert plus == load_experiment(f"{benchmark}/graph-mamba-plus")
    for name, row in rows.items():
        assert row not in (plus, paper), name
    assert rows.pop("no-mamba").model == replace(plus.model, global_model="none")
    # all other pieces together make the paper's model again
    together = plus
    for name in rows:
        together = PLUS_ROWS[name].make(together, paper)
    assert together == paper


def test_a_piece_that_is_the_paper_s_already_has_no_row() -> None:
    same: dict[str, object] = {
        "model.ordering.score": "spectral",
        "model.ordering.direction": "bidirectional",
        "model.ordering.bins": 2,
    }
    rows = row_experiments("pascalvoc-sp", "plus", same)
    assert set(PLUS_ROWS) - rows.keys() == {"paper-order", "paper-block", "paper-layer"}
    assert rows["paper-recipe"].optim == load_experiment("pascalvoc-sp/graph-mamba", same).optim
    # the layer of Peptides-func's has an activation of its own, and leaves this one as it is
    assert set(PLUS_ROWS) - row_experiments("peptides-func", "plus").keys() == {"paper-activation"}


def test_every_row_trains_and_is_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = small_study(tmp_path, tuple(ORDER_ROWS))
    tables: list[int] = []
    first = own.run(str, lambda table: tables.append(len(table)))
    assert [entry.row for entry in first] == list(ORDER_ROWS)
    assert tables == [1, 2, 3, 4, 5]
    assert (tmp_path / "study" / "pattern" / "cluster" / "seed-0" / "results.json").exists()

    def forbidden(*_: Any, **__: Any) -> RunResult:
        raise AssertionError("trained again")

    monkeypatch.setattr(study, "fit", forbidden)
    again = own.run(str, str)
    assert [entry.scores for entry in again] == [entry.scores for entry in first]


@pytest.mark.parametrize("has_state", [True, False])
def test_a_run_that_was_stopped_goes_on(
    has_state: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = small_study(tmp_path)
    place = RunDir(tmp_path / "study" / "pattern" / "degree" / "seed-0")
    begin(place, own.experiments["pattern", "degree"])
    (place.path / "leftover").touch()
    if has_state:
        place.state.parent.mkdir()
        place.state.touch()
    calls: list[tuple[bool, bool]] = []

    def fit(
        _e: Experiment, _s: Any, options: RunOptions, folder: Path, resume: bool, progress: bool
    ) -> RunResult:
        assert not progress
        assert options.seed == 0
        calls.append((resume, (folder / "leftover").exists()))
        return result(folder, 0, 0.5)

    monkeypatch.setattr(study, "fit", fit)
    own.run(str, str)
    # one that had not saved anything begins again inside of its folder, under the folder's lock
    assert calls == [(True, True)]


def test_a_run_that_stops_ends_the_study_and_enters_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endings = iter(["finished", "max time"])

    def fit(
        _e: Experiment, _s: Any, options: RunOptions, folder: Path, resume: bool, progress: bool
    ) -> RunResult:
        assert not progress
        assert not resume
        return result(folder, options.seed, 0.5, next(endings))

    monkeypatch.setattr(study, "fit", fit)
    tables: list[list[str]] = []
    with pytest.raises(ValueError, match=r"stopped by max time.*the same command resumes"):
        small_study(tmp_path, ("degree", "none")).run(
            str, lambda table: tables.append([entry.row for entry in table])
        )
    assert tables == [["degree"]]


def test_runs_of_another_experiment_are_rejected(tmp_path: Path) -> None:
    place = RunDir(tmp_path / "study" / "pattern" / "degree" / "seed-0")
    begin(place, small_study(tmp_path).experiments["pattern", "degree"])
    with pytest.raises(ValueError, match="must hold runs of the same experiment"):
        small_study(tmp_path, **{"train.epochs": 2}).run(str, str)


def test_a_report_trains_nothing_and_reads_runs_that_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def forbidden(*_: Any, **__: Any) -> RunResult:
        raise AssertionError("trained")

    monkeypatch.setattr(study, "fit", forbidden)
    runs, kept, out = tmp_path / "runs", tmp_path / "kept", tmp_path / "out[a]"
    given: Any = {"datasets": "pattern", "also": kept, "out": out, "report": True}
    with pytest.raises(ValueError, match="run_dir must hold finished runs for a report"):
        ablation(runs, **given)
    for place, row, stop_reason in (
        (runs / "pattern" / "none" / "seed-1", "none", "finished"),
        (runs / "pattern" / "cluster" / "seed-0", "cluster", "max time"),
        # the main model under its own name, and another one that is not asked for
        (kept / "pattern" / "graph-mamba" / "seed-2", "degree", "finished"),
        (kept / "pattern" / "other" / "seed-0", "permutation", "signal"),
    ):
        run = RunDir(place)
        begin(run, row_experiment("pattern", "order", row))
        run.write_results(result(place, int(place.name[-1]), 0.5, stop_reason))
    ablation(runs, **given)
    rows = list(csv.DictReader((out / "ablation.csv").read_text().splitlines()))
    assert [(row["row"], row["seeds"]) for row in rows] == [("none", "1"), ("degree", "2")]
    assert not (runs / "ablation.csv").exists()
    told = capsys.readouterr()
    assert "cluster permutation, seed 0: no finished run" in told.err
    assert f"Files: {out}\n" in told.out


def test_the_table_shows_mean_and_spread_beside_the_paper(tmp_path: Path) -> None:
    from rich.console import Console

    entries = [
        Entry(
            benchmark,
            row,
            tuple(result(tmp_path, seed, 0.6 + 0.01 * seed) for seed in range(3)),
        )
        for benchmark in ("peptides-func", "pascalvoc-sp")
        for row in ORDER_ROWS
    ]
    console = Console(record=True, width=120)
    console.print(ablation_table("peptides-func", entries))
    shown = console.export_text()
    assert all(number in shown for number in ("0.6100", "0.0082", "0.6834", "permutation + degree"))
    write_ablation(entries, tmp_path / "new")
    assert {path.name for path in (tmp_path / "new").iterdir()} == {
        f"ablation.{stop_reason}" for stop_reason in ("csv", "json", "md", "png", "svg")
    }
    first = (tmp_path / "new" / "ablation.md").read_text().splitlines()[2]
    assert "no permutation" in first
    assert first.count("|") == 10
    lines = list(csv.DictReader((tmp_path / "new" / "ablation.csv").read_text().splitlines()))
    assert lines[0]["scores"] == "0.600000 0.610000 0.620000"
    assert float(lines[0]["seconds"]) == 3 * 60
    assert "| 0.6000 | 0.6200 | 0.6581 |" in first
    assert float(lines[0]["paper"]) == 0.6581
    assert len(json.loads((tmp_path / "new" / "ablation.json").read_text())["runs"]) == 30
    write_ablation([replace(entries[0], runs=entries[0].runs[:1])], tmp_path)
    (line,) = csv.DictReader((tmp_path / "ablation.csv").read_text().splitlines())
    assert (line["mean"], line["deviation"]) == ("0.6", "")
    assert "| 0.6000 |  | 0.6000 |" in (tmp_path / "ablation.md").read_text()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"datasets": "peptides"}, "datasets must be one of"),
        ({"seeds": "0,00"}, "seeds must be whole numbers"),
        ({"seeds": "one"}, "seeds must be whole numbers"),
        ({"options": {"seed": 3}}, "seeds must be given in the place of seed"),
        ({"overrides": {"dataset": "mnist"}}, "datasets must name the data sets, got dataset="),
        (
            {"overrides": {"data.path": "a"}},
            "datasets must name the data sets, got data.path='a'",
        ),
        (
            {"overrides": {"model.ordering.score": "none"}},
            "the rows of the table are the orders, got model.ordering.score='none'",
        ),
    ],
)
def test_errors_are_rejected(given: dict[str, Any], told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        ablation(tmp_path / "new", **given)
