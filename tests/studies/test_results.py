"""Runs on disk as a page beside the published numbers."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.studies import results as study
from graphmamba.studies.results import (
    DATA_NOTES,
    FLAG,
    MARK,
    Line,
    collect,
    keep_runs,
    page,
    results,
)
from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.run_dir import RunDir, StopReason, write_config
from tests.helpers.stored_runs import write_run

ROOT = Path(__file__).parents[2]
FUNC = "peptides-func/graph-mamba"


def only_line(folder: Path) -> Line:
    (line,) = collect(folder).lines
    return line


def page_of(folder: Path) -> str:
    return page(collect(folder), {})


def test_seeds_are_averaged(tmp_path: Path) -> None:
    for seed, score in ((10, 0.67), (0, 0.66), (1, 0.68)):
        write_run(tmp_path, FUNC, seed, score)
    line = only_line(tmp_path)
    assert line.mean == pytest.approx(0.67)
    assert line.deviation == pytest.approx(0.01 * (2 / 3) ** 0.5)
    assert [run.found.seed for run in line.runs] == [0, 1, 10]
    row = "| Peptides-func | AP ↑ | graph-mamba | 0.6739 ± 0.0087 | 0.6700 ± 0.0082 |"
    text = page_of(tmp_path)
    assert f"{row} official | 0, 1, 10 | 200 | 373,018 | 2 h 01 min | NVIDIA H200 |" in text
    assert "chosen\non validation scores only" in text
    assert "Differences from the preset" not in text


def test_runs_that_were_stopped_are_never_counted_as_finished(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.66)
    write_run(tmp_path, FUNC, 1, 0.5, stop_reason="max time", epochs=150)
    write_run(tmp_path, FUNC, 2, 0.6, stop_reason="signal", epochs=120)
    done, stopped = collect(tmp_path).lines
    assert (done.is_done, done.mean) == (True, 0.66)
    assert (stopped.is_done, stopped.mean) == (False, pytest.approx(0.55))
    text = page_of(tmp_path)
    assert "| graph-mamba, unfinished | 0.6739 ± 0.0087 | 0.5500 ± 0.0500 ▼ |" in text
    assert "| 1, 2 | 150 of 200, 120 of 200 |" in text
    assert "- peptides-func/graph-mamba/seed-1: 150 of 200 epochs, stopped by max time." in text


def test_runs_without_a_score_are_named(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.66)
    write_run(tmp_path, FUNC, 1, 0.0, stop_reason="signal", epochs=0)
    (write_run(tmp_path, FUNC, 2, 0.7) / "results.json").unlink()
    assert only_line(tmp_path).mean == 0.66
    text = page_of(tmp_path)
    assert (
        "- peptides-func/graph-mamba/seed-1: 0 of 200 epochs, stopped by signal; no score." in text
    )
    assert "- peptides-func/graph-mamba/seed-2: killed, it has no results.json; no score." in text


@pytest.mark.parametrize(
    ("name", "score", "is_short"),
    [
        (FUNC, 0.6566, False),
        (FUNC, 0.6564, True),
        (FUNC, 0.7, False),
        # it has no published number
        ("peptides-func/own", 0.1, False),
        # and its targets are not the published ones
        ("peptides-struct/graph-mamba", 9.0, False),
        ("peptides-struct/gcn-tuned", 9.0, False),
    ],
)
def test_rows_that_fall_short_by_two_deviations_are_flagged(
    name: str, score: float, is_short: bool, tmp_path: Path
) -> None:
    write_run(tmp_path, name, 0, score)
    assert (only_line(tmp_path).flag == FLAG) == is_short
    assert ("## Rows worse than the paper" in page_of(tmp_path)) == is_short


@pytest.mark.parametrize(
    ("name", "score", "is_above"),
    [
        (FUNC, 0.6912, False),
        (FUNC, 0.6914, True),
        (FUNC, 0.5, False),
        ("peptides-func/own", 0.9, False),
        ("peptides-struct/graph-mamba", 0.1, False),
    ],
)
def test_rows_above_by_two_deviations_are_marked_as_clearly(
    name: str, score: float, is_above: bool, tmp_path: Path
) -> None:
    write_run(tmp_path, name, 0, score)
    text = page_of(tmp_path)
    assert (f"{score:.4f} ▲ |" in text) == is_above
    assert ("## Rows better than the paper" in text) == is_above


def test_rows_come_as_in_the_catalogue_with_graph_mamba_first(tmp_path: Path) -> None:
    names = [FUNC, f"{FUNC}-plus", "peptides-func/gatedgcn", "pattern/exphormer"]
    for name in reversed(names):
        write_run(tmp_path, name, 0, 0.5)
    assert [line.name for line in collect(tmp_path).lines] == names
    assert DATA_NOTES.keys() == CATALOG.keys()
    text = page_of(tmp_path)
    assert f"- **PATTERN**: {DATA_NOTES['pattern'].about}." in text


def test_what_differs_from_the_config_is_said(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.6, **{"train.epochs": 50})
    own = RunDir(write_run(tmp_path, "peptides-func/own", 0, 0.6))
    write_config(own.config, load_experiment(FUNC), RunOptions(precision="bf16-mixed"))
    text = page_of(tmp_path)
    assert "- Peptides-func, graph-mamba: train.epochs 50 instead of 200." in text
    assert "- Peptides-func, own: no preset of the package, see its `config.yaml`; prec" in text


def test_what_was_written_by_hand_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs", "pattern/graph-mamba", 0, 0.5)
    out = tmp_path / "q[/b]" / "results.md"
    results(tmp_path / "runs", out, curves=False)
    out.write_text(out.read_text() + "\n## Findings\n\nOur own words.\n")
    write_run(tmp_path / "runs", "pattern/graph-mamba", 1, 0.7)
    write_run(tmp_path / "runs", "pattern/graph-mamba", 2, 0.7, stop_reason="signal", epochs=9)
    results(tmp_path / "runs", out, curves=False)
    text = out.read_text()
    assert text.count(MARK) == 1
    assert "0.6000 ± 0.1000" in text
    assert text.endswith("## Findings\n\nOur own words.\n")
    told = capsys.readouterr().out
    assert f" runs in {out}\n" in told
    assert "pattern/graph-mamba: 0.6000 against 0.8671" in told
    assert "unfinished: pattern/graph-mamba, 9 of 100 epochs" in told


def test_small_files_are_kept_and_make_the_same_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs, kept, out = tmp_path / "runs", tmp_path / "results", tmp_path / "docs" / "page.md"
    out.parent.mkdir()
    for seed in (0, 1):
        run = write_run(runs, FUNC, seed, 0.6 + seed / 10)
        (run / "best.safetensors").write_bytes(b"large")
    write_run(runs, "peptides-func/gcn", 0, 0.5, stop_reason="max time", epochs=2)
    results(runs, out, keep=kept)
    files = {path.name for path in kept.rglob("*") if path.is_file()}
    assert files == {"config.yaml", "metrics.csv", "results.json"}
    found = json.loads((kept / FUNC / "seed-1" / "results.json").read_text())
    assert found["run_dir"] == "peptides-func/graph-mamba/seed-1"
    text, picture = out.read_text(), out.parent / "page" / "peptides-func.svg"
    assert "](page/peptides-func.svg)" in text
    before = picture.read_bytes()
    results(kept, out)
    assert out.read_text() == text
    assert picture.read_bytes() == before


def test_a_later_state_replaces_an_earlier_one_and_not_the_other_way_round(tmp_path: Path) -> None:
    out, kept = tmp_path / "results.md", tmp_path / "kept"
    write_run(tmp_path / "first", FUNC, 0, 0.5, stop_reason="signal", epochs=100)
    write_run(tmp_path / "second", FUNC, 0, 0.6)
    results(tmp_path / "first", out, kept, curves=False)
    assert not only_line(kept).is_done
    results(tmp_path / "second", out, kept, curves=False)
    assert only_line(kept).mean == 0.6
    with pytest.raises(ValueError, match="must not be older than what is kept"):
        results(tmp_path / "first", out, kept, curves=False)
    with pytest.raises(ValueError, match="keep must be another folder"):
        results(kept, out, kept, curves=False)


@pytest.mark.parametrize("written", range(3))
def test_what_was_cut_off_while_it_was_kept_is_kept_by_the_next_go(
    written: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, kept = write_run(tmp_path / "runs", FUNC, 0, 0.5).parents[2], tmp_path / "kept"
    left = iter(range(written))

    def killed_after(write: Callable[..., None]) -> Callable[..., None]:
        def until(*given: object) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt
            write(*given)

        return until

    with monkeypatch.context() as patch:
        for name in ("write_json", "write_text"):
            patch.setattr(study, name, killed_after(getattr(study, name)))
        with pytest.raises(KeyboardInterrupt):
            keep_runs(runs, kept)
    keep_runs(runs, kept)
    assert only_line(kept).mean == 0.5


@pytest.mark.parametrize("is_other_set", [True, False])
def test_what_the_page_would_reject_is_not_kept(is_other_set: bool, tmp_path: Path) -> None:
    runs, kept = tmp_path / "runs", tmp_path / "kept"
    keep_runs(write_run(tmp_path / "first", FUNC, 0, 0.5).parents[2], kept)
    write_run(runs, f"{FUNC}-more", 0, 0.5)
    if is_other_set:
        write_run(runs, FUNC, 1, 0.5).parents[1].rename(runs / "zoo")
    else:
        write_run(runs, FUNC, 1, 0.5, **{"model.layers": 2})
    told = "named as a data set" if is_other_set else "of the same experiment"
    with pytest.raises(UserError, match=told):
        keep_runs(runs, kept)
    assert only_line(kept).mean == 0.5


def test_nothing_is_laid_over_another_run_that_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    keep_runs(write_run(tmp_path / "first", FUNC, 0, 0.5).parents[2], kept)
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    killed = write_run(tmp_path / "killed", FUNC, 0, 0.5, **{"optim.weight_decay": 0.5})
    (killed / "results.json").unlink()
    with pytest.raises(ValueError, match="must not be older than what is kept"):
        keep_runs(tmp_path / "killed", kept)
    write_run(tmp_path / "other", FUNC, 0, 0.5, **{"optim.weight_decay": 0.5})
    with pytest.raises(ValueError, match=r"and has optim.weight_decay 0.5 instead of 0.01"):
        keep_runs(tmp_path / "other", kept)
    assert {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()} == before


def test_runs_that_find_no_number_are_named(tmp_path: Path) -> None:
    run = write_run(tmp_path, FUNC, 0, 0.5) / "results.json"
    content = json.loads(run.read_text())
    content["scores"]["validation"]["loss"] = 0.3
    run.write_text(json.dumps(content))
    assert "NaN predictions" not in page_of(tmp_path)
    content["scores"]["validation"]["loss"] = None
    run.write_text(json.dumps(content))
    assert f"- {FUNC}/seed-0, at its best epoch" in page_of(tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (FUNC, "no-such-set/graph-mamba", "must lie in a folder named as a data set"),
        (FUNC, "pattern/graph-mamba", "must hold a run on 'pattern', got one on peptides-func"),
        (f"{FUNC}/seed-0", f"{FUNC}/seed-x", "must be named seed-N"),
        (f"{FUNC}/seed-0", f"{FUNC}/seed-4", "must be named by its seed, which is 0"),
    ],
)
def test_runs_in_another_place_are_rejected(
    before: str, after: str, told: str, tmp_path: Path
) -> None:
    write_run(tmp_path, FUNC, 0, 0.5)
    (tmp_path / after).parent.mkdir(exist_ok=True)
    (tmp_path / before).rename(tmp_path / after)
    with pytest.raises(ValueError, match=told):
        collect(tmp_path)


@pytest.mark.parametrize("content", [b"My own words.\n", b"\x89PNG\xff"])
def test_a_file_that_is_no_page_is_not_written_over(content: bytes, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "pattern/graph-mamba", 0, 0.5)
    out, kept = tmp_path / "mine.md", tmp_path / "kept"
    out.write_bytes(content)
    with pytest.raises(UserError, match=r"out must be a page of this command.*got '.*mine\.md'"):
        results(tmp_path / "runs", out, kept, curves=False)
    assert out.read_bytes() == content
    assert not kept.exists()
    out.write_bytes(b"\n")
    results(tmp_path / "runs", out, kept, curves=False)
    assert "0.5000" in out.read_text()


@pytest.mark.skipif(not (ROOT / "results").is_dir(), reason="no runs are kept yet")
def test_the_page_in_the_repository_is_that_of_the_runs_in_it() -> None:
    written = (ROOT / "docs" / "results.md").read_text()
    pictures = {
        path.stem: f"results/{path.name}" for path in (ROOT / "docs" / "results").glob("*.svg")
    }
    made = page(collect(ROOT / "results"), pictures, ROOT / "benchmarks" / "results")
    assert written.partition(MARK)[0] == f"{made}\n"
    assert not list((ROOT / "results").rglob("*.safetensors"))


@pytest.mark.parametrize("stop_reason", ["finished", "signal"])
def test_runs_of_one_model_are_of_one_experiment(stop_reason: StopReason, tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.5, stop_reason="early stopping", epochs=90)
    assert only_line(tmp_path).is_done
    assert "| 0 | 90 of 200 |" in page_of(tmp_path)
    write_run(tmp_path, FUNC, 1, 0.5, stop_reason=stop_reason, epochs=100, **{"model.layers": 2})
    with pytest.raises(ValueError, match=r"seed 1 has model\.layers 2 instead of 3"):
        collect(tmp_path)


def test_scores_stand_beside_what_is_best_possible(tmp_path: Path) -> None:
    write_run(tmp_path, "cluster/graph-mamba", 0, 0.75, validation=0.77)
    write_run(tmp_path, "cluster/graph-mamba", 1, 0.77, validation=0.79)
    write_run(tmp_path, "mnist/graph-mamba", 0, 0.98)
    write_run(tmp_path, FUNC, 0, 0.67)
    records = tmp_path / "records"
    records.mkdir()
    assert page(collect(tmp_path), {}, records) == page_of(tmp_path)
    starts = [("test", 0.81), ("test", 0.82), ("validation", 0.83)]
    rows = [{"set": "cluster", "split": split, "optimum": best} for split, best in starts]
    (records / "optimum_cpu.json").write_text(json.dumps({"rows": rows}))
    trees = {"test": 0.61, "validation": 0.62, "radius": 2, "columns": 2048}
    (records / "fingerprints_cpu.json").write_text(json.dumps(trees))
    text = page(collect(tmp_path), {}, records)
    gaps = "| 0.8300 | 0.7800 | 0.0500 | 0.8200 | 0.7600 | 0.0600 |"
    assert f"| CLUSTER | graph-mamba {gaps}" in text
    assert "MNIST" not in text.partition("## Gap to the optimum")[2].partition("##")[0]
    assert "0.6100 on test, 0.6200 on validation, by boosted trees" in text
