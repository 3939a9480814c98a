"""What one measurement of the efficiency study leaves to the next: nothing."""

import csv
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphmamba.study import efficiency_bench
from graphmamba.study.cost import Shelf, Subject
from graphmamba.study.efficiency import run
from graphmamba.study.efficiency_bench import Bench
from graphmamba.study.efficiency_findings import Findings
from graphmamba.study.efficiency_plan import QUICK, TITLES, Cell, experiment_of
from graphmamba.study.efficiency_report import print_findings, write_rows
from graphmamba.study.flops import count_flops
from graphmamba.study.graphs import study_graphs
from graphmamba.study.memory import HeldMemoryError, LiveStorage, OverCapError

CPU = torch.device("cpu")
TINY = replace(QUICK, fractions=(1.0,), batch_size=2, largest=2, scale=0.03, sets=())


def subject(model: str) -> Subject:
    """A model of one layer whose parts forget, as they do with large batches on a GPU."""
    experiment = experiment_of("peptides-func", model, "matched")
    small = replace(experiment, model=replace(experiment.model, layers=1))
    made = Subject(small, Shelf(study_graphs("peptides-func", 4, scale=0.1).graphs), CPU)
    for part in made.model.modules():
        if hasattr(part, "forgets"):
            part.forgets = True
    return made


@pytest.mark.parametrize("model", TITLES)
def test_a_step_leaves_nothing_wherever_it_ends(model: str) -> None:
    own = subject(model)
    batch, live = own.batch(0, 2), LiveStorage()
    own.train(batch)
    own.optimizer.zero_grad()
    for tensor in own.resident(batch):
        live.follow(tensor)
    before = live.now
    with live:
        own.train(batch)
    own.optimizer.zero_grad()
    room = live.peak - before
    # in the forward pass, in the backward pass, not at all
    for share in (0.3, 0.8, 0.95, 1.0):
        live.cap = before + int(share * room)
        with live, suppress(OverCapError):
            own.train(batch)
        own.forget()
        assert live.now == before
    live.cap = None
    with live:
        count_flops(lambda: own.model(batch, check=False))
    assert live.now == before


def test_what_is_held_before_a_cell_stands_in_its_row(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from rich.console import Console

    monkeypatch.setattr(efficiency_bench, "released_bytes", lambda _: 67_108_864)
    begun = Findings(TINY, 10**9, {"device": "test"})
    *_, found = run(Bench(TINY, CPU, 10**9), "malnet", begun, str)
    assert {row.held_bytes for row in found.rows.values()} == {67_108_864}
    write_rows(found, tmp_path)
    for name in ("malnet.csv", "largest_batch.csv"):
        rows = csv.DictReader((tmp_path / name).read_text().splitlines())
        assert {row["held_bytes"] for row in rows} == {"67108864"}
    console = Console(record=True, width=160)
    print_findings(found, Path("q[/b]"), console)
    told = console.export_text()
    assert "Held before a cell, and in no peak: at most 67.1 MB" in told
    assert "Files: q[/b]\n" in told


def test_a_cell_is_not_begun_where_memory_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: torch.device) -> int:
        raise HeldMemoryError("too much is held")

    monkeypatch.setattr(efficiency_bench, "released_bytes", refuse)
    with pytest.raises(HeldMemoryError):
        Bench(TINY, CPU, 10**9).measure(Cell("fractions", "malnet-tiny", "graph-mamba"))
