"""A file from a stranger runs no code: no pickle is ever loaded."""

import ast
import io
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmamba.data.cache import open_or_build
from graphmamba.data.custom import open_custom, read_npz
from graphmamba.data.datasets import safe_pickle
from graphmamba.data.datasets.download import read_fetched, read_tensors
from graphmamba.data.datasets.files import read_arrays
from graphmamba.data.datasets.peptides import read_split
from graphmamba.data.datasets.safe_pickle import read_array_pickle, read_tensor_pickle
from graphmamba.errors import UserError
from tests.data.custom.test_open import write_npz
from tests.data.test_cache import RECIPE, entry, make_rings, reject_to_build

ROOT = Path(__file__).parents[3] / "src" / "graphmamba"
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
    """Whether YAML is read by a loader that makes plain data and nothing else."""
    loaders = [ast.unparse(each) for each in call.args[1:]]
    return loaders in (["yaml.BaseLoader"], ["_loader()"])


def test_no_module_can_load_a_pickle() -> None:
    files = sorted(ROOT.rglob("*.py"))
    assert files
    for file in files:
        assert not [ast.unparse(call) for call in calls_in(file) if unsafe(call)], file
        assert not imports_of(file) & FOREIGN, file


READERS: dict[str, Callable[[Path], object]] = {
    "raw files": lambda path: read_arrays(path, ["x"]),
    "own arrays": read_npz,
    "own path": lambda path: open_custom(path.rename(path.with_suffix(".npz")), None, path.parent),
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
            with pytest.raises(UserError, match=r"a pickle of arrays alone: it asks for"):
                read_split(tmp_path, 6)
    assert not trace.exists()


@pytest.mark.parametrize("name", ["columns.safetensors", "about.json"])
def test_a_bomb_in_the_cache_does_not_go_off(name: str, tmp_path: Path) -> None:
    open_or_build(tmp_path, RECIPE, make_rings)
    file = entry(tmp_path) / name
    file.write_bytes(pickle.dumps(Bomb(tmp_path / "trace")).ljust(file.stat().st_size, b"."))
    with pytest.raises(UserError, match="is not a set that can be opened"):
        open_or_build(tmp_path, RECIPE, reject_to_build)
    assert not (tmp_path / "trace").exists()
    (tmp_path / "own").mkdir()
    path = write_npz(tmp_path / "three.npz")
    open_custom(path, data_dir=tmp_path)
    (about,) = (tmp_path / "own").glob("*.json")
    about.write_bytes(pickle.dumps(Bomb(tmp_path / "trace")))
    assert open_custom(path, data_dir=tmp_path).task.loss == "l1"
    assert not (tmp_path / "trace").exists()


RAW = b"ctorch.storage\n_load_from_bytes\n"
FUNCTION = b"ctorch._utils\n_rebuild_tensor_v2\n"
OBJECT = b"cnumpy\ndtype\nX\x01\x00\x00\x00O\x85R"
FLOAT = b"cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R"
EMPTY = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\x00\x85U\x01btR"
POINTER = b"B\x08\x00\x00\x00AAAAAAAA"
FORGED = {
    "an array of objects": b"cnumpy\nndarray\n(K\x01\x85" + OBJECT + POINTER + b"tR",
    "an array that is called": b"cnumpy\nndarray\n(K\x01\x85" + FLOAT + POINTER + b"tR",
    "a state of objects": EMPTY + b"(K\x01K\x01\x85" + OBJECT + b"\x89" + POINTER + b"tb",
    "a state too long": EMPTY + b"(K\x01M\x00\x10\x85" + FLOAT + b"\x89" + POINTER + b"tb",
    "a dtype with a state of objects": FLOAT
    + b"(K\x03U\x01|NNNJ\x08\x00\x00\x00K\x01K\x3ftb0"
    + EMPTY
    + b"(K\x01K\x02\x85X\x01\x00\x00\x00f\x89" + POINTER + b"tb",
    "a buffer of objects": b"cnumpy.core.numeric\n_frombuffer\n(" + POINTER + OBJECT
    + b"K\x01\x85X\x01\x00\x00\x00CtR",
    "a scalar of objects": b"cnumpy.core.multiarray\nscalar\n(" + OBJECT + POINTER + b"tR",
    "an extension": b"\x82\x01",
    "a persistent object": b"X\x01\x00\x00\x00aQ",
    "a named persistent object": b"Pa\n",
    "an instance": b"(ios\nsystem\n",
    "an object": b"(cos\nsystem\nX\x04\x00\x00\x00trueo",
    "a dotted name": b"X\x05\x00\x00\x00numpyX\x0b\x00\x00\x00ndarray.mro\x93",
    "a builtin": b"c__builtin__\neval\nX\x01\x00\x00\x001\x85R",
    "defaults of a function": FUNCTION + b"N}X\x0c\x00\x00\x00__defaults__K\x01\x85s\x86b",
    "code of a function": FUNCTION + b"N}X\x08\x00\x00\x00__code__K\x01s\x86b",
    "a dtype without its beginning": b"cnumpy\ndtype\n)\x81(K\x03X\x01\x00\x00\x00<tb",
    "a list that grows under its array": b"\x96\x08\x00\x00\x00\x00\x00\x00\x00AAAAAAAAq\x000"
    b"cnumpy.core.numeric\n_frombuffer\n(h\x00cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85RK\x01\x85"
    b"X\x01\x00\x00\x00CtRq\x010h\x00(K\x01K\x02e",
    "a huge text": b"\x8d\xff\xff\xff\xff\xff\xff\xff\x0fAAAA",
    "huge bytes": b"\x96\xff\xff\xff\xff\xff\xff\xff\x7fAAAA",
    "no bytes": RAW + b"X\x01\x00\x00\x00a\x85R",
    "bytes of nothing": RAW + b"C\x04AAAA\x85R",
    "an empty stack": b"0",
    "a frame cut short": b"\x95\xff\x00\x00\x00\x00\x00\x00\x00K\x01",
    "a memo that is empty": b"h\x05",
}  # fmt: skip
"""Pickles that NumPy or the unpickler would read, and crash on or trust."""


@pytest.mark.parametrize("read", [read_tensor_pickle, read_array_pickle])
@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_pickle_is_rejected(
    forged: bytes, read: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "forged.pickle"
    path.write_bytes(b"\x80\x04" + forged + b".")
    before = {name: getattr(each, "__defaults__", None) for name, each in vars(safe_pickle).items()}
    with pytest.raises(UserError, match=r"forged\.pickle must be a pickle"):
        read(path)
    assert before == {
        name: getattr(each, "__defaults__", None) for name, each in vars(safe_pickle).items()
    }


class Built:
    """Pickled as a tensor of eight numbers with another size and stride, or with a state."""

    def __init__(self, size: object = (8,), stride: object = (1,), state: object = None) -> None:
        self.given, self.state = (size, stride), state

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (storage, offset, *_) = torch.arange(8.0).__reduce_ex__(2)
        state = self.state(storage) if callable(self.state) else self.state
        return rebuild, (storage, offset, *self.given, False, OrderedDict()), state


@pytest.mark.parametrize(
    "forged",
    [
        Built((9,), (1,)),
        Built((2,), (8,)),
        Built((2,), (-1,)),
        Built((2, 2), (1,)),
        Built(state=lambda storage: (storage, 0, (10**6,), (1,))),
        Built(state=lambda storage: (storage, 4, (8,), (1,))),
        Built(state=(False, None, OrderedDict())),
        Built(state={"requires_grad": True}),
    ],
    ids=["long", "far", "negative", "strides", "longer", "further on", "variable", "mapping"],
)
def test_a_tensor_outside_of_its_storage_or_with_a_state_is_rejected(
    forged: Built, tmp_path: Path
) -> None:
    path = tmp_path / "forged.pickle"
    path.write_bytes(pickle.dumps(forged))
    with pytest.raises(UserError, match=r"forged\.pickle must be a pickle of tensors alone"):
        read_tensor_pickle(path)


@pytest.mark.parametrize("protocol", range(3, pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_and_tensors_come_as_they_were(protocol: int, tmp_path: Path) -> None:
    arrays = [
        np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6, dtype=np.uint8).reshape(2, 3)),
        np.zeros((0, 4), np.float32), np.arange(3, dtype=">i8"), np.array(7), np.array([True]),
    ]  # fmt: skip
    numbers = [np.float64(0.5), np.int64(3)]
    path = tmp_path / "arrays.pickle"
    path.write_bytes(pickle.dumps((arrays, numbers), protocol))
    found, scalars = read_array_pickle(path)
    assert scalars == numbers
    for before, after in zip(arrays, found, strict=True):
        assert (before.dtype.kind, before.itemsize) == (after.dtype.kind, after.itemsize)
        assert np.array_equal(before, after)
    tensors = [torch.arange(6.0).reshape(2, 3).t(), torch.empty(0, 3), torch.arange(3)[1:]]
    path.write_bytes(pickle.dumps(tensors, protocol))
    for tensor, read in zip(tensors, read_tensor_pickle(path), strict=True):
        assert torch.equal(tensor, read)


class Nested:
    """Pickled as what an archive inside of a pickle holds."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return torch.storage._load_from_bytes, (self.content,)


def test_archives_inside_of_archives_run_nothing(tmp_path: Path) -> None:
    path, trace = tmp_path / "forged.pickle", tmp_path / "trace"
    inner: list[bytes] = [pickle.dumps(Bomb(trace))]
    for is_zipped in (True, False):
        saved = io.BytesIO()
        torch.save(Bomb(trace), saved, _use_new_zipfile_serialization=is_zipped)
        inner.append(saved.getvalue())
    # an archive within an archive within a pickle
    inner += [pickle.dumps(Nested(each)) for each in inner]
    for content in inner:
        path.write_bytes(pickle.dumps([Nested(content)]))
        with pytest.raises(UserError, match=r"forged\.pickle must be a pickle of tensors alone"):
            read_tensor_pickle(path)
    assert not trace.exists()


def test_classes_that_others_have_admitted_are_not_made(tmp_path: Path) -> None:
    class Foreign:
        pass

    Foreign.__qualname__, Foreign.__module__ = "Foreign", __name__
    globals()["Foreign"] = Foreign
    saved = io.BytesIO()
    torch.save(Foreign(), saved)
    with torch.serialization.safe_globals([Foreign]):
        assert isinstance(torch.load(io.BytesIO(saved.getvalue()), weights_only=True), Foreign)
        (tmp_path / "a.pickle").write_bytes(pickle.dumps(Nested(saved.getvalue())))
        with pytest.raises(UserError, match="must be a pickle of tensors alone"):
            read_tensor_pickle(tmp_path / "a.pickle")
        assert Foreign in torch.serialization.get_safe_globals()


def test_tensors_without_numbers_are_rejected(tmp_path: Path) -> None:
    inner = io.BytesIO()
    with warnings.catch_warnings():
        # torch has no type of a storage for it
        warnings.simplefilter("ignore")
        torch.save(torch.ones(3, device="meta"), inner)
    folder = tmp_path / "raw"
    folder.mkdir()
    for part in ("train", "val", "test"):
        (folder / f"{part}.pt").write_bytes(inner.getvalue())
    with pytest.raises(UserError, match=r"must be a (file of the graphs of|whole file of tensors)"):
        read_fetched("peptides-func", [folder / f"{part}.pt" for part in ("train", "val", "test")])
