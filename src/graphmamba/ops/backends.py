"""Choice of the backend: which implementation of an operator runs."""

import os
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from graphmamba.checks import check_choice
from graphmamba.errors import UserError

# `auto` is `triton` for tensors on a GPU and `cpu` (Numba) for the others.
Backend = Literal["auto", "reference", "cpu", "triton"]
# For operators without a CPU form: `auto` is `triton` on a GPU, and `reference` elsewhere and under
# torch.compile.
TritonBackend = Literal["auto", "reference", "triton"]
TRITON_TYPES = torch.float32, torch.bfloat16, torch.float16  # inputs; kernels compute in float32

_PACKAGES: dict[Backend, str] = {"cpu": "numba", "triton": "triton"}

# At import, since torch.compile cannot trace find_spec.
_FOUND = {backend: find_spec(package) is not None for backend, package in _PACKAGES.items()}


def available_backends(device: torch.device) -> tuple[Backend, ...]:
    """Names of the backends that can run on tensors of this device.

    Example:
        >>> import torch
        >>> "reference" in available_backends(torch.device("cpu"))
        True
    """
    usable = (name for name in _PACKAGES if _FOUND[name] and _runs_on(name, device))
    return ("reference", *usable)


def choose_backend(backend: Backend, device: torch.device, argument: str = "backend") -> Backend:
    """Name of the backend to run; raises if it cannot run.

    Args:
        backend: Requested backend.
        device: Device of the tensors.
        argument: Name of the option in messages.
    """
    check_choice(argument, backend, get_args(Backend))
    if backend == "reference":
        return backend
    name = _own(device) if backend == "auto" else backend
    if not _runs_on(name, device):
        usable = [each for each in get_args(Backend) if _runs_on(each, device)]
        listed = ", ".join(map(repr, usable))
        place = "the CPU" if name == "cpu" else "a GPU, or TRITON_INTERPRET=1"
        raise UserError(
            f"{argument} must be one of {listed} for tensors on {device}, got {backend!r}: "
            f"{name!r} needs {place}"
        )
    if not _FOUND[name]:
        package = _PACKAGES[name]
        raise ImportError(
            f"backend {name!r} needs the package {package}, which is not installed: "
            f"pip install {package}, or pass backend='reference'"
        )
    return name


def has_triton(rows: Tensor) -> bool:
    """Whether Triton kernels can run on these rows."""
    return rows.is_cuda and _FOUND["triton"] and rows.dtype in TRITON_TYPES


def uses_triton(backend: TritonBackend, device: torch.device) -> bool:
    """Whether Triton kernels run on tensors of this device."""
    check_choice("backend", backend, get_args(TritonBackend))
    if backend == "auto":
        is_compiled = torch.compiler.is_compiling()
        return device.type == "cuda" and _FOUND["triton"] and not is_compiled
    if backend == "triton" and not _runs_on("triton", device):
        raise UserError(
            f"backend must be 'reference' for tensors on {device}, got 'triton': "
            "Triton needs a GPU, or TRITON_INTERPRET=1"
        )
    return backend == "triton"


def _own(device: torch.device) -> Backend:
    return "triton" if device.type == "cuda" else "cpu"


def _runs_on(name: Backend, device: torch.device) -> bool:
    if name == "reference":
        return True
    if name == "auto":
        return _runs_on(_own(device), device)
    if device.type == "cuda":
        return name == "triton"
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    return device.type == "cpu" and (name == "cpu" or is_interpreted)
