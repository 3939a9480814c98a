"""A set whose bytes have changed is found out when one asks."""

from pathlib import Path

import pytest

from graphmamba.cli import main
from graphmamba.data.datasets.sources import open_benchmark
from tests.test_cli import status_of


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "root"))
    return tmp_path / "root"


def flip(place: Path) -> None:
    """Change a bit of the values, and nothing of their size."""
    path = place / "columns.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def test_a_command_compares_all_that_is_kept(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        open_benchmark("pattern", seed=seed, sizes=(2, 1, 1))
    main(["data", "verify", "pattern"])
    assert capsys.readouterr().out.count("whole ") == 2
    place = next(each for each in sorted((data_dir / "pattern").iterdir()) if each.is_dir())
    flip(place)
    assert status_of(["data", "verify", "pattern"]) == 2
    message = capsys.readouterr()
    assert (message.out.count("whole "), message.out.count("damaged ")) == (1, 1)
    assert f"1 of 2 damaged: {place / 'columns.safetensors'} is not a set" in message.err
    assert status_of(["data", "verify", "mnist"]) == 2
    assert "nothing of mnist is kept in" in capsys.readouterr().err
    assert status_of(["data", "verify", "nosuch"]) == 2
