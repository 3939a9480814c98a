"""Stores on disk: complete or not there."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphmamba.cli import main
from graphmamba.data import cache
from graphmamba.data.cache import (
    DamagedError,
    file_hash,
    open_or_build,
    open_or_repair,
    open_store,
    recipe_hash,
)
from graphmamba.data.datasets.sources import open_benchmark
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import GraphColumns, Pairs
from graphmamba.errors import UserError
from tests.helpers.processes import ROOT
from tests.test_cli import status_of

RECIPE = {"name": "rings", "graphs": 20, "seed": 3}


def make_rings(count: int = 20) -> GraphColumns:
    """Rings of 3, 4, ... nodes."""
    sizes = torch.arange(3, 3 + count)
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)])
    source = torch.cat([torch.arange(int(size)) for size in sizes])
    target = torch.cat([(torch.arange(int(size)) + 1) % size for size in sizes])
    edge_index = torch.stack([source, target])
    both = torch.rand(2, len(source), 3)
    return GraphColumns(
        node_ptr=ptr,
        edge_ptr=ptr,
        edge_index=edge_index,
        nodes={"x": torch.arange(len(source))[:, None], "left": both[0], "right": both[1]},
        edges={"edge_attr": torch.ones(len(source), 2)},
        graphs={"y": sizes},
        pairs={"edge_label_index": Pairs(ptr, edge_index, {"edge_label": torch.ones(len(source))})},
        split=torch.arange(count) % 3,
        source="made in code",
    )


def reject_to_build() -> GraphColumns:
    raise AssertionError("what is there must be opened")


def entry(folder: Path) -> Path:
    (found,) = (path for path in folder.iterdir() if path.is_dir())
    return found


def assert_same(ours: GraphStore, theirs: GraphStore) -> None:
    ids = torch.tensor([4, 0, 19])
    ours_batch, theirs_batch = ours.batch(ids, by_source=True), theirs.batch(ids, by_source=True)
    assert set(ours_batch.keys()) == set(theirs_batch.keys())
    for name, values in theirs_batch:
        assert ours_batch[name].dtype == values.dtype
        assert torch.equal(ours_batch[name], values), name
    assert torch.equal(ours.split_ids("test"), theirs.split_ids("test"))
    assert ours.source == theirs.source


def test_a_set_is_built_once_and_opened_again(tmp_path: Path) -> None:
    columns = make_rings()
    built = open_or_build(tmp_path / "sets", RECIPE, lambda: columns)
    assert_same(built, GraphStore(columns))
    again = open_or_build(tmp_path / "sets", dict(reversed(RECIPE.items())), reject_to_build)
    assert_same(again, GraphStore(columns))
    about = json.loads((entry(tmp_path / "sets") / "about.json").read_text())
    nodes = int(columns.node_ptr[-1])
    assert about["counts"] == {"graphs": 20, "nodes": nodes, "edges": nodes}
    assert about["recipe"] == RECIPE
    assert about["source"] == "made in code"


def test_other_recipes_have_other_places(tmp_path: Path) -> None:
    for count in (20, 25):
        store = open_or_build(tmp_path, {**RECIPE, "graphs": count}, lambda n=count: make_rings(n))
        assert len(store) == count
    assert len(open_or_build(tmp_path, RECIPE, reject_to_build)) == 20


def test_a_set_without_graphs_or_rows_survives(tmp_path: Path) -> None:
    none = torch.empty(2, 0, dtype=torch.int64)
    ptr = torch.zeros(3, dtype=torch.int64)
    columns = GraphColumns(ptr, ptr, none, {"x": torch.empty(0, 4)}, graphs={"y": torch.ones(2)})
    open_or_build(tmp_path, RECIPE, lambda: columns)
    store = open_or_build(tmp_path, RECIPE, reject_to_build)
    assert store.batch(torch.tensor([1, 0])).x.shape == (0, 4)
    assert store.split is None


def test_a_set_that_cannot_take_its_place_leaves_the_old_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    columns = make_rings()
    open_or_build(tmp_path, RECIPE, lambda: columns)
    rename = Path.rename

    def reject(path: Path, target: Path) -> Path:
        if cache.PARTIAL in path.name and not path.name.endswith("-old"):
            raise OSError("no room for a name")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", reject)
    with pytest.raises(UserError, match=r"cannot be written \(no room for a name\)"):
        open_or_build(tmp_path, RECIPE, lambda: make_rings(25), rebuild=True)
    assert_same(open_or_build(tmp_path, RECIPE, reject_to_build), GraphStore(columns))


@pytest.mark.parametrize("name", ["columns.safetensors", "about.json"])
@pytest.mark.parametrize("damage", ["truncated", "foreign", "missing"])
def test_damaged_files_are_rejected_and_rebuilt_on_request(
    name: str, damage: str, tmp_path: Path
) -> None:
    open_or_build(tmp_path, RECIPE, make_rings)
    file = entry(tmp_path) / name
    if damage == "truncated":
        os.truncate(file, file.stat().st_size // 2)
    elif damage == "foreign":
        file.write_bytes(pickle.dumps({"x": 1}).ljust(file.stat().st_size, b"."))
    else:
        file.unlink()
    with pytest.raises(UserError, match=f"{name} is not a set that can be opened"):
        open_or_build(tmp_path, RECIPE, reject_to_build)
    columns = make_rings()
    assert_same(open_or_build(tmp_path, RECIPE, lambda: columns, rebuild=True), GraphStore(columns))
    assert_same(open_or_build(tmp_path, RECIPE, reject_to_build), GraphStore(columns))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("version", 99, "version must be 2, got 99"),
        ("format", "other", "must say format"),
        ("recipe_hash", "0", "recipe_hash must be"),
        ("counts", {"graphs": 1}, "counts must be"),
    ],
)
def test_what_the_description_says_must_hold(
    key: str, value: object, message: str, tmp_path: Path
) -> None:
    open_or_build(tmp_path, RECIPE, make_rings)
    file = entry(tmp_path) / "about.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(UserError, match=message):
        open_or_build(tmp_path, RECIPE, reject_to_build)


def test_boundaries_that_fall_are_rejected(tmp_path: Path) -> None:
    open_or_build(tmp_path, RECIPE, make_rings)
    file = entry(tmp_path) / "columns.safetensors"
    tensors = {name: values.clone() for name, values in load_file(file).items()}
    tensors["edges/ptr"][3] = 1_000_000
    save_file(tensors, file)
    about = json.loads(file.with_name("about.json").read_text())
    about["content"] = file_hash(file)
    file.with_name("about.json").write_text(json.dumps(about))
    with pytest.raises(UserError, match=r"columns.safetensors .* edges/ptr must start at 0"):
        open_or_build(tmp_path, RECIPE, reject_to_build)


def flip(place: Path) -> None:
    """Change a bit of the values, and nothing of their size."""
    path = place / "columns.safetensors"
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def test_changed_bytes_are_found_when_a_set_is_opened(tmp_path: Path) -> None:
    open_or_build(tmp_path, RECIPE, make_rings)
    place = entry(tmp_path)
    flip(place)
    with pytest.raises(DamagedError, match=r"content must have the hash .*build it again"):
        open_store(place)
    open_or_repair(tmp_path, RECIPE, make_rings)
    open_store(place)


def test_a_command_compares_all_that_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path))
    for seed in (0, 1):
        open_benchmark("pattern", seed=seed, sizes=(2, 1, 1))
    main(["data", "verify", "pattern"])
    assert capsys.readouterr().out.count("whole ") == 2
    place = next(each for each in sorted((tmp_path / "pattern").iterdir()) if each.is_dir())
    flip(place)
    assert status_of(["data", "verify", "pattern"]) == 2
    message = capsys.readouterr()
    assert (message.out.count("whole "), message.out.count("damaged ")) == (1, 1)
    assert f"1 of 2 damaged: {place / 'columns.safetensors'} is not a set" in message.err
    assert status_of(["data", "verify", "mnist"]) == 2
    assert "nothing of mnist is kept in" in capsys.readouterr().err
    assert status_of(["data", "verify", "nosuch"]) == 2


def test_a_set_is_hashed_once_on_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Path] = []
    monkeypatch.setattr(cache, "file_hash", lambda path: hashed.append(path) or file_hash(path))
    open_or_build(tmp_path, RECIPE, make_rings)
    hashed.clear()
    for _ in range(3):
        open_or_build(tmp_path, RECIPE, reject_to_build)
    assert not hashed
    os.utime(entry(tmp_path) / "columns.safetensors", ns=(1, 1))
    for _ in range(3):
        open_store(entry(tmp_path))
    assert len(hashed) == 1
    monkeypatch.setattr("platform.node", lambda: "another machine")
    open_store(entry(tmp_path))
    assert len(hashed) == 2


BUILD_APART = """
import sys, time
from pathlib import Path
from graphmamba.data import cache
from tests.data.test_cache import RECIPE, make_rings

