"""The benchmark of the defaults: cells are made once, and tell of validation and test."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.scripts import load_script


def write_cora(path: Path) -> None:
    """Two blocks of 60 nodes with words of their own, joined within."""
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    x = (rng.random((120, 200)) < np.where(np.arange(200) % 2 == y[:, None], 0.1, 0.02)).astype(int)
    source = np.arange(120).repeat(3)
    edges = np.stack([source, (source + np.tile([2, 4, 6], 120)) % 120])
    masks = {
        f"{name}_mask": np.arange(120) // 40 == number
        for number, name in enumerate(("train", "val", "test"))
    }
    np.savez(path, x=x, y=y, edge_index=edges, **masks)


@pytest.mark.thorough
def test_cells_are_made_once_and_validation_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = load_script("custom_data", monkeypatch)
    write_cora(tmp_path / "cora.npz")
    record, page = tmp_path / "record.json", tmp_path / "page.md"
    words = ["x", str(tmp_path), "--record", str(record), "--only", "cora/ours", "cora/gcn"]
    monkeypatch.setattr("sys.argv", [*words, "--splits", "0", "--set", "train.epochs=8"])
    script.main()
    cells = json.loads(record.read_text())
    assert set(cells) == {"cora/ours/0", "cora/gcn/0"}
    for cell in cells.values():
        assert cell["metric"] == "accuracy"
        assert cell["validation"] > 0.8
        assert cell["test"] > 0.8
        assert 0 <= cell["epoch"] < cell["epochs"]
    script.main()
    assert json.loads(record.read_text()) == cells  # seconds too: nothing was made again
    page.write_text(f"before\n{script.BEGIN}what was\n{script.END}after\n")
    script.write_table(cells, page)
    test = cells["cora/ours/0"]["test"]
    assert f"| Cora, public split, 5 seeds | accuracy | {test:.3f} (1 of 5) |" in page.read_text()
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("after\n")
    assert "what was" not in page.read_text()
