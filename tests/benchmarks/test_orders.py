import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from graphmamba.cli import main
from tests.helpers.graphs import path, with_spectrum
from tests.helpers.raw_files import write_malnet
from tests.helpers.scripts import load_script


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script as a module."""
    return load_script("orders", monkeypatch)


def test_orders_that_stay_the_same_agree_and_smooth_ones_keep_neighbours_near(
    study: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    topology = with_spectrum(path(200), [200])
    monkeypatch.setattr(
        study, "ORDERS", {name: study.ORDERS[name] for name in ("none", "permutation", "smooth")}
    )
    none, permutation, smooth = study.measure(topology, line_ups=6)
    assert (none["places"], none["agreement"]) == (1.0, pytest.approx(1.0))
    assert 50 < permutation["places"] < 80
    assert permutation["agreement"] < 0.2
    assert smooth["places"] < 6
    assert permutation["agreement"] < smooth["agreement"] < 0.95


def test_the_table_and_the_record_are_written(
    study: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_malnet(tmp_path)
    root, out = str(tmp_path / "sets"), tmp_path / "new" / "orders.json"
    main(["data", "build", "malnet-tiny", "--from", str(tmp_path), "--root", root])
    words = ["--benchmark", "malnet-tiny", "--root", root, "--commit", "0123abc"]
    monkeypatch.setattr(sys, "argv", ["orders.py", *words, "--line-ups", "3", "--out", str(out)])
    study.main()
    written = json.loads(out.read_text())
    assert (written["graphs"], written["line_ups"]) == (3, 3)
    assert [row["order"] for row in written["rows"]] == [*study.ORDERS]
    assert "smooth" in capsys.readouterr().out
