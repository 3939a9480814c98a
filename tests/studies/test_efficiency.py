"""The efficiency study: measured on very small graphs, cut off, and gone on with."""

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console

from graphmamba.errors import UserError
from graphmamba.parse import parse
from graphmamba.studies import efficiency as study
from graphmamba.studies import efficiency_report as report
from graphmamba.studies.cost import Cost, LargestBatch
from graphmamba.studies.efficiency import (
    FULL,
    QUICK,
    TITLES,
    Bench,
    Cell,
    Findings,
    Plan,
    Row,
    cells,
    efficiency,
    experiment_of,
    is_the_same_work,
    missing_in,
    read_findings,
    run,
)
from graphmamba.studies.efficiency_report import claims, print_findings, write_findings, write_rows
from graphmamba.training import stop
from graphmamba.training.experiment import load_experiment
from tests.helpers.typecheck import typecheck_off

ROOT = Path(__file__).parents[2]
CPU = torch.device("cpu")
TINY = replace(
    QUICK, fractions=(1.0,), batch_size=2, largest=2, largest_batch_size=2, scale=0.03,
    sets=("peptides-func",), models=("graph-mamba", "gps-transformer", "exphormer"),
)  # fmt: skip
PLAN = replace(
    QUICK, fractions=(0.5, 1.0), scale=0.03, sets=("cluster", "peptides-func"),
    models=("graph-mamba", "gps-transformer", "gatedgcn"),
)  # fmt: skip
TWINS = 4
"""Graph-Mamba and the Transformer on two sets, where `matched` is `published`."""
COST = Cost(
    parameters=1, batch_size=2, batches=1, nodes=3.0, edges=4.0, forward_flops=5e6, products=3e6,
    scan=1e6, elementwise=1e6, counted_flops=5e6, peak_bytes=6_000_000, memory_measure="none",
    ms=0.5, original_flops=7e6,
)  # fmt: skip


@pytest.fixture(scope="module")
def findings() -> Findings:
    told: list[str] = []
    begun = Findings(TINY, 10**9, {"device": "test"})
    *_, found = run(Bench(TINY, CPU, 10**9), begun, told.append)
    assert len(told) == len(found.rows)
    return found


def changed(findings: Findings, change: Callable[[Row], Row]) -> Findings:
    return replace(findings, rows={cell: change(row) for cell, row in findings.rows.items()})


def without_memory(row: Row) -> Row:
    if isinstance(row.found, LargestBatch):
        return replace(row, found=LargestBatch(0, None, False))
    return replace(row, found=replace(row.found, peak_bytes=None, ms=None, counted_flops=None))


def test_all_cells_are_measured(findings: Findings) -> None:
    assert list(findings.rows) == missing_in(replace(findings, rows={}))
    for figure in ("fractions", "models"):
        for _, cost in findings.costs(figure):
            assert cost.peak_bytes is not None
            assert cost.counted_flops == pytest.approx(cost.forward_flops, rel=0.02)
            assert cost.ms > 0
            assert cost.original_flops > cost.forward_flops
    assert all("generated" in row.source for row in findings.rows.values())
    sizes = {cost.parameters for _, cost in findings.costs("fractions")}
    assert sizes == {285_125, 286_725}


def test_matched_models_have_graph_mamba_s_width_and_depth() -> None:
    for benchmark in FULL.sets:
        base = load_experiment(f"{benchmark}/graph-mamba")
        for model in TITLES:
            own = experiment_of(benchmark, model, "matched")
            assert (own.model.channels, own.model.layers) == (
                base.model.channels,
                base.model.layers,
            )
            assert (
                own.model.global_model == load_experiment(f"{benchmark}/{model}").model.global_model
            )
            assert own.encoder == base.encoder
            published = experiment_of(benchmark, model, "published")
            if model in ("graph-mamba", "gps-transformer", "gps-bigbird"):
                assert is_the_same_work(published, own)
        assert experiment_of(benchmark, "graph-mamba", "matched") == base