folder, moment = Path(sys.argv[1]), sys.argv[2]

def stop(*_):
    (folder / "here").touch()
    time.sleep(600)

def build():
    if moment == "building":
        stop()
    if moment == "race":
        (folder / f"built-{time.time_ns()}").touch()
        time.sleep(0.5)
    return make_rings()

if moment == "writing":
    cache.flush = stop
folder.mkdir(exist_ok=True)
assert len(cache.open_or_build(folder, RECIPE, build)) == 20
"""


def start_build(folder: Path, moment: str) -> "subprocess.Popen[bytes]":
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return subprocess.Popen([sys.executable, "-c", BUILD_APART, folder, moment], env=environment)


@pytest.mark.parametrize("moment", ["building", "writing"])
def test_a_killed_build_leaves_nothing_that_is_opened(moment: str, tmp_path: Path) -> None:
    process = start_build(tmp_path, moment)
    while not (tmp_path / "here").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / recipe_hash(RECIPE)[:16]).exists()
    columns = make_rings()
    assert_same(open_or_build(tmp_path, RECIPE, lambda: columns), GraphStore(columns))
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [entry(tmp_path)]


def test_of_two_processes_one_builds(tmp_path: Path) -> None:
    processes = [start_build(tmp_path, "race") for _ in range(2)]
    assert [process.wait(timeout=120) for process in processes] == [0, 0]
    assert len(list(tmp_path.glob("built-*"))) == 1
    assert len(open_or_build(tmp_path, RECIPE, reject_to_build)) == 20
