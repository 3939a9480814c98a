"""The efficiency study, on very small graphs: measured, interrupted and resumed."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from graphmamba.errors import UserError
from graphmamba.parse import parse
from graphmamba.studies import efficiency as module
from graphmamba.studies.cost import Cost, LargestBatch
from graphmamba.studies.efficiency import (
    FULL,
    QUICK,
    TITLES,
    Cell,
    Plan,
    Row,
    Study,
    cells,
    claims,
    efficiency,
    parse_bytes,
    plot_fractions,
    plot_models,
    resume,
    write_rows,
)
from graphmamba.training import stop
from graphmamba.training.experiment import load_experiment

ROOT = Path(__file__).parents[2]
PLAN = replace(
    QUICK, fractions=(1.0,), batch_size=2, largest=2, largest_batch_size=2, scale=0.03,
    sets=("peptides-func",), models=("graph-mamba", "gps-transformer", "exphormer"),
)  # fmt: skip
COST = Cost(
    parameters=1, batch_size=2, batches=1, nodes=3.0, edges=4.0, forward_flops=5e6, products=3e6,
    scan=1e6, elementwise=1e6, counted_flops=5e6, peak_bytes=6_000_000, memory_measure="none",
    ms=0.5, original_flops=7e6,
)  # fmt: skip


@pytest.fixture(autouse=True)
def small_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", PLAN)


def content_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "efficiency.json").read_text())


def rows_in(folder: Path) -> int:
    return sum(len(content_of(folder)[name]) for name in ("fractions", "batches", "models"))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_all_cells_are_measured_written_and_plotted(
    device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    efficiency(tmp_path, device, quick=True)
    tables = {"malnet.csv", "largest_batch.csv", "models.csv", "efficiency.json"}
    plots = {"malnet.png", "malnet.svg", "models.png", "models.svg"}
    assert {path.name for path in tmp_path.iterdir()} == tables | plots
    content = content_of(tmp_path)
    assert rows_in(tmp_path) == len(cells(PLAN))
    for row in (*content["fractions"], *content["models"]):
        cost = Cost(**row["cost"])
        assert cost.peak_bytes > 0
        assert cost.ms > 0
        assert cost.counted_flops == pytest.approx(cost.forward_flops, rel=0.02)
        assert cost.original_flops > cost.forward_flops
        assert "generated" in row["source"]
    sizes = {row["cost"]["parameters"] for row in content["fractions"]}
    assert sizes == {285_125, 286_725}
    shown = capsys.readouterr().out.replace("\n", "")  # long lines are wrapped
    for text in ("saved in the paper 74 %", "by original", f"Files: {tmp_path}"):
        assert text in shown


def test_matched_models_have_graph_mamba_s_width_and_depth() -> None:
    for benchmark in FULL.sets:
        base = load_experiment(f"{benchmark}/graph-mamba")
        for model in TITLES:
            published = load_experiment(f"{benchmark}/{model}").model
            own = Cell("models", benchmark, model, "matched").experiment()
            assert own.model.global_model == published.global_model
            same = replace(own.model, global_model="mamba", attention=base.model.attention)
            assert replace(own, model=same) == base


def fake_rows(cost: Cost) -> dict[Cell, Row]:
    largest = LargestBatch(0 if cost.peak_bytes is None else 8, cost.peak_bytes, is_limit=False)
    return {
        cell: cell.names
        | {"source": "somewhere"}
        | ({"largest": asdict(largest)} if cell.figure == "batches" else {"cost": asdict(cost)})
        | {"held_bytes": 0}
        for cell in cells(PLAN)
    }


def test_out_of_memory_is_written_and_plotted(tmp_path: Path) -> None:
    oom = replace(COST, peak_bytes=None, ms=None, counted_flops=None)
    study = Study(PLAN, 10**9, {"device": "test"}, fake_rows(oom))
    write_rows(study, tmp_path)
    (row, *_) = csv.DictReader((tmp_path / "malnet.csv").read_text().splitlines())
    assert (row["peak_bytes"], row["ms"], row["forward_flops"]) == ("OOM", "OOM", "5000000.0")
    plot_fractions(study, tmp_path)
    plot_models(study, tmp_path)
    assert "OOM" in (tmp_path / "models.svg").read_text()


def test_claims_compare_memory_and_operations() -> None:
    baseline = replace(COST, forward_flops=1e7, original_flops=2e7, peak_bytes=8_000_000)
    rows = fake_rows(COST)
    rows[Cell("models", "peptides-func", "gps-transformer")]["cost"] = asdict(baseline)
    first = claims(Study(PLAN, 1, {}, rows))[0]
    assert (first["baseline"], first["sizing"]) == ("gps-transformer", "published")
    saved = ("flops_saved", "memory_saved", "flops_saved_of_original", "flops_saved_by_original")
    assert [first[name] for name in saved] == pytest.approx([0.5, 0.25, 0.75, 0.65])


def test_the_files_of_the_page_are_those_of_the_record(tmp_path: Path) -> None:
    record = ROOT / "benchmarks" / "results" / "efficiency_h200.json"
    content = json.loads(record.read_text())
    (tmp_path / "efficiency.json").write_text(record.read_text())
    plan = parse(Plan, content["plan"], "plan")
    study = Study(plan, content["memory_cap"], content["environment"])
    resume(study, tmp_path)
    write_rows(study, tmp_path)
    assert content_of(tmp_path).items() <= content.items()
    for name in ("malnet.csv", "models.csv", "largest_batch.csv"):
        written = (ROOT / "docs" / "efficiency" / name).read_text()
        assert (tmp_path / name).read_text() == written


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Cell]:
    """Cells that were measured; each takes ten seconds, and the seventh call fails."""
    asked: list[Cell] = []

    def measure(cell: Cell, *_: object) -> Row:
        asked.append(cell)
        if len(asked) == 7:
            raise RuntimeError("crash")
        return fake_rows(COST)[cell]

    monkeypatch.setattr(module, "measure", measure)
    monkeypatch.setattr(stop, "time", SimpleNamespace(monotonic=lambda: 10.0 * len(asked)))
    return asked


def test_a_study_resumes_after_its_time_limit_and_after_a_crash(
    measured: list[Cell], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    efficiency(tmp_path, "cpu", quick=True, max_time=25.0)
    assert len(measured) == rows_in(tmp_path) == 3
    assert "7 measurements are missing; the same command resumes" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="crash"):
        efficiency(tmp_path, "cpu", quick=True)
    assert rows_in(tmp_path) == 6
    efficiency(tmp_path, "cpu", quick=True)
    assert measured == [*cells(PLAN)[:7], *cells(PLAN)[6:]]
    assert "missing" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"memory_cap": "1GB"}, "a study with memory_cap 1000000000"),
        ({"quick": False}, "name another out_dir"),
        ({"max_time": -1.0}, "max_time must be at least 0, got -1"),
    ],
)
@pytest.mark.usefixtures("measured")
def test_another_study_is_rejected(tmp_path: Path, given: dict[str, object], message: str) -> None:
    efficiency(tmp_path, "cpu", quick=True, max_time=25.0)
    before = (tmp_path / "efficiency.json").read_bytes()
    with pytest.raises(UserError, match=message):
        efficiency(tmp_path, **{"device": "cpu", "quick": True, **given})
    assert (tmp_path / "efficiency.json").read_bytes() == before


def test_memory_sizes_are_read() -> None:
    assert parse_bytes("memory_cap", "24GB") == 24 * 10**9
    assert parse_bytes("memory_cap", "1.5 mib") == 3 * 2**19
    for text in ("24", "-1GB", "24 XB", "0GB"):
        with pytest.raises(UserError, match="memory_cap must be a size such as 24GB"):
            parse_bytes("memory_cap", text)
