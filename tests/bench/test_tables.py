import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from graphmamba.bench.agreement import Agreement
from graphmamba.bench.measure import ScanTimes
from graphmamba.bench.shapes import BATCHES
from graphmamba.bench.tables import agreement_table, cpu_table, gpu_table, table, write_json

PEPTIDES = ScanTimes(BATCHES["peptides"], "fused", 0.02, 0.06, peak_bytes=3 * 2**29)


def lines(table: Table) -> list[str]:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get().splitlines()


def test_gpu_times_stand_beside_their_ratio_to_the_bound() -> None:
    (row,) = (line for line in lines(gpu_table([PEPTIDES], "a GPU")) if "peptides" in line)
    assert row.split() == ["peptides", "fused", "20,926", "0.020", "2.1x", "0.060", "2.1x", "1.50"]


def test_speed_up_is_over_the_padded_loop_of_the_same_batch() -> None:
    fast = replace(PEPTIDES, backend="cpu", forward_ms=10.0, both_ms=40.0)
    loop = replace(PEPTIDES, backend="padded loop", forward_ms=400.0, both_ms=1000.0)
    alone = replace(fast, batch=BATCHES["voc"])
    last = [line.split()[-1] for line in lines(cpu_table([fast, loop, alone], "a CPU"))[-4:-1]]
    assert last == ["25.0x", "1.0x", "40.0"]


def test_cells_that_look_like_markup_stand_as_they_are() -> None:
    made = table("q[/b]", ["a[b]", "backend"], [["c[/d]", ":dog:"]])
    words = [line.split() for line in lines(made) if line.strip(" ─╶╴━")]
    assert words == [["q[/b]"], ["a[b]", "backend"], ["c[/d]", ":dog:"]]


@pytest.mark.parametrize(
    ("error", "verdict"), [(1e-6, "ok"), (3e-6, "WRONG"), (float("nan"), "WRONG")]
)
def test_the_verdict_follows_the_error(error: float, verdict: str) -> None:
    agreement = Agreement("selective_scan", "cpu", "out", error=error, allowed=2e-6)
    assert verdict in "\n".join(lines(agreement_table([agreement])))


def test_json_spells_out_dataclasses_and_refuses_the_rest(tmp_path: Path) -> None:
    write_json(tmp_path / "out.json", {"times": [PEPTIDES]})
    (row,) = json.loads((tmp_path / "out.json").read_text())["times"]
    assert row["batch"]["tokens"] == 20_926
    with pytest.raises(TypeError, match="Path"):
        write_json(tmp_path / "out.json", {"where": tmp_path})


def test_measurements_that_are_cut_off_leave_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_json(tmp_path / "out.json", {"times": [1.0]})
    write = Path.write_text

    def half(path: Path, text: str, *given: str, **options: str) -> int:
        write(path, text[: len(text) // 2], *given, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(KeyboardInterrupt):
        write_json(tmp_path / "out.json", {"times": [1.0, 2.0]})
    assert json.loads((tmp_path / "out.json").read_text()) == {"times": [1.0]}
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
