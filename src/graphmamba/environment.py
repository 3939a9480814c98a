"""Which machine, versions and commit a measurement belongs to."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from graphmamba import __version__
from graphmamba.checks import check_choice
from graphmamba.errors import UserError

PACKAGES = ("torch", "triton", "numba", "numpy")


def resolve_device(name: str) -> torch.device:
    """Turn `auto`, `cpu` or `cuda` into a device that exists here."""
    check_choice("device", name, ("auto", "cpu", "cuda"))
    has_cuda = torch.cuda.is_available()
    if name == "cuda" and not has_cuda:
        raise UserError("device must be one that this machine has, got 'cuda'")
    return torch.device(name if name != "auto" else "cuda" if has_cuda else "cpu")


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

    A copy without its history, or with an older one, is told its commit by $GRAPHMAMBA_COMMIT.
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
