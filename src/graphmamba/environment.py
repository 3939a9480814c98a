"""Machine, versions and commit, as stored with results."""

import os
import platform
import shutil
import subprocess
import sysconfig
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import torch

from graphmamba import __version__
from graphmamba.checks import check_choice
from graphmamba.errors import UserError

PACKAGES = ("torch", "triton", "numba", "numpy")


def resolve_device(name: str) -> torch.device:
    """Turn `auto`, `cpu` or `cuda` into a device that exists here and can be used."""
    check_choice("device", name, ("auto", "cpu", "cuda"))
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise UserError("device must be one that this machine has, got 'cuda'")
    if name == "cpu" or not has_cuda:
        return torch.device("cpu")
    _check_launchers()
    return torch.device("cuda")


def _check_launchers() -> None:
    """Reject a GPU where Triton has built nothing yet and cannot: its launchers are in C."""
    cache = Path(os.environ.get("TRITON_CACHE_DIR") or Path.home() / ".triton" / "cache")
    if find_spec("triton") is None or (cache.is_dir() and any(cache.iterdir())):
        return
    named = os.environ.get("CC")
    header = Path(sysconfig.get_path("include", "posix_prefix")) / "Python.h"
    if not any(shutil.which(each) for each in ([named] if named else ["gcc", "clang"])):
        told = f"'{named}', which $CC names, is not there" if named else "there is no gcc, no clang"
    elif not header.is_file():
        told = f"'{header}' of Python's headers is missing"
    else:
        return
    raise UserError(
        f"device 'cuda' needs a C compiler and Python's headers, and {told}: install them, on "
        "Debian and Ubuntu as gcc and python3-dev, or choose device 'cpu'"
    )


def describe(device: torch.device, commit: str | None = None) -> dict[str, object]:
    """Describe what was measured where; `commit` speaks for a copy without its history."""
    is_cuda = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if is_cuda else _cpu_name(),
        "threads": None if is_cuda else torch.get_num_threads(),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "graphmamba": __version__,
        **{name: _version(name) for name in PACKAGES},
        "cuda": torch.version.cuda,
        "commit": commit or _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _commit() -> str | None:
    """Name the commit of this checkout; `-dirty` where files differ from it.

    A copy without its history, or with an older one, takes its commit from $GRAPHMAMBA_COMMIT.
    """
    root = Path(__file__).parents[2]
    told = os.environ.get("GRAPHMAMBA_COMMIT")
    # An installed copy may lie inside somebody else's repository.
    if told or not (root / ".git").exists():
        return told or None
    command = ["git", "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
