"""The efficiency study, on very small graphs."""

import csv
import json
import sys
from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

from graphmamba.config import load_experiment
from graphmamba.study import efficiency as study
from graphmamba.study.cost import LargestBatch, Shelf, Subject, largest_batch, measure_cost
from graphmamba.study.efficiency import efficiency, recounted, run
from graphmamba.study.efficiency_bench import Bench
from graphmamba.study.efficiency_findings import Findings, FractionRow, MixerRow
from graphmamba.study.efficiency_plan import (
    FULL,
    QUICK,
    TITLES,
    experiment_of,
    is_the_same_work,
)
from graphmamba.study.efficiency_report import claims, print_findings, write_findings
from graphmamba.study.graphs import study_graphs

CPU = torch.device("cpu")
TINY = replace(
    QUICK, fractions=(1.0,), batch_size=2, largest=2, largest_batch_size=2, scale=0.03,
    sets=("peptides-func",), models=("graph-mamba", "gps-transformer", "exphormer"),
)  # fmt: skip
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "efficiency.py"


def subject(model: str, count: int = 4, scale: float = 0.05) -> Subject:
    graphs = study_graphs("malnet-tiny", count, scale=scale)
    experiment = load_experiment(f"malnet-tiny/{model}", {"model.layers": 1})
    return Subject(experiment, Shelf(graphs.graphs), CPU)


def begun() -> Findings:
    return Findings(TINY, 10**9, {"device": "test"})


@pytest.fixture(scope="module")
def findings() -> Findings:
    told: list[str] = []
    *_, found = run(Bench(TINY, CPU, 10**9), "all", begun(), told.append)
    assert len(told) == len(found.fractions) + len(found.batches) + len(found.mixers)
    return found


def test_all_cells_are_measured(findings: Findings) -> None:
    assert [(row.model, row.fraction) for row in findings.fractions] == [
        (model, fraction)
        for fraction in TINY.fractions
        for model in ("graph-mamba", "gps-transformer")
    ]
    assert {(row.model, row.sizing) for row in findings.mixers} == {
        (model, sizing) for model in TINY.models for sizing in ("published", "matched")
    }
    for row in (*findings.fractions, *findings.mixers):
        assert row.cost.peak_bytes is not None
        assert row.cost.counted_flops == pytest.approx(row.cost.forward_flops, rel=0.02)
        assert row.cost.ms > 0
        assert row.cost.original_flops > row.cost.forward_flops
        assert "generated" in row.source


def test_both_models_of_the_first_figure_have_the_paper_s_size(findings: Findings) -> None:
    assert {row.cost.parameters for row in findings.fractions} == {285_125, 286_725}


def test_matched_models_have_graph_mamba_s_width_and_depth() -> None:
    for benchmark in FULL.sets:
        base = load_experiment(f"{benchmark}/graph-mamba")
        for model in TITLES:
            own = experiment_of(benchmark, model, "matched")
            assert (own.model.channels, own.model.layers) == (
                base.model.channels,
                base.model.layers,
            )
            assert own.model.mixer == load_experiment(f"{benchmark}/{model}").model.mixer
            assert own.encoder == base.encoder
        assert experiment_of(benchmark, "graph-mamba", "matched") == base


@pytest.mark.parametrize("benchmark", FULL.sets)
@pytest.mark.parametrize("model", ["graph-mamba", "gps-transformer", "gps-bigbird"])
def test_models_published_at_graph_mamba_s_size_are_the_same_work(
    benchmark: str, model: str
) -> None:
    published, matched = (
        experiment_of(benchmark, model, sizing) for sizing in ("published", "matched")
    )
    assert is_the_same_work(published, matched)


@pytest.mark.parametrize(
    ("model", "key", "is_same"),
    [
        ("graph-mamba", "order.bins", False),
        ("graph-mamba", "mamba.state", False),
        ("exphormer", "order.bins", True),
        ("exphormer", "mamba.state", True),
        ("exphormer", "attention.heads", False),
        ("exphormer", "layers", False),
    ],
)
def test_the_order_is_work_for_mamba_alone(model: str, key: str, is_same: bool) -> None:
    name = f"pascalvoc-sp/{model}"
    changed = load_experiment(name, {f"model.{key}": 3, "recipe.epochs": 1})
    assert is_the_same_work(load_experiment(name), changed) == is_same


def test_files_hold_every_row(findings: Findings, tmp_path: Path) -> None:
    from rich.console import Console

    short_of_memory = replace(
        findings.fractions[-1],
        cost=replace(findings.fractions[-1].cost, peak_bytes=None, ms=None, counted_flops=None),
    )
    changed = replace(findings, fractions=(*findings.fractions[:-1], short_of_memory))
    console = Console(record=True, width=160)
    write_findings(changed, tmp_path / "new")
    print_findings(changed, tmp_path / "new", console)
    written = {path.name for path in (tmp_path / "new").iterdir()}
    tables = {"malnet.csv", "largest_batch.csv", "mixers.csv", "efficiency.json"}
    assert written == tables | {"malnet.png", "malnet.svg", "mixers.png", "mixers.svg"}
    lines = (tmp_path / "new" / "malnet.csv").read_text().splitlines()
    rows = list(csv.DictReader(lines))
    assert [row["peak_bytes"] for row in rows][-1] == "OOM"
    assert rows[-1]["memory_measure"] == "live tensor storage"
    assert float(rows[-1]["original_flops"]) > float(rows[-1]["forward_flops"]) > 0
    content = json.loads((tmp_path / "new" / "efficiency.json").read_text())
    assert len(content["mixers"]) == len(findings.mixers)
    assert content["claims"] == claims(findings)
    shown = console.export_text()
    assert "OOM" in shown
    assert "74 %" in shown
    assert "by original" in shown
    assert (tmp_path / "new" / "malnet.png").read_bytes()[:4] == b"\x89PNG"