def test_files_and_tables_hold_every_row(findings: Findings, tmp_path: Path) -> None:
    cell = findings.of("fractions")[-1].cell
    rows = {**findings.rows, cell: without_memory(findings.rows[cell])}
    short = replace(findings, rows=rows)
    short = changed(short, lambda row: replace(row, held_bytes=67_108_864))
    console, folder = Console(record=True, width=160), tmp_path / "q[/b]"
    write_findings(short, folder)
    print_findings(short, folder, console)
    tables = {"malnet.csv", "largest_batch.csv", "models.csv", "efficiency.json"}
    pictures = {"malnet.png", "malnet.svg", "models.png", "models.svg"}
    assert {path.name for path in folder.iterdir()} == tables | pictures
    rows = list(csv.DictReader((folder / "malnet.csv").read_text().splitlines()))
    assert rows[-1]["peak_bytes"] == "OOM"
    assert rows[-1]["memory_measure"] == "live tensor storage"
    assert rows[-1]["held_bytes"] == "67108864"
    assert float(rows[-1]["original_flops"]) > float(rows[-1]["forward_flops"]) > 0
    content = json.loads((folder / "efficiency.json").read_text())
    assert len(content["models"]) == len(findings.of("models"))
    assert content["claims"] == claims(findings)
    shown = console.export_text()
    held = "Allocated before a measurement and not counted: at most 67.1 MB"
    for told in ("OOM", "74 %", "by original", held):
        assert told in shown
    assert "/q[/b]\n" in shown


def test_figures_say_where_no_step_fits_and_what_is_not_measured_yet(
    findings: Findings, tmp_path: Path
) -> None:
    write_findings(changed(findings, without_memory), tmp_path)
    for name in ("malnet", "models"):
        assert (tmp_path / f"{name}.svg").read_text().count("OOM: no step fits") == 2
    begun = {
        cell: row
        for cell, row in findings.rows.items()
        if cell.figure != "batches" and cell.sizing == "published"
    }
    write_findings(replace(findings, rows=begun), tmp_path)
    for name in ("malnet", "models"):
        assert (tmp_path / f"{name}.svg").read_text().count("not measured yet") == 1


def test_claims_compare_memory_and_operations(findings: Findings) -> None:
    measured = findings.costs("models")
    cost = {cell.model: cost for cell, cost in measured if cell.sizing == "published"}
    first, ours, baseline = claims(findings)[0], cost["graph-mamba"], cost["gps-transformer"]
    assert (first["baseline"], first["sizing"]) == ("gps-transformer", "published")
    assert first["flops_saved"] == 1 - ours.forward_flops / baseline.forward_flops
    assert first["memory_saved"] == 1 - ours.peak_bytes / baseline.peak_bytes
    assert first["flops_saved_of_original"] == 1 - ours.forward_flops / baseline.original_flops
    assert first["flops_saved_by_original"] == 1 - ours.original_flops / baseline.original_flops


def test_the_files_of_the_page_are_those_of_the_record(tmp_path: Path) -> None:
    record = ROOT / "benchmarks" / "results" / "efficiency_h200.json"
    content = json.loads(record.read_text())
    (tmp_path / "efficiency.json").write_text(record.read_text())
    plan = parse(Plan, content["plan"], "plan")
    begun = Findings(plan, content["memory_cap"], content["environment"])
    found = read_findings(tmp_path, begun)
    write_rows(found, tmp_path)
    assert json.loads((tmp_path / "efficiency.json").read_text()).items() <= content.items()
    for name in ("malnet.csv", "models.csv", "largest_batch.csv"):
        written = (ROOT / "docs" / "efficiency" / name).read_text()
        assert (tmp_path / name).read_text() == written


@pytest.mark.gpu
def test_a_gpu_reports_its_own_peak() -> None:
    begun, device = Findings(TINY, 10**9, {"device": "test"}), torch.device("cuda")
    *_, found = run(Bench(TINY, device, 4 * 10**9), begun, str)
    for _, cost in (*found.costs("fractions"), *found.costs("models")):
        assert cost.memory_measure == "torch.cuda.max_memory_allocated"
        assert cost.counted_flops == pytest.approx(cost.forward_flops, rel=0.02)


class Bed:
    """A bench that measures nothing, in ten seconds a cell, and falls over where it is told to."""

    def __init__(self) -> None:
        self.measured: list[Cell] = []
        self.falls_at: int | None = None
        self.source = "somewhere"
        self.draws = False

    def measure(self, cell: Cell) -> Row:
        if len(self.measured) == self.falls_at:
            raise RuntimeError("the power is gone")
        self.measured.append(cell)
        largest = LargestBatch(8, 10**9, is_limit=False)
        return Row(cell, "somewhere", largest if cell.figure == "batches" else COST)

    def study(self, folder: Path, **given: object) -> None:
        efficiency(folder, device="cpu", quick=True, **given)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = Bed()
    monkeypatch.setattr(study, "QUICK", PLAN)
    monkeypatch.setattr(Bench, "measure", lambda _, cell: made.measure(cell))
    monkeypatch.setattr(Bench, "source", lambda _self, _cell: made.source)
    clock = SimpleNamespace(monotonic=lambda: 10.0 * len(made.measured))
    monkeypatch.setattr(stop, "time", clock)
    # drawing takes longer than all the rest; only the test that looks at the figures has them
    for name in ("plot_fractions", "plot_models"):
        draw = getattr(report, name)
        monkeypatch.setattr(
            report, name, lambda *given, draw=draw: draw(*given) if made.draws else None
        )
    return made


