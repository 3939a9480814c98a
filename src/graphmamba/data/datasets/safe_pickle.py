"""Reads pickles of tensors and arrays without running code.

VOC and COCO superpixels and the split of the peptides are published as pickles. A pickle may name
any function and have it called. Here only the few that rebuild tensors and arrays are allowed, each
replaced by a function that checks its arguments; all others are rejected.
"""

import io
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from graphmamba.data.datasets.files import reading

Known = Mapping[tuple[str, str], object]


class _Function:
    """What a pickle may call, but set no state on, which of a function would last."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *given: Any) -> Any:
        return self._call(*given)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it sets a state on a function")


class _Kind:
    """A dtype of plain numbers, as a pickle makes it: by its name, then by a state."""

    def __init__(self, name: Any, *_: Any) -> None:
        dtype = np.dtype(str(name))
        if dtype.kind not in "biufc":
            raise pickle.UnpicklingError(f"it asks for an array of {dtype}, which is no number")
        self.dtype = dtype

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, and nothing else that plain numbers have)
        self.dtype = self.dtype.newbyteorder(state[1])


class _Array(np.ndarray):
    """An array that checks the state it is given, which NumPy's own trusts."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        found = _from_buffer(content, kind, shape, "F" if is_fortran else "C")
        checked: Any = (1, found.shape, found.dtype, bool(is_fortran), content)
        super().__setstate__(checked)


class _Tensor(torch.Tensor):
    """A tensor that takes no state, by which torch's own would grow beyond what was written."""

    # what is computed of it is a tensor like all others
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("it sets a state on a tensor")


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Array:
    if not isinstance(content, bytes | bytearray) or not isinstance(kind, _Kind):
        raise pickle.UnpicklingError("an array has no bytes or no dtype")
    values = np.frombuffer(content, kind.dtype)
    return values.reshape(_sizes(shape), order=order).view(_Array)


def _sizes(shape: Any) -> tuple[int, ...]:
    sizes = tuple(map(int, (shape,) if isinstance(shape, int) else shape))
    if min(sizes, default=0) < 0:
        raise pickle.UnpicklingError(f"an array has the shape {sizes}")
    return sizes


def _empty_array(*_: Any) -> _Array:
    """Make what the array's state is then set on."""
    return np.empty(0, np.uint8).view(_Array)


def _scalar(kind: Any, content: Any) -> Any:
    return _from_buffer(content, kind, (), "C")[()]


def _load_storage(content: Any) -> Any:
    """What `torch.storage._load_from_bytes` does, but never unpickling."""
    return load_tensors(io.BytesIO(content))


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *_: Any) -> torch.Tensor:
    """View a storage as a tensor, none of whose elements lies outside of it."""
    if not isinstance(storage, torch.storage.TypedStorage):
        raise pickle.UnpicklingError("a tensor has no storage")
    # a storage that is elsewhere than in the CPU's memory is rejected here
    found = torch.empty(0, dtype=storage.dtype).set_(storage)
    numbers = (offset, *size, *stride)
    if min(numbers) < 0 or len(size) != len(stride):
        raise pickle.UnpicklingError("a tensor has a negative size or stride")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if all(size) and last >= len(found):
        raise pickle.UnpicklingError(f"a tensor of size {size} lies outside of its storage")
    return found.set_(storage, offset, size, stride).as_subclass(_Tensor)


_ARRAY_TYPE = object()
"""Stands for `numpy.ndarray`, which pickles name as an argument and must not call."""
# NumPy has moved the module of its rebuilding functions; files name the old place or the new.
ARRAYS: Known = {
    ("numpy", "dtype"): _Kind,
    ("numpy", "ndarray"): _ARRAY_TYPE,
    ("numpy.core.multiarray", "_reconstruct"): _Function(_empty_array),
    ("numpy._core.multiarray", "_reconstruct"): _Function(_empty_array),
    ("numpy.core.numeric", "_frombuffer"): _Function(_from_buffer),
    ("numpy._core.numeric", "_frombuffer"): _Function(_from_buffer),
    ("numpy.core.multiarray", "scalar"): _Function(_scalar),
    ("numpy._core.multiarray", "scalar"): _Function(_scalar),
}
TENSORS: Known = {
    **ARRAYS,
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _Function(_tensor),
    ("torch.storage", "_load_from_bytes"): _Function(_load_storage),
}


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], known: Known) -> None:
        super().__init__(file)
        self.known = known

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self.known[module, name]


def read_tensor_pickle(path: Path) -> Any:
    """Read lists, numbers, tensors and arrays; reject everything else."""
    return _read(path, TENSORS, "tensors")


def read_array_pickle(path: Path) -> Any:
    """Read lists, numbers and NumPy arrays; reject everything else, tensors too."""
    return _read(path, ARRAYS, "arrays")


def _read(path: Path, known: Known, kind: str) -> Any:
    # bytes that are no pickle, or that call what is known wrongly, end in any way there is
    with reading(path, f"a pickle of {kind} alone"), path.open("rb") as file:
        return _Unpickler(file, known).load()


def load_tensors(file: io.BytesIO | Path) -> Any:
    """Read what `torch.save` wrote, onto the CPU; nothing but tensors and plain containers.

    PyG admits its own classes when it is imported; none of them is made here.
    """
    others = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    try:
        return torch.load(file, weights_only=True, map_location="cpu")
    finally:
        torch.serialization.add_safe_globals(others)
