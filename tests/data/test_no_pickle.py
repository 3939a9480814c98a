"""A file from a stranger runs no code: no pickle is ever loaded."""

import ast
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmamba.data.cache import open_or_build
from graphmamba.data.fetched import read_tensors
from graphmamba.data.own import open_own, read_npz
from graphmamba.data.peptide_split import read_split
from graphmamba.data.raw_files import read_arrays
from graphmamba.data.tensor_pickle import read_array_pickle, read_tensor_pickle
from graphmamba.errors import UserError
from tests.data.own.test_open import write_npz
from tests.data.test_cache import RECIPE, entry, make_rings, refuse_to_build

ROOT = Path(__file__).parents[2] / "src" / "graphmamba"
FOREIGN = {"cloudpickle", "dill", "joblib", "marshal", "shelve"}
LOADERS = {"load", "loads", "Unpickler"}


class Bomb:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.trace,)


def calls_in(file: Path) -> list[ast.Call]:
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Call)]


def imports_of(file: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    return {*names, *(node.module or "" for node in nodes if isinstance(node, ast.ImportFrom))}


def unsafe(call: ast.Call) -> bool:
    """Whether a call may unpickle: only what says that it does not is safe."""
    if not isinstance(call.func, ast.Attribute) or not isinstance(call.func.value, ast.Name):
        return False
    said = {each.arg: getattr(each.value, "value", None) for each in call.keywords}
    library, name = call.func.value.id, call.func.attr
    return (
        (library == "pickle" and name in LOADERS)
        or (library == "torch" and name == "load" and said.get("weights_only") is not True)
        or (library == "np" and name == "load" and said.get("allow_pickle") is not False)
        or (library == "yaml" and name in {"unsafe_load", "full_load"})
        or (library == "yaml" and name == "load" and not makes_words_alone(call))
    )


def makes_words_alone(call: ast.Call) -> bool:
    """Whether YAML is read by the loader that knows text, lists and mappings, and nothing else."""
    loaders = [ast.unparse(each) for each in call.args[1:]]
    return loaders == ["yaml.BaseLoader"]


def test_no_module_can_load_a_pickle() -> None:
    files = sorted(ROOT.rglob("*.py"))
    assert files
    for file in files:
        assert not [ast.unparse(call) for call in calls_in(file) if unsafe(call)], file
        assert not imports_of(file) & FOREIGN, file


@pytest.mark.parametrize(
    "text", ["pickle.load(f)", "torch.load(f)", "np.load(f)", "yaml.load(f)", "pickle.Unpickler(f)"]
)
def test_the_rule_sees_what_could(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"def late():\n    return {text}\n")
    assert all(map(unsafe, calls_in(tmp_path / "a.py")))


READERS: dict[str, Callable[[Path], object]] = {
    "raw files": lambda path: read_arrays(path, ["x"]),
    "own arrays": read_npz,
    "own path": lambda path: open_own(path.rename(path.with_suffix(".npz")), root=path.parent),
    "regions": read_tensor_pickle,
    "arrays": read_array_pickle,
    "downloads": read_tensors,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize(
    "dump", [lambda bomb, path: path.write_bytes(pickle.dumps(bomb, 2)), torch.save]
)
def test_a_bomb_does_not_go_off(
    read: Callable[[Path], object], dump: Callable[[object, Path], object], tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    dump(Bomb(trace), tmp_path / "bomb.pt")
    with pytest.raises(UserError, match=r"bomb\.\w+:? must|bomb\.\w+: array"):
        read(tmp_path / "bomb.pt")
    assert not trace.exists()


def test_a_bomb_in_the_split_of_peptides_does_not_go_off(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path = tmp_path / "splits_random_stratified_peptide.pickle"
    arrays: dict[str, object] = {part: np.arange(2) for part in ("train", "val", "test")}
    # Among the arrays, inside of one, and as what an array is made of.
    inside = np.array([Bomb(trace)], dtype=object)
    for bomb in (arrays | {"test": Bomb(trace)}, arrays | {"test": inside}, {Bomb(trace): 1}):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            path.write_bytes(pickle.dumps(bomb, protocol))
            with pytest.raises(UserError, match=r"must hold arrays alone: it asks for \w+\.\w+"):
                read_split(tmp_path, 6)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["columns.safetensors", "about.json"])
def test_a_bomb_in_the_cache_does_not_go_off(name: str, tmp_path: Path) -> None:
    open_or_build(tmp_path, RECIPE, make_rings)
    file = entry(tmp_path) / name
    file.write_bytes(pickle.dumps(Bomb(tmp_path / "trace")).ljust(file.stat().st_size, b"."))
    with pytest.raises(UserError, match="is not a set that can be opened"):
        open_or_build(tmp_path, RECIPE, refuse_to_build)
    assert not (tmp_path / "trace").exists()
    (tmp_path / "own").mkdir()
    path = write_npz(tmp_path / "three.npz")
    open_own(path, root=tmp_path)
    (about,) = (tmp_path / "own").glob("*.json")
    about.write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    assert open_own(path, root=tmp_path).task.loss == "l1"
    assert not (tmp_path / "trace").exists()
