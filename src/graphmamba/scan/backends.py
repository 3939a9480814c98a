"""Which implementation runs, and a refusal for one that cannot."""

import os
from importlib.util import find_spec

import torch

from graphmamba.scan.options import Backend

_PACKAGES: dict[Backend, str] = {"cpu": "numba", "fused": "triton"}

# Looked up once and without importing them: tracing cannot look into the import system.
_FOUND = {backend: find_spec(package) is not None for backend, package in _PACKAGES.items()}


def available_backends(device: torch.device) -> tuple[Backend, ...]:
    """Names of the backends that can work on tensors of this device.

    Example:
        >>> import torch
        >>> "reference" in available_backends(torch.device("cpu"))
        True
    """
    usable = (name for name in _PACKAGES if _FOUND[name] and _runs_on(name, device))
    return ("reference", *usable)


def choose_backend(backend: Backend, device: torch.device) -> str:
    """Name of the backend to run; one that was asked for and is missing raises."""
    if backend not in {"auto", "reference", *_PACKAGES}:
        raise ValueError(
            f"backend must be one of 'auto', 'reference', 'cpu', 'fused', got {backend!r}"
        )
    if backend == "reference":
        return backend
    name = ("fused" if device.type == "cuda" else "cpu") if backend == "auto" else backend
    if not _runs_on(name, device):
        place = "on the CPU" if name == "cpu" else "on a GPU (on the CPU with TRITON_INTERPRET=1)"
        raise ValueError(
            f"backend {name!r} needs tensors {place}, got device {device}: move them, "
            "or pass backend='reference'"
        )
    if not _FOUND[name]:
        package = _PACKAGES[name]
        raise ImportError(
            f"backend {name!r} needs the package {package}, which is not installed: "
            f"pip install {package}, or pass backend='reference'"
        )
    return name


def _runs_on(name: str, device: torch.device) -> bool:
    if device.type == "cuda":
        return name == "fused"
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return device.type == "cpu" and (name == "cpu" or is_interpreted)
