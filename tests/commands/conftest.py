"""Every command runs in a folder of its own, where it also keeps its data."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.typecheck import typecheck_off


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Shapes are checked elsewhere, and checking them takes longer than training."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "root"))
    with typecheck_off():
        yield tmp_path
