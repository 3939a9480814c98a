"""The page of results, made of stored runs."""

import json
from pathlib import Path

import pytest

from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.studies.results import (
    DATA_NOTES,
    MARK,
    Row,
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


def only_row(folder: Path) -> Row:
    (row,) = collect(folder).rows
    return row


def page_of(folder: Path) -> str:
    return page(collect(folder), {}, records=folder)


def bytes_in(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_stopped_runs_are_not_averaged_with_finished_ones(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.66)
    write_run(tmp_path, FUNC, 1, 0.5, stop_reason="max time", epochs=150)
    write_run(tmp_path, FUNC, 2, 0.6, stop_reason="signal", epochs=120)
    write_run(tmp_path, f"{FUNC}-plus", 0, 0.7, stop_reason="early stopping", epochs=90)
    done, stopped, plus = collect(tmp_path).rows
    assert (done.is_done, done.mean) == (True, 0.66)
    assert (stopped.is_done, stopped.mean) == (False, pytest.approx(0.55))
    assert plus.is_done
    text = page_of(tmp_path)
    assert "| graph-mamba, unfinished | 0.6739 ± 0.0087 | 0.5500 ± 0.0500 ▼ |" in text
    assert "| 1, 2 | 150 of 200, 120 of 200 |" in text
    assert "- peptides-func/graph-mamba/seed-1: 150 of 200 epochs, stopped by max time." in text


def test_runs_without_a_score_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.66)
    write_run(tmp_path, FUNC, 1, 0.0, stop_reason="signal", epochs=0)
    (write_run(tmp_path, FUNC, 2, 0.7) / "results.json").unlink()
    assert only_row(tmp_path).mean == 0.66
    text = page_of(tmp_path)
    assert f"- {FUNC}/seed-1: 0 of 200 epochs, stopped by signal; no score." in text
    assert f"- {FUNC}/seed-2: killed, it has no results.json; no score." in text


@pytest.mark.parametrize(
    ("name", "score", "mark"),
    [
        (FUNC, 0.6564, "▼"),
        (FUNC, 0.6566, ""),
        (FUNC, 0.6912, ""),
        (FUNC, 0.6914, "▲"),
        ("peptides-func/own", 0.1, ""),  # nothing is reported for it
        ("peptides-struct/graph-mamba", 9.0, ""),  # its targets are not the published ones
    ],
)
def test_rows_are_marked_beyond_two_published_deviations(
    name: str, score: float, mark: str, tmp_path: Path
) -> None:
    write_run(tmp_path, name, 0, score)
    text = page_of(tmp_path)
    assert f"{score:.4f} {mark}".rstrip() + " |" in text
    assert ("## Rows worse than the paper" in text) == (mark == "▼")
    assert ("## Rows better than the paper" in text) == (mark == "▲")


def test_differences_from_the_preset_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.6, **{"train.epochs": 50})
    own = RunDir(write_run(tmp_path, "peptides-func/own", 0, 0.6))
    write_config(own.config, load_experiment(FUNC), RunOptions(precision="bf16-mixed"))
    text = page_of(tmp_path)
    assert "- Peptides-func, graph-mamba: train.epochs 50 instead of 200." in text
    assert "- Peptides-func, own: no preset of the package, see its `config.yaml`; prec" in text


def test_nan_validation_losses_are_listed(tmp_path: Path) -> None:
    run = write_run(tmp_path, FUNC, 0, 0.5) / "results.json"
    content = json.loads(run.read_text())
    for loss in (0.3, None):
        content["scores"]["validation"]["loss"] = loss
        run.write_text(json.dumps(content))
        assert (f"- {FUNC}/seed-0, at its best epoch" in page_of(tmp_path)) == (loss is None)


def test_text_below_the_marker_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    shown = capsys.readouterr().out
    assert f"2 rows of 3 runs in {out}; without a score: 0\n" in shown


def test_kept_runs_have_no_weights_and_make_the_same_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    runs, kept, out = tmp_path / "runs", tmp_path / "results", tmp_path / "docs" / "page.md"
    out.parent.mkdir()
    for seed in (0, 1):
        run = write_run(runs, FUNC, seed, 0.6 + seed / 10)
        (run / "best.safetensors").write_bytes(b"large")
    write_run(runs, "peptides-func/gcn", 0, 0.5, stop_reason="max time", epochs=2)
    results(runs, out, keep=kept)
    assert {path.name for path in bytes_in(kept)} == {"config.yaml", "metrics.csv", "results.json"}
    found = json.loads((kept / FUNC / "seed-1" / "results.json").read_text())
    assert found["run_dir"] == "peptides-func/graph-mamba/seed-1"
    assert "](page/peptides-func.svg)" in out.read_text()
    before = bytes_in(out.parent)
    results(kept, out)
    assert bytes_in(out.parent) == before


def test_only_a_later_state_of_the_same_run_replaces_a_kept_one(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    write_run(tmp_path / "first", FUNC, 0, 0.5, stop_reason="signal", epochs=100)
    write_run(tmp_path / "second", FUNC, 0, 0.6)
    keep_runs(tmp_path / "first", kept)
    assert not only_row(kept).is_done
    keep_runs(tmp_path / "second", kept)
    assert only_row(kept).mean == 0.6
    before = bytes_in(kept)
    killed = write_run(tmp_path / "killed", FUNC, 0, 0.5, **{"optim.weight_decay": 0.5})
    (killed / "results.json").unlink()
    write_run(tmp_path / "killed", FUNC, 1, 0.5)
    write_run(tmp_path / "other", FUNC, 0, 0.5, **{"optim.weight_decay": 0.5})
    for name, message in (
        ("first", "must have all epochs of"),
        ("killed", "must have all epochs of"),
        ("other", "must be of the experiment of"),
        ("kept", "keep must be another directory"),
    ):
        with pytest.raises(UserError, match=message):
            keep_runs(tmp_path / name, kept)
    assert bytes_in(kept) == before


@pytest.mark.parametrize("after", ["pattern/graph-mamba/seed-0", f"{FUNC}/seed-4"])
def test_runs_in_another_place_are_rejected(after: str, tmp_path: Path) -> None:
    before = write_run(tmp_path, FUNC, 0, 0.5)
    (tmp_path / after).parent.mkdir(parents=True, exist_ok=True)
    before.rename(tmp_path / after)
    with pytest.raises(UserError, match="must be named after its run, peptides-func, seed 0"):
        collect(tmp_path)


def test_runs_of_different_experiments_under_one_name_are_rejected(tmp_path: Path) -> None:
    write_run(tmp_path, FUNC, 0, 0.5)
    write_run(tmp_path, FUNC, 1, 0.5, stop_reason="signal", epochs=100, **{"model.layers": 2})
    with pytest.raises(ValueError, match=r"seed-1 has model\.layers 2 instead of 3"):
        collect(tmp_path)


@pytest.mark.parametrize("content", [b"My own words.\n", b"\x89PNG\xff"])
def test_a_file_without_the_marker_is_not_overwritten(content: bytes, tmp_path: Path) -> None:
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
    plots = {
        path.stem: f"results/{path.name}" for path in (ROOT / "docs" / "results").glob("*.svg")
    }
    assert DATA_NOTES.keys() == CATALOG.keys()
    made = page(collect(ROOT / "results"), plots, ROOT / "benchmarks" / "results")
    assert written.partition(MARK)[0] == f"{made}\n"
    assert not list((ROOT / "results").rglob("*.safetensors"))
