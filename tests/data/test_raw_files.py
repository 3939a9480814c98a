"""Files that are not what they should be."""

from pathlib import Path

import numpy as np
import pytest

from graphmamba.data.raw_files import find_file, read_arrays
from graphmamba.errors import UserError
from tests.helpers.raw_files import spoil, write_arrays


def test_arrays_are_read_packed_and_plain(tmp_path: Path) -> None:
    for name in ("a.npz", "a.npz.xz"):
        write_arrays(tmp_path / name, row=np.arange(3))
        assert read_arrays(tmp_path / name, ["row"])["row"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["a.npz", "a.npz.xz"])
@pytest.mark.parametrize("kept", [0, 40, -20])
def test_a_cut_file_is_named(tmp_path: Path, name: str, kept: int) -> None:
    path = tmp_path / name
    write_arrays(path, row=np.arange(300))
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(UserError, match=f"{name} must be a whole .npz file"):
        read_arrays(path, ["row"])


def test_spoilt_bytes_are_told_with_the_name(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, row=np.arange(5000) ** 2 % 777)
    spoil(path)
    with pytest.raises(UserError, match=r"a\.npz must be a whole \.npz file"):
        read_arrays(path, ["row"])


def test_objects_are_refused(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", row=np.array([{}], dtype=object))
    with pytest.raises(UserError, match="without objects"):
        read_arrays(tmp_path / "a.npz", ["row"])


def test_missing_arrays_and_files_are_named(tmp_path: Path) -> None:
    write_arrays(tmp_path / "a.npz", row=np.arange(3))
    with pytest.raises(UserError, match="must hold the array 'label', got row"):
        read_arrays(tmp_path / "a.npz", ["row", "label"])
    with pytest.raises(UserError, match=r"must hold b\.npz\.xz or b\.npz, got no such file"):
        find_file(tmp_path, "b.npz.xz", "b.npz")
