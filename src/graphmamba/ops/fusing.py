"""When Triton kernels take the place of PyTorch's own operations."""

import os
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from graphmamba.checks import check_choice
from graphmamba.errors import UserError

FusedBackend = Literal["auto", "reference", "fused"]
"""`auto` is `fused` (Triton) on a GPU, but where a graph is compiled, and `reference` elsewhere."""

FUSED_TYPES = torch.float32, torch.bfloat16, torch.float16
"""What kernels take that compute in float32 whatever they read."""
SINGLE = (torch.float32,)
"""What those take that leave shorter types to PyTorch."""

Types = tuple[torch.dtype, ...]

# Looked up once and without importing it: tracing cannot look into the import system.
_HAS_TRITON = find_spec("triton") is not None


def can_fuse(tensor: Tensor) -> bool:
    """Tell whether kernels can read a tensor: on a GPU, with Triton, and no graph is compiled."""
    return tensor.is_cuda and _HAS_TRITON and not torch.compiler.is_compiling()


def can_fuse_single(*tensors: Tensor) -> bool:
    """Tell that of kernels for float32 alone, which leave it to PyTorch where autocast chooses."""
    is_single = all(each.dtype in SINGLE for each in tensors)
    return is_single and can_fuse(tensors[0]) and not torch.is_autocast_enabled("cuda")


def may_round(tensor: Tensor) -> bool:
    """Tell whether products may be rounded to TF32; the interpreter, on a CPU, does not round."""
    return not tensor.is_cuda or torch.backends.cuda.matmul.fp32_precision == "tf32"


def is_fused(
    backend: FusedBackend, *tensors: Tensor | None, types: Types | None = FUSED_TYPES
) -> bool:
    """Tell whether kernels run; refuse them where they are asked for what they cannot do.

    Args:
        backend: What was asked for.
        tensors: What they would read, the first one always there.
        types: What they can read; None where it does not matter.
    """
    check_choice("backend", backend, get_args(FusedBackend))
    there = [each for each in tensors if each is not None]
    if backend == "auto":
        return can_fuse(there[0]) and why_unfused(*there, types=types) is None
    if backend == "fused" and (reason := why_unfused(*there, types=types)):
        raise UserError(f"backend must be 'reference' {reason}, got 'fused'")
    return backend == "fused"


def is_fused_single(backend: FusedBackend, *tensors: Tensor) -> bool:
    """Tell that of kernels for float32 alone."""
    if backend == "auto":
        return can_fuse_single(*tensors)
    return is_fused(backend, *tensors, types=SINGLE)


def why_unfused(*tensors: Tensor, types: Types | None = FUSED_TYPES) -> str | None:
    """Say for what, or where, kernels cannot run; None where they can."""
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    for each in tensors:
        if types is not None and each.dtype not in types:
            return f"for {each.dtype}"
        if not (each.is_cuda or is_interpreted):
            return f"on {each.device}"
    return None
