"""Kernels run for what they were made for, and PyTorch's own operations for all else."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from graphmamba import fusing
from graphmamba.errors import UserError
from graphmamba.fusing import can_fuse, can_fuse_single, is_fused_single
from tests.helpers.typecheck import typecheck_off


@pytest.fixture
def on_gpu() -> Iterator[Tensor]:
    """A tensor that says it is on a GPU, whether or not there is one, as is Triton."""
    with FakeTensorMode(), patch.object(fusing, "_HAS_TRITON", True):
        yield torch.empty(2, 3, device="cuda")


def test_kernels_run_on_a_gpu(on_gpu: Tensor) -> None:
    assert can_fuse(on_gpu)
    assert can_fuse_single(on_gpu, on_gpu)
    assert is_fused_single("auto", on_gpu)
    assert is_fused_single("fused", on_gpu)
    assert not is_fused_single("reference", on_gpu)
    assert not can_fuse(torch.empty(2, 3))


def test_they_do_not_run_without_triton(on_gpu: Tensor) -> None:
    with patch.object(fusing, "_HAS_TRITON", False):
        assert not can_fuse(on_gpu)


def test_they_do_not_run_where_a_graph_is_compiled(on_gpu: Tensor) -> None:
    with patch("torch.compiler.is_compiling", return_value=True):
        assert not can_fuse(on_gpu)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_those_for_single_precision_leave_others_alone(on_gpu: Tensor, dtype: torch.dtype) -> None:
    assert can_fuse(on_gpu.to(dtype))
    assert not can_fuse_single(on_gpu, on_gpu.to(dtype))


def test_those_for_single_precision_leave_it_to_autocast(on_gpu: Tensor) -> None:
    with patch("torch.is_autocast_enabled", side_effect=lambda device: device == "cuda"):
        assert can_fuse(on_gpu)
        assert not is_fused_single("auto", on_gpu)


def test_what_cannot_be_is_refused(on_gpu: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with typecheck_off(), pytest.raises(UserError, match="backend must be one of"):
        is_fused_single("fast", on_gpu)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"'reference' for torch\.bfloat16"):
        is_fused_single("fused", on_gpu, on_gpu.bfloat16())
    with pytest.raises(UserError, match="backend must be 'reference' on cpu, got 'fused'"):
        is_fused_single("fused", torch.empty(2))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert is_fused_single("fused", torch.empty(2))
