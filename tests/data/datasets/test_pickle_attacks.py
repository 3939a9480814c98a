"""Pickles forged by hand: other opcodes, states set on what is known, archives inside of them."""

import io
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmamba.data.datasets import safe_pickle
from graphmamba.data.datasets.download import read_fetched
from graphmamba.data.datasets.safe_pickle import read_array_pickle, read_tensor_pickle
from graphmamba.errors import UserError

RAW = b"ctorch.storage\n_load_from_bytes\n"
FUNCTION = b"ctorch._utils\n_rebuild_tensor_v2\n"
FORGED = {
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
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_other_opcodes_are_rejected(forged: bytes, tmp_path: Path) -> None:
    path = tmp_path / "forged.pickle"
    path.write_bytes(b"\x80\x04" + forged + b".")
    before = {name: getattr(each, "__defaults__", None) for name, each in vars(safe_pickle).items()}
    for read in (read_array_pickle, read_tensor_pickle):
        with pytest.raises(UserError, match=r"forged\.pickle must be a pickle"):
            read(path)
    assert before == {
        name: getattr(each, "__defaults__", None) for name, each in vars(safe_pickle).items()
    }


class Built:
    """Pickled as a tensor on which a state is set."""

    def __init__(self, state: object) -> None:
        self.state = state

    def __reduce__(self) -> tuple[Any, ...]:
        rebuild, (storage, offset, *_) = torch.arange(8.0).__reduce_ex__(2)
        given = (storage, offset, (8,), (1,), False, OrderedDict())
        return rebuild, given, self.state(storage) if callable(self.state) else self.state


@pytest.mark.parametrize(
    "state",
    [
        lambda storage: (storage, 0, (10**6,), (1,)),
        lambda storage: (storage, 4, (8,), (1,)),
        (False, None, OrderedDict()),
        {"requires_grad": True},
    ],
    ids=["longer", "further on", "of a variable", "of a mapping"],
)
def test_no_state_is_set_on_a_tensor(state: object, tmp_path: Path) -> None:
    path = tmp_path / "forged.pickle"
    path.write_bytes(pickle.dumps(Built(state)))
    with pytest.raises(UserError, match=r"forged\.pickle must be a pickle of tensors alone"):
        read_tensor_pickle(path)


class Trace:
    """Leaves a trace where it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.trace,)


class Nested:
    """Pickled as what an archive inside of a pickle holds."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return torch.storage._load_from_bytes, (self.content,)


def test_archives_inside_of_archives_run_nothing(tmp_path: Path) -> None:
    path, trace = tmp_path / "forged.pickle", tmp_path / "trace"
    inner: list[bytes] = [pickle.dumps(Trace(trace))]
    for is_zipped in (True, False):
        saved = io.BytesIO()
        torch.save(Trace(trace), saved, _use_new_zipfile_serialization=is_zipped)
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
    with pytest.raises(
        UserError, match=r"must be a file of the graphs of|must be a whole file of tensors"
    ):
        read_fetched("peptides-func", [folder / f"{part}.pt" for part in ("train", "val", "test")])
