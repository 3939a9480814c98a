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

# Looked up once and without importing it: tracing cannot look into the import system.
_HAS_TRITON = find_spec("triton") is not None


def can_fuse(tensor: Tensor) -> bool:
    """Tell whether kernels can read a tensor: on a GPU, with Triton, and no graph is compiled."""
    return tensor.is_cuda and _HAS_TRITON and not torch.compiler.is_compiling()


def can_fuse_single(*tensors: Tensor) -> bool:
    """Tell that of kernels for float32 alone, which leave it to PyTorch where autocast chooses."""
    is_single = all(each.dtype == torch.float32 for each in tensors)
    return is_single and can_fuse(tensors[0]) and not torch.is_autocast_enabled("cuda")


def may_round(tensor: Tensor) -> bool:
    """Tell whether products may be rounded to TF32; the interpreter, on a CPU, does not round."""
    return not tensor.is_cuda or torch.backends.cuda.matmul.fp32_precision == "tf32"


def is_fused_single(backend: FusedBackend, *tensors: Tensor) -> bool:
    """Tell whether kernels for float32 alone run; refuse them where they are asked for others."""
    check_choice("backend", backend, get_args(FusedBackend))
    if backend == "auto":
        return can_fuse_single(*tensors)
    if backend == "fused":
        _refuse_others(*tensors)
    return backend == "fused"


def _refuse_others(*tensors: Tensor) -> None:
    is_interpreted = os.environ.get("TRITON_INTERPRET") == "1"
    for each in tensors:
        if each.dtype != torch.float32:
            raise UserError(f"backend must be 'reference' for {each.dtype}, got 'fused'")
        if not (each.is_cuda or is_interpreted):
            raise UserError(f"backend must be 'reference' on {each.device}, got 'fused'")
