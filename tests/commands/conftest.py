"""Every command runs in a folder of its own, where it also keeps its data."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "root"))
    return tmp_path
