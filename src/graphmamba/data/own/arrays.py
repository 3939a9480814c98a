"""One `.npz` with the arrays of all graphs -> columns and a task; pickled objects are refused."""

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path

import numpy as np
import torch

from graphmamba.checks import check_is
from graphmamba.data.catalog import Level
from graphmamba.data.own.assemble import KNOWN, Arrays, assemble
from graphmamba.data.own.labels import LabelRule
from graphmamba.data.own.own_data import OwnData
from graphmamba.errors import UserError

NAMES = {"x_names": "x", "edge_attr_names": "edge_attr"}
"""Arrays of words, and whose columns they name."""
BROKEN = (OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, MemoryError)
"""What NumPy and the archive raise over files that are cut off, foreign or made to harm."""


def read_npz(
    path: Path | str, rule: LabelRule | None = None, level: Level | None = None
) -> OwnData:
    """Read a user's graphs; `docs/own-data.md` describes the arrays.

    Args:
        path: The file.
        rule: What labels are, where their values should not decide.
        level: What is labelled, where the number of labels should not decide.
    """
    check_is("rule", rule or LabelRule(), LabelRule)
    return assemble(load_arrays(Path(path)), rule or LabelRule(), level, str(path))


def load_arrays(path: Path, wanted: Collection[str] = KNOWN) -> Arrays:
    """Read the arrays of a file by their names; those that name columns must name each once.

    Args:
        path: The file.
        wanted: Which of the arrays that it may hold to read; others may be anything.
    """
    arrays = _load(path, (*wanted, *NAMES))
    tensors = {
        name: _tensor(path, name, values) for name, values in arrays.items() if name in wanted
    }
    for name, of in NAMES.items():
        if name in arrays:
            _check_names(path, name, arrays[name], tensors.get(of))
    return tensors


def array_features(path: Path) -> tuple[str, ...]:
    """Feature columns of a file in their order, as `nodes/NAME`; empty where it names none."""
    arrays = _load(path, tuple(NAMES))
    return tuple(
        f"{table}/{name}"
        for table, names in zip(("nodes", "edges"), NAMES, strict=True)
        for name in (arrays[names].tolist() if names in arrays else ())
    )


def _load(path: Path, names: Collection[str]) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise UserError(f"{path} must be there, got no such file")
    try:
        with zipfile.ZipFile(path):
            pass
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files if name in names}
            unknown = [name for name in file.files if name not in (*KNOWN, *NAMES)]
    except (zipfile.BadZipFile, zlib.error, SyntaxError, *BROKEN) as mistake:
        raise UserError(f"{path} must be a whole .npz file without objects: {mistake}") from mistake
    if unknown:
        known = ", ".join((*KNOWN, *NAMES))
        raise UserError(f"{path}: arrays must be among {known}, got {unknown[0]!r}")
    return arrays


def _check_names(path: Path, name: str, names: np.ndarray, of: torch.Tensor | None) -> None:
    columns = of.shape[-1] if of is not None and of.dim() else 0
    if names.dtype.kind != "U" or names.shape != (columns,) or len(set(names.tolist())) < columns:
        raise UserError(
            f"{path}: {name} must be {columns} different words, one for each column of "
            f"{NAMES[name]}, got {names.tolist()}"
        )


def _tensor(path: Path, name: str, values: np.ndarray) -> torch.Tensor:
    if values.dtype.kind not in "biuf":
        raise UserError(f"{path}: {name} must hold numbers, got {values.dtype}")
    # torch knows neither foreign byte orders nor most unsigned and extended types
    if values.dtype.kind == "u":
        if values.size and values.max() > np.iinfo(np.int64).max:
            raise UserError(f"{path}: {name} must be below 2**63, got {values.max()}")
        values = values.astype(np.int64)
    elif values.dtype.kind == "f":
        values = values.astype(np.float64)
    else:
        values = values.astype(values.dtype.newbyteorder("="))
    return torch.from_numpy(np.ascontiguousarray(values))
