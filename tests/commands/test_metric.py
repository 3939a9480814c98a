"""`--metric` on the command line: what a run is chosen by, and what it says before it trains."""

import json
from pathlib import Path

import pytest

from graphmamba.cli import main
from tests.helpers.own_files import write_numbers, write_rings
from tests.test_cli import status_of

SMALL = ["--model.channels", "24", "--model.layers", "1", "--train.epochs", "2"]


def test_a_run_is_chosen_by_the_metric_and_reports_all_that_fit(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["train", str(write_rings(Path("rings"), 20)), "--data.target", "taste", *SMALL]
    main([*words, "--metric", "macro_f1", "--train.class_weights", "balanced", "--run_dir", "run"])
    shown = capsys.readouterr().out
    assert "task: graph classification, 2 classes (sour 10, sweet 10), metric F1, 16/2/2" in shown
    for title in ("ROC-AUC", "AP", "MCC", "log-loss", "balanced accuracy", "F1 (weighted)"):
        assert title in shown
    results = json.loads(Path("run/results.json").read_text())
    assert results["metric"] == "macro_f1"
    main(["evaluate", "run", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["reported"] == {name: told[name] for name in results["scores"]["test"]}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--metric", "mae"], "did you mean 'mean_absolute_error'?"),
        (["--metric", "mcc"], "must be one of 'mean_absolute_error', 'rmse', 'r2', 'spearman'"),
        (["--train.loss", "bce"], "did you mean 'binary_cross_entropy'?"),
        (["--train.loss", "focal"], "train.loss must be 'l1' or 'mse' or 'huber' for graph regr"),
        (["--train.label_smoothing", "0.1"], "label_smoothing is read by 'cross_entropy' alone"),
        (["--metric", "r2", "--train.metric", "rmse"], "--metric must be left out beside"),
    ],
)
def test_what_does_not_fit_is_rejected_with_what_does(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_numbers(Path("numbers.npz"))
    assert status_of(["train", str(path), *SMALL, *words, "--run_dir", "run"]) == 2
    assert told in capsys.readouterr().err
    assert not Path("run/config.yaml").exists()
