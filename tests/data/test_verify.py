"""A set whose bytes have changed is found out, when it is opened first and when one asks."""

import os
from pathlib import Path

import pytest

from graphmamba.cli import main
from graphmamba.data import cache
from graphmamba.data.cache import DamagedError, open_or_build, open_or_repair, open_store
from graphmamba.data.datasets.sources import open_benchmark
from tests.data.test_cache import RECIPE, entry, make_rings, reject_to_build
from tests.test_cli import status_of


@pytest.fixture(autouse=True)
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "root"))
    return tmp_path / "root"


def flip(place: Path, keeps_time: bool = False) -> None:
    """Change a bit of the values, and nothing of their size."""
    path = place / "columns.safetensors"
    before, content = path.stat(), bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)
    if keeps_time:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_changed_bytes_are_found_when_a_set_is_opened(tmp_path: Path) -> None:
    open_or_build(tmp_path / "sets", RECIPE, make_rings)
    place = entry(tmp_path / "sets")
    flip(place)
    with pytest.raises(DamagedError, match=r"content must have the hash .*build it again"):
        open_store(place)
    open_or_repair(tmp_path / "sets", RECIPE, make_rings)
    open_store(place)


def test_a_set_is_hashed_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    real = cache.file_hash
    monkeypatch.setattr(cache, "file_hash", lambda path: hashed.append(path) or real(path))
    open_or_build(tmp_path / "sets", RECIPE, make_rings)
    hashed.clear()
    for _ in range(3):
        open_or_build(tmp_path / "sets", RECIPE, reject_to_build)
    assert not hashed
    place = entry(tmp_path / "sets")
    os.utime(place / "columns.safetensors", ns=(1, 1))
    for _ in range(3):
        open_store(place)
    assert len(hashed) == 1
    monkeypatch.setattr("platform.node", lambda: "another machine")
    for _ in range(3):
        open_store(place)
    assert len(hashed) == 2


def test_where_nothing_can_be_noted_a_set_is_compared_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cache, "_notes_of", lambda _: tmp_path / "file" / "note")
    open_or_build(tmp_path / "sets", RECIPE, make_rings)
    place = entry(tmp_path / "sets")
    open_store(place)
    flip(place, keeps_time=True)
    with pytest.raises(DamagedError, match="content must have the hash"):
        open_store(place)


def test_a_command_compares_all_that_is_kept(
    data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in (0, 1):
        open_benchmark("pattern", seed=seed, sizes=(2, 1, 1))
    main(["data", "verify", "pattern"])
    assert capsys.readouterr().out.count("whole ") == 2
    place = next(each for each in sorted((data_dir / "pattern").iterdir()) if each.is_dir())
    # even where size and time are as they were
    flip(place, keeps_time=True)
    assert status_of(["data", "verify", "pattern"]) == 2
    message = capsys.readouterr()
    assert (message.out.count("whole "), message.out.count("damaged ")) == (1, 1)
    assert f"1 of 2 damaged: {place / 'columns.safetensors'} is not a set" in message.err
    assert status_of(["data", "verify", "mnist"]) == 2
    assert "nothing of mnist is kept in" in capsys.readouterr().err
    assert status_of(["data", "verify", "nosuch"]) == 2
