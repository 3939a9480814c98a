import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.helpers.processes import ROOT, only_interpreted, run_apart
from tests.helpers.scripts import load_script


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, on batches small enough for a test."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    module = load_script("norm", monkeypatch)
    module.PLACES = {
        name: replace(place, rows=40, channels=8) for name, place in module.PLACES.items()
    }
    return module


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_place_is_measured(
    device: str, study: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new" / "norm.json"
    words = ["norm.py", "--device", device, "--out", str(out), "--commit", "0123abc"]
    words.append("--no-tiles")
    monkeypatch.setattr(sys, "argv", words)
    monkeypatch.setattr("graphmamba.bench.timing.BUDGET_S", 0.01)
    study.main()
    written = json.loads(out.read_text())
    measured = {(one["place"]["name"], one["way"]) for one in written["times"]}
    assert measured == {(name, way) for name in study.PLACES for way in study.WAYS}
    assert written["environment"]["commit"] == "0123abc"


def test_both_ways_compute_the_same(study: ModuleType) -> None:
    for place in study.PLACES.values():
        if place.rate or place.ghosts:
            continue
        inputs = study.draw(place, torch.device("cpu"))
        found = [call(kind(8), place, inputs) for kind, call in study.WAYS.values()]
        assert torch.allclose(*found, atol=1e-6)


@only_interpreted
def test_every_candidate_launches_the_kernels_of_both_passes() -> None:
    run_apart(
        "import sys\n"
        f"sys.path.insert(0, {str(ROOT / 'benchmarks')!r})\n"
        "import torch\n"
        "from norm_launches import CANDIDATES, Shape, record\n"
        "from graphmamba.encode.batch_norm import fused\n"
        "sets = [list(torch.randn(4, 70, 35))]\n"
        "default, grids = fused.TILES, set()\n"
        "for candidate in CANDIDATES:\n"
        "    launches = record(Shape('small', 70, 35, True), candidate, sets)[0]\n"
        "    names = [launch.kernel.fn.__name__ for launch in launches]\n"
        "    kernels = ['sums', 'apply', 'bwd_sums', 'bwd_apply']\n"
        "    assert names == [f'batch_norm_{name}_kernel' for name in kernels]\n"
        "    grids.add(tuple(launch.grid for launch in launches))\n"
        "assert len(grids) > 1\n"
        "assert fused.TILES is default\n"
        "assert fused.batch_norm_sums_kernel is launches[0].kernel\n",
        TRITON_INTERPRET="1",
    )


def test_tables_show_each_kernel_with_each_candidate(
    study: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    tiles = study.norm_tiles
    shape = tiles.Shape("few", 1_000, 10, is_nodes=True)
    found = [
        tiles.Found(shape, candidate, is_backward, sums_us=2.0, pass_us=6.0)
        for candidate in study.CANDIDATES
        for is_backward in (False, True)
    ]
    # The second kernel of the forward pass moves x, b, a and y.
    assert found[-2].entry["us"] == 4.0
    assert found[-2].terabytes == pytest.approx(4 * 1_000 * 10 * 4 / 4e-6 / 1e12)
    for table in tiles.tile_tables(found):
        study.Console(width=120).print(table)
    printed = capsys.readouterr().out
    assert [name in printed for name in ("sums:", "bwd_apply:", "as it is", "early: both")] == [
        True
    ] * 4
