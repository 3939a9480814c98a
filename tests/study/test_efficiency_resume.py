"""The efficiency study cut off, stopped by its budget, and gone on with; nothing is really run."""

import csv
import gc
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from graphmamba.errors import UserError
from graphmamba.study import efficiency as study
from graphmamba.study import efficiency_report as report
from graphmamba.study.cost import Cost, LargestBatch
from graphmamba.study.efficiency import efficiency, run
from graphmamba.study.efficiency_bench import Bench
from graphmamba.study.efficiency_findings import (
    BatchRow,
    Findings,
    FractionRow,
    MixerRow,
    Row,
    read_findings,
)
from graphmamba.study.efficiency_plan import FULL, QUICK, Cell, cells, cells_by_worth
from graphmamba.study.memory import settled
from graphmamba.train import stops

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


def row_of(cell: Cell) -> Row:
    match cell.figure:
        case "fractions":
            return FractionRow(cell.model, cell.fraction, "somewhere", COST)
        case "mixers":
            return MixerRow(cell.benchmark, cell.model, cell.sizing, "somewhere", COST)
        case "batches":
            return BatchRow(cell.model, "somewhere", LargestBatch(8, 10**9, is_limit=False))


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
        return row_of(cell)

    def now(self) -> float:
        return 10.0 * len(self.measured)

    def study(self, folder: Path, **given: object) -> None:
        efficiency(folder, device="cpu", quick=True, **given)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = Bed()
    monkeypatch.setattr(study, "QUICK", PLAN)
    monkeypatch.setattr(Bench, "measure", lambda _, cell: made.measure(cell))
    monkeypatch.setattr(Bench, "source", lambda _self, _cell: made.source)
    monkeypatch.setattr(stops, "time", SimpleNamespace(monotonic=made.now))
    # drawing takes longer than all the rest; only the test that looks at the figures has them
    for name in ("plot_fractions", "plot_mixers"):
        draw = getattr(report, name)
        monkeypatch.setattr(
            report, name, lambda *given, draw=draw: draw(*given) if made.draws else None
        )
    return made


def rows_in(folder: Path) -> int:
    content = json.loads((folder / "efficiency.json").read_text())
    return sum(len(content[name]) for name in ("fractions", "batches", "mixers"))


def test_the_most_telling_cells_come_first() -> None:
    order = cells_by_worth(FULL, "all")
    assert sorted(map(str, order)) == sorted(map(str, cells(FULL)))
    assert len(set(map(str, order))) == len(order) == 22 + 48 + 2
    assert [str(cell) for cell in order[:3]] == [
        "malnet-tiny at 1 graph-mamba",
        "malnet-tiny at 1 gps-transformer",
        "malnet-tiny at 0.9 graph-mamba",
    ]
    assert {cell.benchmark for cell in order[22:34]} == {"peptides-func"}
    assert [cell.figure for cell in order[-2:]] == ["batches", "batches"]
    assert {cell.figure for cell in cells_by_worth(FULL, "mixers")} == {"mixers"}
    assert {cell.figure for cell in cells_by_worth(FULL, "malnet")} == {"fractions", "batches"}


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
    done = (tmp_path / "efficiency.json").read_bytes()
    bed.study(tmp_path)
    assert (tmp_path / "efficiency.json").read_bytes() == done
    assert len(bed.measured) == len(cells(PLAN)) - TWINS


def test_rows_stand_in_the_order_of_the_tables(bed: Bed, tmp_path: Path) -> None:
    bed.study(tmp_path)
    content = json.loads((tmp_path / "efficiency.json").read_text())
    assert [row["fraction"] for row in content["fractions"]] == [0.5, 0.5, 1.0, 1.0]
    assert [row["benchmark"] for row in content["mixers"]] == ["cluster"] * 6 + [
        "peptides-func"
    ] * 6
    assert [row["sizing"] for row in content["mixers"][:6]] == ["published"] * 3 + ["matched"] * 3


