"""Tensors in files that are whole or not there, with a description in JSON."""

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.whole_files import write_whole

META = "graphmamba"
"""Key of a safetensors file's header under which our JSON is."""


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, object]) -> None:
    """Write tensors with a JSON description in the header, whole."""
    from safetensors.torch import save

    # several names for one storage, and views, are more than the format knows
    apart = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}

    def write(partial: Path) -> None:
        partial.write_bytes(save(apart, metadata={META: json.dumps(about)}))

    write_whole(path, write)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, object]]:
    """Read what `write_tensors` wrote; never runs code of the file."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"'{path}' must be a file, and there is none")
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            about = json.loads((file.metadata() or {})[META])
    except (SafetensorError, OSError, ValueError, RecursionError) as mistake:
        raise UserError(f"'{path}' is corrupt or no safetensors file: {mistake}") from mistake
    except KeyError as mistake:
        raise UserError(f"'{path}' was not written by graphmamba: its header says nothing") from (
            mistake
        )
    if not isinstance(about, dict):
        raise UserError(f"'{path}' must be described by keys and values, got {about!r}")
    return tensors, about