def content_of(folder: Path) -> dict[str, list[dict[str, object]]]:
    return json.loads((folder / "efficiency.json").read_text())


def rows_in(folder: Path) -> int:
    return sum(len(content_of(folder)[name]) for name in ("fractions", "batches", "models"))


def test_the_most_telling_cells_come_first() -> None:
    order = missing_in(Findings(FULL, 1, {}))
    assert sorted(map(str, order)) == sorted(map(str, cells(FULL)))
    assert len(set(map(str, order))) == len(order) == 22 + 48 + 2
    assert [str(cell) for cell in order[:2]] == [
        "malnet-tiny at 1 graph-mamba",
        "malnet-tiny at 1 gps-transformer",
    ]
    assert {cell.benchmark for cell in order[22:34]} == {"peptides-func"}
    assert [cell.figure for cell in order[-2:]] == ["batches", "batches"]


def test_what_was_measured_outlives_a_crash_and_is_not_measured_again(
    bed: Bed, tmp_path: Path
) -> None:
    bed.falls_at = 6
    with pytest.raises(RuntimeError, match="power"):
        bed.study(tmp_path)
    assert rows_in(tmp_path) == 6
    assert len(list(csv.DictReader((tmp_path / "malnet.csv").read_text().splitlines()))) == 4
    bed.falls_at = None
    bed.study(tmp_path)
    assert len(bed.measured) == len(set(bed.measured)) == len(cells(PLAN)) - TWINS
    assert rows_in(tmp_path) == len(cells(PLAN))
    # in the order of the tables
    global_models = content_of(tmp_path)["models"]
    assert [row["benchmark"] for row in global_models] == ["cluster"] * 6 + ["peptides-func"] * 6
    assert [row["sizing"] for row in global_models[:6]] == ["published"] * 3 + ["matched"] * 3
    done = (tmp_path / "efficiency.json").read_bytes()
    bed.study(tmp_path)
    assert (tmp_path / "efficiency.json").read_bytes() == done
    assert len(bed.measured) == len(cells(PLAN)) - TWINS


def test_a_budget_ends_the_study_with_files_and_says_what_is_missing(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.study(tmp_path, max_time=0.0)
    assert bed.measured == []
    assert "18 measurements are missing" in capsys.readouterr().out
    bed.draws = True
    bed.study(tmp_path, max_time=45.0)
    bed.draws = False
    assert len(bed.measured) == 5
    assert {path.name for path in tmp_path.iterdir()} >= {
        "malnet.svg",
        "models.png",
        "models.csv",
    }
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert (
        "13 measurements are missing; the same command resumes: peptides-func gps-transformer"
        in told
    )
    bed.study(tmp_path)
    assert rows_in(tmp_path) == len(cells(PLAN))
    assert "missing" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"memory_cap": "1GB"}, "a study with memory_cap 1000000000"),
        ({"max_time": -1.0}, "max_time must be at least 0, got -1"),
        ({"memory_cap": "much"}, "memory_cap must be a size"),
        ({"device": "abacus"}, "device must be one of"),
        ({"plan": 9}, r"repeats 9, and .* holds one with 1: name another"),
        ({"source": "elsewhere"}, r"'malnet-tiny' .*\(somewhere\), got others \(elsewhere\)"),
    ],
)
def test_another_study_and_errors_are_rejected(
    bed: Bed,
    tmp_path: Path,
    given: dict[str, object],
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bed.study(tmp_path, max_time=25.0)
    before = (tmp_path / "efficiency.json").read_bytes()
    given = dict(given)
    bed.source = str(given.pop("source", bed.source))
    monkeypatch.setattr(study, "QUICK", replace(PLAN, repeats=given.pop("plan", PLAN.repeats)))
    with typecheck_off(), pytest.raises(UserError, match=told):
        efficiency(tmp_path, **{"device": "cpu", "quick": True, **given})
    assert (tmp_path / "efficiency.json").read_bytes() == before


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"memory_cap"', '"cap"'),
        lambda text: text.replace('"nodes": 3.0', '"nodes": "many"'),
        lambda _: "[]",
    ],
    ids=["cut", "key", "value", "list"],
)
def test_a_spoilt_file_is_rejected(bed: Bed, tmp_path: Path, spoil: Callable[[str], str]) -> None:
    bed.study(tmp_path, max_time=25.0)
    path = tmp_path / "efficiency.json"
    path.write_text(spoil(path.read_text()))
    with pytest.raises(UserError, match="must be a file of this study"):
        bed.study(tmp_path)