def test_a_budget_ends_the_study_with_files_and_says_what_is_missing(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.draws = True
    bed.study(tmp_path, max_time=45.0)
    bed.draws = False
    assert len(bed.measured) == 5
    assert {path.name for path in tmp_path.iterdir()} >= {"malnet.svg", "mixers.png", "mixers.csv"}
    told = re.sub(r"\s+", " ", capsys.readouterr().out)
    assert "13 cells are missing, the same command goes on: peptides-func gps-transformer" in told
    assert "malnet-tiny gps-transformer largest batch" in told
    bed.study(tmp_path)
    assert rows_in(tmp_path) == len(cells(PLAN))
    assert "missing" not in capsys.readouterr().out


def test_a_budget_of_nothing_measures_nothing(
    bed: Bed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bed.study(tmp_path, max_time=0.0)
    assert bed.measured == []
    assert "18 cells are missing" in capsys.readouterr().out


def test_parts_come_together_in_one_folder(bed: Bed, tmp_path: Path) -> None:
    bed.study(tmp_path, part="mixers")
    assert not (tmp_path / "malnet.csv").exists()
    bed.study(tmp_path, part="malnet")
    assert rows_in(tmp_path) == len(cells(PLAN))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"seed": 1}, "a study with seed 1, and .* holds one with 0"),
        ({"memory_cap": "1GB"}, "a study with memory_cap 1000000000"),
        ({"commit": "0123456789ab"}, "a study with commit '0123456789ab'"),
        ({"max_time": -1.0}, "max_time must be at least 0, got -1"),
    ],
)
def test_another_study_is_refused(
    bed: Bed, tmp_path: Path, given: dict[str, object], told: str
) -> None:
    bed.study(tmp_path, max_time=25.0)
    before = (tmp_path / "efficiency.json").read_bytes()
    with pytest.raises(UserError, match=told):
        bed.study(tmp_path, **given)
    assert (tmp_path / "efficiency.json").read_bytes() == before


def test_another_plan_is_refused(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bed.study(tmp_path, max_time=25.0)
    monkeypatch.setattr(study, "QUICK", replace(PLAN, repeats=9))
    with pytest.raises(UserError, match=r"plan.repeats 9, and .* holds one with 1: name another"):
        bed.study(tmp_path)


def test_graphs_of_two_sources_are_not_mixed(bed: Bed, tmp_path: Path) -> None:
    bed.study(tmp_path, max_time=25.0)
    bed.source = "elsewhere"
    with pytest.raises(UserError, match=r"'malnet-tiny' .*\(somewhere\), got others \(elsewhere\)"):
        bed.study(tmp_path)


def forget_the_original(folder: Path) -> list[dict[str, object]]:
    """Make the file what it was before operations of the original code were counted."""
    content = json.loads((folder / "efficiency.json").read_text())
    costs = [row["cost"] for name in ("fractions", "mixers") for row in content[name]]
    for cost in costs:
        del cost["original_flops"]
    (folder / "efficiency.json").write_text(json.dumps(content))
    return costs


def test_rows_of_an_older_study_get_what_formulas_give_and_keep_what_was_measured(
    bed: Bed, tmp_path: Path
) -> None:
    bed.study(tmp_path, max_time=65.0)
    older, measured = forget_the_original(tmp_path), list(bed.measured)
    bed.study(tmp_path, max_time=0.0)
    assert bed.measured == measured
    content = json.loads((tmp_path / "efficiency.json").read_text())
    costs = [row["cost"] for name in ("fractions", "mixers") for row in content[name]]
    assert all(cost.pop("original_flops") > 0 for cost in costs)
    assert costs == older


def test_rows_of_an_older_study_are_not_filled_in_from_other_graphs(
    bed: Bed, tmp_path: Path
) -> None:
    bed.study(tmp_path, max_time=25.0)
    forget_the_original(tmp_path)
    bed.source = "elsewhere"
    with pytest.raises(UserError, match=r"\(somewhere\), got others \(elsewhere\)"):
        bed.study(tmp_path, max_time=0.0)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:40],
        lambda text: text.replace('"memory_cap"', '"cap"'),
        lambda text: text.replace('"nodes": 3.0', '"nodes": "many"'),
        lambda _: "[]",
    ],
    ids=["cut", "key", "value", "list"],
)
def test_a_spoilt_file_is_refused(bed: Bed, tmp_path: Path, spoil: Callable[[str], str]) -> None:
    bed.study(tmp_path, max_time=25.0)
    path = tmp_path / "efficiency.json"
    path.write_text(spoil(path.read_text()))
    with pytest.raises(UserError, match="must be a file of this study"):
        bed.study(tmp_path)


def test_findings_are_read_as_they_were_written(bed: Bed, tmp_path: Path) -> None:
    begun = Findings(PLAN, 10**9, {"device": "test"}, seed=3)
    *_, found = run(Bench(PLAN, torch.device("cpu"), 10**9), "all", begun, str)
    assert len(bed.measured) == len(cells(PLAN)) - TWINS
    report.write_rows(found, tmp_path)
    assert read_findings(tmp_path, begun) == found
    assert read_findings(tmp_path / "new", begun) is begun


def test_the_collector_is_left_as_it_was() -> None:
    gc.unfreeze()
    with settled():
        assert gc.get_freeze_count()
    assert not gc.get_freeze_count()
