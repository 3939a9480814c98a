"""`graphmamba benchmarks`."""

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from graphmamba.cli import main
from graphmamba.commands.benchmarks import parameter_totals
from graphmamba.data.catalog import CATALOG
from graphmamba.training.experiment import config_names


@pytest.fixture(scope="module", autouse=True)
def totals() -> Iterator[dict[str, dict[str, int]]]:
    """Parameters of all models, counted once."""
    found = parameter_totals()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmamba.commands.benchmarks.parameter_totals", lambda: found)
        yield found


def test_totals_cover_every_shipped_model(totals: dict[str, dict[str, int]]) -> None:
    assert [f"{name}/{model}" for name in totals for model in totals[name]] == config_names()
    assert totals["peptides-func"]["graph-mamba"] == 373_018


def test_json_is_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    main(["benchmarks", "--json"])
    listed = json.loads(capsys.readouterr().out)["benchmarks"]
    assert [entry["name"] for entry in listed] == list(CATALOG)
    voc = listed[2]
    assert voc["title"] == "PascalVOC-SP"
    assert voc["task"]["metric"] == "macro_f1"
    assert voc["graphs"] == 11_355
    assert voc["models"]["graph-mamba"] == 497_781


@pytest.mark.parametrize("columns", ["80", "120"])
def test_tables_show_every_shipped_model(
    columns: str,
    totals: dict[str, dict[str, int]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    main(["benchmarks", "--no-json"])
    shown = capsys.readouterr().out
    words = Counter(shown.split())
    assert Counter(f"{total:,}" for each in totals.values() for total in each.values()) <= words
    assert "accuracy (mean of" in shown
    assert max(map(len, shown.splitlines())) <= int(columns)
