"""Runs on disk as a page beside the published numbers."""

from pathlib import Path

import pytest

from graphmamba.data.catalog import CATALOG
from graphmamba.study.results import DATA_NOTES, MARK, collect, page, results
from graphmamba.study.runs import read_run
from graphmamba.train.folder import RunFolder
from graphmamba.train.results import Ending, RunResult


def write_run(
    root: Path, name: str, seed: int, score: float, ending: Ending = "finished", folder: str = ""
) -> Path:
    metric = CATALOG[name.partition("/")[0]].task.metric
    path = root / name / (folder or f"seed-{seed}")
    path.mkdir(parents=True)
    found = RunResult(
        folder=Path("elsewhere"),
        seed=seed,
        metric=metric,
        best_epoch=3,
        scores={"test": {"loss": float("nan"), metric: score}},
        epochs=5,
        ending=ending,
        parameters=373_018,
        seconds=7300.0,
        peak_memory=10**9,
        environment={"device": "NVIDIA H200"},
    )
    RunFolder(path).write_results(found)
    return path


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "peptides-func/graph-mamba", 3, 0.6731))
    assert (run.seed, run.test, run.is_done) == (3, 0.6731, True)
    assert run.folder == tmp_path / "peptides-func" / "graph-mamba" / "seed-3"
    assert run.scores["test"]["loss"] != run.scores["test"]["loss"]


@pytest.mark.parametrize("text", ["", "[]", '{"seed": 1}'])
def test_what_is_no_run_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text(text)
    with pytest.raises(ValueError, match=r"results.json' must be"):
        read_run(tmp_path)


def test_seeds_are_averaged_and_unfinished_runs_left_out(tmp_path: Path) -> None:
    for seed, score in enumerate((0.66, 0.68, 0.67)):
        write_run(tmp_path, "peptides-func/graph-mamba", seed, score)
    write_run(tmp_path, "peptides-func/graph-mamba", 7, 0.1, "max time")
    (line,) = collect(tmp_path)
    assert line.mean == pytest.approx(0.67)
    assert line.deviation == pytest.approx(0.01 * (2 / 3) ** 0.5)
    assert [run.seed for run in line.runs] == [0, 1, 2]
    text = page([line])
    row = "| Peptides-func | AP ↑ | graph-mamba | 0.6739 ± 0.0087 | 0.6700 ± 0.0082 |"
    assert f"{row} official | 0, 1, 2 | 373,018 | 2 h 01 min | NVIDIA H200 |" in text


@pytest.mark.parametrize(
    ("name", "score", "is_short"),
    [
        ("peptides-func/graph-mamba", 0.6566, False),
        ("peptides-func/graph-mamba", 0.6564, True),
        ("peptides-func/graph-mamba", 0.7, False),
        # it has no published number
        ("peptides-func/own", 0.1, False),
        # and its targets are not the published ones
        ("peptides-struct/graph-mamba", 9.0, False),
        ("malnet-tiny/graph-mamba", 0.9287, False),
        ("malnet-tiny/graph-mamba", 0.9285, True),
    ],
)
def test_rows_that_fall_short_by_two_deviations_are_flagged(
    name: str, score: float, is_short: bool, tmp_path: Path
) -> None:
    write_run(tmp_path, name, 0, score)
    (line,) = collect(tmp_path)
    assert line.is_short == is_short
    assert ("## Rows that fall short" in page([line])) == is_short


def test_an_error_falls_short_where_it_is_higher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphmamba.study.results.NOT_COMPARABLE", frozenset())
    write_run(tmp_path, "peptides-struct/graph-mamba", 0, 0.2478 + 0.0033)
    (line,) = collect(tmp_path)
    assert line.shortfall == pytest.approx(0.0033 / 0.0016)
    assert line.is_short


def test_rows_come_as_in_the_catalogue_with_graph_mamba_first(tmp_path: Path) -> None:
    for name in ("pattern/exphormer", "peptides-func/gatedgcn", "peptides-func/graph-mamba"):
        write_run(tmp_path, name, 0, 0.5)
    names = [f"{line.benchmark}/{line.model}" for line in collect(tmp_path)]
    assert names == ["peptides-func/graph-mamba", "peptides-func/gatedgcn", "pattern/exphormer"]


def test_every_set_says_what_differs_in_its_data(tmp_path: Path) -> None:
    assert DATA_NOTES.keys() == CATALOG.keys()
    write_run(tmp_path, "cluster/graph-mamba", 0, 0.5)
    assert f"- **CLUSTER**: {DATA_NOTES['cluster'].about}." in page(collect(tmp_path))


def test_what_was_written_by_hand_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs", "pattern/graph-mamba", 0, 0.5)
    out = tmp_path / "results.md"
    results(tmp_path / "runs", out)
    out.write_text(out.read_text() + "\n## Findings\n\nOur own words.\n")
    write_run(tmp_path / "runs", "pattern/graph-mamba", 1, 0.7)
    results(tmp_path / "runs", out)
    text = out.read_text()
    assert text.count(MARK) == 1
    assert "0.6000 ± 0.1000" in text
    assert text.endswith("## Findings\n\nOur own words.\n")
    assert "pattern/graph-mamba: 0.6000 against 0.8671" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "folder", "told"),
    [
        ("no-such-set/graph-mamba", "", "must lie in a folder named as a data set"),
        ("pattern/graph-mamba", "seed-x", "must be named seed-N"),
    ],
)
def test_other_folders_are_refused(name: str, folder: str, told: str, tmp_path: Path) -> None:
    write_run(tmp_path, "pattern/graph-mamba", 0, 0.5)
    (tmp_path / "pattern").rename(tmp_path / name.partition("/")[0])
    run = tmp_path / name / "seed-0"
    run.rename(run.with_name(folder or "seed-0"))
    with pytest.raises(ValueError, match=told):
        collect(tmp_path)


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ValueError, match="folder must hold"):
            collect(folder)
    write_run(tmp_path, "pattern/graph-mamba", 0, 0.5)
    with pytest.raises(ValueError, match="out must be a file in a folder that exists"):
        results(tmp_path, tmp_path / "missing" / "results.md")