def test_figures_say_where_no_step_fits(findings: Findings, tmp_path: Path) -> None:
    def out(row: FractionRow | MixerRow) -> FractionRow | MixerRow:
        return replace(row, cost=replace(row.cost, peak_bytes=None, ms=None, counted_flops=None))

    nowhere = replace(
        findings,
        fractions=tuple(map(out, findings.fractions)),
        mixers=tuple(map(out, findings.mixers)),
        batches=tuple(
            replace(row, largest=LargestBatch(0, None, False)) for row in findings.batches
        ),
    )
    write_findings(nowhere, tmp_path)
    for name, panels in (("malnet", 2), ("mixers", 2)):
        drawn = (tmp_path / f"{name}.svg").read_text()
        assert drawn.count("OOM: no step fits") == panels


def test_figures_say_what_is_not_measured_yet(findings: Findings, tmp_path: Path) -> None:
    begun = [row for row in findings.mixers if row.sizing == "published"]
    write_findings(replace(findings, batches=(), mixers=tuple(begun)), tmp_path)
    for name in ("malnet", "mixers"):
        assert (tmp_path / f"{name}.svg").read_text().count("not measured yet") == 1


def test_claims_compare_memory_and_operations(findings: Findings) -> None:
    cost = {row.model: row.cost for row in findings.mixers if row.sizing == "published"}
    first = claims(findings)[0]
    assert (first["rival"], first["sizing"]) == ("gps-transformer", "published")
    ours, rival = cost["graph-mamba"], cost["gps-transformer"]
    assert first["flops_saved"] == 1 - ours.forward_flops / rival.forward_flops
    assert first["memory_saved"] == 1 - ours.peak_bytes / rival.peak_bytes
    assert first["flops_saved_of_original"] == 1 - ours.forward_flops / rival.original_flops
    assert first["flops_saved_by_original"] == 1 - ours.original_flops / rival.original_flops


def test_operations_of_the_original_are_found_again_without_measuring(findings: Findings) -> None:
    def older(row: FractionRow | MixerRow) -> FractionRow | MixerRow:
        return replace(row, cost=replace(row.cost, original_flops=None))

    begun = replace(
        findings,
        fractions=tuple(map(older, findings.fractions)),
        mixers=tuple(map(older, findings.mixers)),
    )
    assert recounted(Bench(TINY, CPU, 10**9), begun) == findings


def test_running_out_of_memory_is_a_cell_and_not_the_end() -> None:
    own = subject("gps-transformer")
    fits = measure_cost(own, 2, 1, repeats=1)
    cost = measure_cost(own, 2, 1, cap=fits.peak_bytes // 2, repeats=1)
    assert cost.peak_bytes is None
    assert cost.forward_flops == fits.forward_flops
    assert measure_cost(own, 2, 1, repeats=1).peak_bytes == fits.peak_bytes


def test_the_largest_batch_is_where_the_cap_lies() -> None:
    own = subject("graph-mamba")
    peak = own.peak(own.batch(0, 2), None)
    found = largest_batch(own, 64, cap=peak)
    assert (found.batch_size, found.peak_bytes, found.is_limit) == (2, peak, False)
    assert largest_batch(own, 2).is_limit
    assert largest_batch(own, 64, cap=1000).batch_size == 0


def test_attention_takes_more_memory_than_the_scan_for_larger_graphs() -> None:
    peaks = {
        model: measure_cost(subject(model, count=2, scale=0.15), 2, 1, repeats=1).peak_bytes
        for model in ("graph-mamba", "gps-transformer")
    }
    assert 2 * peaks["graph-mamba"] < peaks["gps-transformer"]


def test_the_script_measures_a_part_as_the_command_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = spec_from_file_location("benchmark_of_efficiency", SCRIPT)
    assert spec
    assert spec.loader
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(study, "QUICK", TINY)
    words = ["--device", "cpu", "--quick", "--part", "malnet", "--memory-cap", "9MB"]
    monkeypatch.setattr(sys, "argv", ["efficiency.py", "--folder", str(tmp_path), *words])
    script.main()
    assert json.loads((tmp_path / "efficiency.json").read_text())["memory_cap"] == 9_000_000
    assert {path.name for path in tmp_path.iterdir()} >= {"malnet.svg", "largest_batch.csv"}
    assert not (tmp_path / "mixers.csv").exists()
    assert "Largest batch" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"part": "both"}, "part must be one of"),
        ({"memory_cap": "much"}, "memory_cap must be a size"),
        ({"device": "abacus"}, "device must be one of"),
    ],
)
def test_mistakes_are_refused_before_anything_is_measured(
    given: dict[str, str], told: str, tmp_path: Path
) -> None:
    from tests.helpers.typecheck import typecheck_off

    with typecheck_off(), pytest.raises(ValueError, match=told):
        efficiency(tmp_path / "new", **given)
    assert not (tmp_path / "new").exists()


@pytest.mark.gpu
def test_a_gpu_reports_its_own_peak() -> None:
    *_, found = run(Bench(TINY, torch.device("cuda"), 4 * 10**9), "all", begun(), str)
    for row in (*found.fractions, *found.mixers):
        assert row.cost.memory_measure == "torch.cuda.max_memory_allocated"
        assert row.cost.counted_flops == pytest.approx(row.cost.forward_flops, rel=0.02)
