"""Pickles that hold tensors or arrays alone, read without running what a pickle asks for.

VOC and COCO superpixels and the split of the peptides are published as pickles. A pickle may name
any function and have it called; here the few that rebuild tensors and arrays are known by name and
all others refused.
"""

import io
import pickle
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch

from graphmamba.errors import UserError

Known = Mapping[tuple[str, str], object]


def _load_storage(content: bytes) -> object:
    """What `torch.storage._load_from_bytes` does, but for the door it leaves open."""
    return torch.load(io.BytesIO(content), weights_only=True)


# NumPy has moved the module of its rebuilding functions; files name the old place or the new.
_REBUILD_ARRAY = np.ndarray.__reduce__(np.empty(0))[0]
_REBUILD_BUFFER = np.ndarray.__reduce_ex__(np.empty(0), 5)[0]
_REBUILD_SCALAR = np.float64.__reduce__(np.float64())[0]
ARRAYS: Known = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _REBUILD_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _REBUILD_ARRAY,
    ("numpy.core.numeric", "_frombuffer"): _REBUILD_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): _REBUILD_BUFFER,
    ("numpy.core.multiarray", "scalar"): _REBUILD_SCALAR,
    ("numpy._core.multiarray", "scalar"): _REBUILD_SCALAR,
}
TENSORS: Known = {
    **ARRAYS,
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch.storage", "_load_from_bytes"): _load_storage,
}
MISTAKES = (
    pickle.UnpicklingError, EOFError, AttributeError, IndexError, KeyError, TypeError, ValueError,
    RuntimeError, OverflowError,
)  # fmt: skip
"""What an unpickler raises on bytes that are no pickle, or that call what is known wrongly."""


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: IO[bytes], known: Known) -> None:
        super().__init__(file)
        self.known = known

    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self.known[module, name]


def read_tensor_pickle(path: Path) -> Any:
    """Read lists, numbers, tensors and arrays; refuse everything else."""
    return _read(path, TENSORS, "tensors")


def read_array_pickle(path: Path) -> Any:
    """Read lists, numbers and NumPy arrays; refuse everything else, tensors too."""
    return _read(path, ARRAYS, "arrays")


def _read(path: Path, known: Known, kind: str) -> Any:
    try:
        with path.open("rb") as file:
            return _Unpickler(file, known).load()
    except MISTAKES as mistake:
        raise UserError(f"{path} must hold {kind} alone: {mistake}") from mistake
