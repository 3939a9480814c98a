"""Pickles that hold tensors alone, read without running what a pickle asks for.

VOC and COCO superpixels are published as pickles. A pickle may name any function and have it
called; here the few that rebuild tensors and arrays are known by name and all others refused.
"""

import io
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphmamba.errors import UserError


def _load_storage(content: bytes) -> object:
    """What `torch.storage._load_from_bytes` does, but for the door it leaves open."""
    return torch.load(io.BytesIO(content), weights_only=True)


# NumPy has moved the module of its rebuilding functions; files name the old place or the new.
_REBUILD_ARRAY = np.ndarray.__reduce__(np.empty(0))[0]
_REBUILD_SCALAR = np.float64.__reduce__(np.float64())[0]
KNOWN = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): torch._utils._rebuild_tensor_v2,
    ("torch.storage", "_load_from_bytes"): _load_storage,
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): _REBUILD_ARRAY,
    ("numpy._core.multiarray", "_reconstruct"): _REBUILD_ARRAY,
    ("numpy.core.multiarray", "scalar"): _REBUILD_SCALAR,
    ("numpy._core.multiarray", "scalar"): _REBUILD_SCALAR,
}


class _TensorUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if (module, name) not in KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return KNOWN[module, name]


def read_tensor_pickle(path: Path) -> Any:
    """Read lists, numbers, tensors and arrays; refuse everything else."""
    try:
        with path.open("rb") as file:
            return _TensorUnpickler(file).load()
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError) as mistake:
        raise UserError(f"{path} must hold tensors alone: {mistake}") from mistake
