"""The plot of a training step shows what the record holds."""

import json

import pytest

from tests.helpers.processes import ROOT


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> tuple[dict, object]:
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import step_plot

    record = json.loads((ROOT / "benchmarks/results/step_h200.json").read_text())
    return record, step_plot.draw(record).axes[0]


def test_every_captured_step_has_its_bar(drawn: tuple[dict, object]) -> None:
    record, panel = drawn
    expected = [one["train_ms"] for one in record["times"] if one["kind"] == "captured"]
    assert [bar.get_height() for bar in panel.patches] == pytest.approx(expected)  # type: ignore[attr-defined]


def test_the_page_shows_the_plot_of_the_record() -> None:
    # drawn by benchmarks/step_plot.py --out docs/step
    shown = (ROOT / "docs/step.svg").read_text()
    record = json.loads((ROOT / "benchmarks/results/step_h200.json").read_text())
    assert shown.count("<!-- ") >= len(record["h200_targets_ms"])
    for one in record["times"]:
        if one["kind"] == "captured":
            assert f"<!-- {one['train_ms']:.2f} -->" in shown
