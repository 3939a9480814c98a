import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from types import ModuleType

import pytest

from graphmamba.errors import UserError
from graphmamba.studies.ablation import row_experiment
from graphmamba.training.run_dir import RunDir, read_config
from tests.helpers.own_files import write_rings
from tests.helpers.processes import ROOT
from tests.helpers.scripts import load_script
from tests.helpers.stored_runs import write_run

PATTERN = "pattern/graph-mamba"
SMALL = {
    "split_sizes": [6, 2, 2],
    "encoder.laplacian.channels": 4,
    "model.channels": 16,
    "model.layers": 1,
    "train.epochs": 2,
}


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("runs", monkeypatch)


def write_list(folder: Path, *jobs: dict[str, object]) -> Path:
    path = folder / "list.jsonl"
    path.write_text("# runs\n\n" + "\n".join(map(json.dumps, jobs)) + "\n")
    return path


def run(folder: Path, listed: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [str(listed), "--run_dir", str(folder / "runs"), "--data_dir", str(folder / "sets")]
    words += ["--out", str(folder / "packed"), "--seconds", "500"]
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.runs", *words, *more, "--device", "cpu"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_list_is_trained_once_and_what_fails_stops_no_other(
    study: ModuleType, tmp_path: Path
) -> None:
    jobs = [{"name": "pattern/graph-mamba", "seed": seed, "overrides": SMALL} for seed in (0, 3)]
    own = {"data.path": str(write_rings(tmp_path / "rings")), "data.target": "taste"}
    small = {name: SMALL[name] for name in ("model.channels", "model.layers", "train.epochs")}
    Path(tmp_path / "own.yaml").write_text("dataset: pattern\n")
    name = str(tmp_path / "own.yaml")
    jobs.append({"name": name, "folder": "own", "overrides": {**own, **small}})
    absent = {"name": "mnist/graph-mamba", "folder": "else/where"}
    listed = write_list(tmp_path, absent, *jobs)
    first = run(tmp_path, listed, "--workers", "2")
    assert first.returncode == 1, first.stdout + first.stderr
    assert "else/where/seed-0: failed: mnist is not in" in first.stdout
    assert "3 of 4 runs are finished" in first.stdout
    assert RunDir(tmp_path / "runs" / "own" / "seed-0").done()
    for seed in (0, 3):
        place = tmp_path / "runs" / "pattern" / "graph-mamba" / f"seed-{seed}"
        assert RunDir(place).done()
        assert read_config(place).options.seed == seed
    # the same runs on a machine that has none of them
    shutil.rmtree(tmp_path / "runs")
    study.unpack(tmp_path / "packed", tmp_path / "runs")
    found = study.read_jobs(write_list(tmp_path, *jobs))
    assert all(RunDir(tmp_path / "runs" / job.place).done() for job in found)
    with tarfile.open(tmp_path / "packed" / "runs-000.tar") as archive:
        assert "own/seed-0/best.safetensors" in archive.getnames()


def test_rows_of_the_ablation_have_their_experiment(study: ModuleType, tmp_path: Path) -> None:
    name, given = "peptides-func/graph-mamba", {"train.epochs": 3}
    listed = write_list(tmp_path, {"name": name, "row": "cluster", "overrides": given})
    (job,) = study.read_jobs(listed)
    assert job.experiment() == row_experiment("peptides-func", "order", "cluster", given)
    assert job.place == Path(name, "seed-0")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: Expecting property name"),
        ('{"name": "mnist", "sed": 1}', "line 2: no key 'sed'; did you mean 'seed'"),
        ('{"name": "mnist/graph-mamba", "row": "plus"}', "line 2: row must be one of the ablation"),
        ('{"seed": 1}', "line 2: .*name"),
        ('{"name": "mnist"}\n{"name": "mnist"}', "line 3: folder must be another for each run"),
    ],
)
def test_a_line_that_is_no_run_is_rejected(
    line: str, message: str, study: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "list.jsonl"
    path.write_text(f"# runs\n{line}\n")
    with pytest.raises(UserError, match=message):
        list(study.read_jobs(path))


def test_what_has_no_room_is_named(
    study: ModuleType,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(study, "MOST_BYTES", 10)
    monkeypatch.setattr(study, "MOST_FILES", 1)
    write_run(tmp_path / "runs", PATTERN, seed=0, score=0.5)
    study.pack([study.Job(PATTERN)], tmp_path / "runs", tmp_path / "out", began=0.0, first=0)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["runs-000.tar"]
    assert "no room for pattern/graph-mamba/seed-0/" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"begin-with must hold runs-000\.tar"):
        study.unpack(tmp_path, tmp_path / "runs")
