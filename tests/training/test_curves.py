"""The picture of a run."""

from pathlib import Path

import pytest

from graphmamba.errors import UserError
from graphmamba.training.curves import draw_curves
from graphmamba.training.metrics_file import append_row


def write_metrics(path: Path, epochs: int) -> Path:
    for epoch in range(epochs):
        row = {"epoch": epoch, "learning_rate": 1e-3, "train_loss": 1 / (epoch + 1)}
        scores = {
            f"{split}_{name}": 0.5 for split in ("validation", "test") for name in ("loss", "mrr")
        }
        append_row(path, row | scores | {"is_best": int(epoch == 0)})
    return path


@pytest.mark.parametrize("epochs", [1, 5])
def test_a_picture_is_drawn(epochs: int, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    metrics = write_metrics(tmp_path / "metrics.csv", epochs)
    draw_curves(metrics, tmp_path / "curves.png", "PCQM, seed 0", "mrr")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert len([*tmp_path.iterdir()]) == 2


def test_no_epoch_is_no_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(UserError, match="must hold an epoch, got none"):
        draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png", "nothing", "mrr")


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match="plots need matplotlib"):
        draw_curves(tmp_path / "metrics.csv", tmp_path / "curves.png", "nothing", "mrr")
