"""Weights that were trained for the reader, by name."""

import os
from pathlib import Path

from graphmamba.checks import check_is
from graphmamba.errors import UserError
from graphmamba.parse import suggest
from graphmamba.training.folder import RunFolder
from graphmamba.training.trained import Trained, load

PACKAGED = Path(__file__).parents[1] / "weights"
"""Where an installed package has them."""
CLONED = Path(__file__).parents[3] / "weights"
"""Where they are in the repository, which a clone is run from."""
SUFFIX = ".safetensors"
MAIN = "/graph-mamba"
"""What the name of a benchmark alone leaves out."""


def weights_folder(folder: Path | str | None = None) -> Path:
    """Where weights are: the folder given, or $GRAPHMAMBA_WEIGHTS, or those of this copy."""
    own = PACKAGED if PACKAGED.is_dir() else CLONED
    return Path(folder or os.environ.get("GRAPHMAMBA_WEIGHTS") or own)


def load_pretrained(name: str, folder: Path | str | None = None) -> Trained:
    """Read a model that was trained for the reader, ready for use.

    Args:
        name: As in `find_pretrained`.
        folder: As in `find_pretrained`.
    """
    return load(find_pretrained(name, folder))


def find_pretrained(name: str, folder: Path | str | None = None) -> Path:
    """Find weights by the name of their experiment.

    Args:
        name: `BENCHMARK/MODEL`, or `BENCHMARK` alone for Graph-Mamba on it.
        folder: Where `NAME/best.safetensors` or `NAME.safetensors` is; None for the default place.
    """
    check_is("name", name, str)
    where = weights_folder(folder)
    for full in (name, f"{name}{MAIN}"):
        for place in (RunFolder(where / full).best, where / f"{full}{SUFFIX}"):
            if place.is_file():
                return place
    found = sorted(
        str(file.relative_to(where).with_suffix("")).removesuffix("/best")
        for file in where.rglob(f"*{SUFFIX}")
    )
    # a benchmark that is misspelt stands for Graph-Mamba on it
    found.sort(key=lambda each: not each.endswith(MAIN))
    raise UserError(f"no pretrained weights '{name}' in '{where}'; {suggest(name, found)}")
