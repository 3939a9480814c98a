"""Runs on disk as a page beside the published numbers."""

import json
from pathlib import Path

import pytest

from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.studies.results import (
    DATA_NOTES,
    MARK,
    Line,
    collect,
    keep_runs,
    page,
    results,
)
from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.run_dir import RunDir, write_config
from tests.helpers.stored_runs import write_run

ROOT = Path(__file__).parents[2]
FUNC = "peptides-func/graph-mamba"


def only_line(folder: Path) -> Line:
    (line,) = collect(folder).lines
    return line


def page_of(folder: Path) -> str:
    return page(collect(folder), {})


def test_runs_that_were_stopped_are_never_counted_as_finished(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.66)
    write_run(tmp_path, FUNC, 1, 0.5, stop_reason="max time", epochs=150)
    write_run(tmp_path, FUNC, 2, 0.6, stop_reason="signal", epochs=120)
    done, stopped = collect(tmp_path).lines
    assert (done.is_done, done.mean) == (True, 0.66)
    assert (stopped.is_done, stopped.mean) == (False, pytest.approx(0.55))
    write_run(tmp_path, f"{FUNC}-plus", 0, 0.7, stop_reason="early stopping", epochs=90)
    assert collect(tmp_path).lines[2].is_done
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
    ("name", "score", "flag"),
    [
        (FUNC, 0.6564, "▼"),
        (FUNC, 0.6566, ""),
        (FUNC, 0.6912, ""),
        (FUNC, 0.6914, "▲"),
        # it has no published number
        ("peptides-func/own", 0.1, ""),
        # and its targets are not the published ones
        ("peptides-struct/graph-mamba", 9.0, ""),
    ],
)
def test_rows_are_flagged_beyond_two_published_deviations(
    name: str, score: float, flag: str, tmp_path: Path
) -> None:
    write_run(tmp_path, name, 0, score)
    text = page_of(tmp_path)
    assert only_line(tmp_path).flag == flag
    assert f"{score:.4f} {flag}".rstrip() + " |" in text
    assert ("## Rows worse than the paper" in text) == (flag == "▼")
    assert ("## Rows better than the paper" in text) == (flag == "▲")


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
    assert f"2 rows of 3 runs in {out}; without a score: 0\n" in told


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


def test_nothing_is_laid_over_another_run_that_is_kept(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    keep_runs(write_run(tmp_path / "first", FUNC, 0, 0.5).parents[2], kept)
    before = {path: path.read_bytes() for path in kept.rglob("*") if path.is_file()}
    killed = write_run(tmp_path / "killed", FUNC, 0, 0.5, **{"optim.weight_decay": 0.5})
    (killed / "results.json").unlink()
    write_run(tmp_path / "killed", FUNC, 1, 0.5)
    with pytest.raises(ValueError, match="must not be older than what is kept"):
        keep_runs(tmp_path / "killed", kept)
    write_run(tmp_path / "other", FUNC, 0, 0.5, **{"optim.weight_decay": 0.5})
    with pytest.raises(ValueError, match="must be of the experiment that is kept"):
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


@pytest.mark.parametrize("after", ["pattern/graph-mamba/seed-0", f"{FUNC}/seed-4"])
def test_runs_in_another_place_are_rejected(after: str, tmp_path: Path) -> None:
    before = write_run(tmp_path, FUNC, 0, 0.5)
    (tmp_path / after).parent.mkdir(parents=True, exist_ok=True)
    before.rename(tmp_path / after)
    with pytest.raises(UserError, match="must be named after its run, peptides-func, seed 0"):
        collect(tmp_path)


def test_runs_of_one_model_are_of_one_experiment(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.5)
    write_run(tmp_path, FUNC, 1, 0.5, stop_reason="signal", epochs=100, **{"model.layers": 2})
    with pytest.raises(ValueError, match=r"seed-1 has model\.layers 2 instead of 3"):
        collect(tmp_path)


@pytest.mark.parametrize("content", [b"My own words.\n", b"\x89PNG\xff"])
def test_a_file_that_is_no_page_is_not_written_over(content: bytes, tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "pattern/graph-mamba", 0, 0.5)
    out, kept = tmp_path / "mine.md", tmp_path / "kept"
    out.write_bytes(content)
    with pytest.raises(UserError, match=r"out must be a page of this command, '.*mine\.md'"):
        results(tmp_path / "runs", out, kept, curves=False)
    assert out.read_bytes() == content
    assert not kept.exists()
    out.write_bytes(b"\n")
    results(tmp_path / "runs", out, kept, curves=False)
    assert "0.5000" in out.read_text()


def test_the_page_in_the_repository_is_that_of_the_runs_in_it() -> None:
    written = (ROOT / "docs" / "results.md").read_text()
    pictures = {
        path.stem: f"results/{path.name}" for path in (ROOT / "docs" / "results").glob("*.svg")
    }
    assert DATA_NOTES.keys() == CATALOG.keys()
    made = page(collect(ROOT / "results"), pictures, ROOT / "benchmarks" / "results")
    assert written.partition(MARK)[0] == f"{made}\n"
    assert not list((ROOT / "results").rglob("*.safetensors"))
