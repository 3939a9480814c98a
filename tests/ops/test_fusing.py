"""Kernels run for what they were made for, and PyTorch's own operations for all else."""

from collections.abc import Callable, Iterator
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from graphmamba.errors import UserError
from graphmamba.ops import fusing
from graphmamba.ops.batch_norm import Running, activate_drop, batch_norm_act
from graphmamba.ops.batch_norm.pair import Norm, batch_norm_pair
from graphmamba.ops.edge_attention import wire
from graphmamba.ops.fusing import FusedBackend, can_fuse, can_fuse_single, is_fused, is_fused_single
from graphmamba.ops.linear import linear
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


def test_short_types_are_read_by_kernels_that_take_them(on_gpu: Tensor) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        assert is_fused("auto", on_gpu.to(dtype), None, on_gpu)
    assert not is_fused("auto", on_gpu, on_gpu.double())
    assert not is_fused("auto", on_gpu.bfloat16(), types=(torch.float32,))
    assert is_fused("auto", on_gpu.long(), types=None)
    with pytest.raises(UserError, match=r"'reference' for torch\.float64, got 'fused'"):
        is_fused("fused", on_gpu, on_gpu.double())


ROWS, ONES, NUMBERS = torch.ones(3, 4), torch.ones(4), torch.zeros(3, 2, dtype=torch.int64)
DOORS: dict[str, Callable[[FusedBackend, torch.dtype], object]] = {
    "batch_norm_act": lambda backend, dtype: batch_norm_act(
        ROWS.to(dtype), ONES, ONES, Running(ONES.clone(), ONES.clone()), backend=backend
    ),
    "batch_norm_pair": lambda backend, dtype: batch_norm_pair(
        *[ROWS.to(dtype)] * 2,
        *(Norm(ONES, ONES, Running(ONES.clone(), ONES.clone())) for _ in range(2)),
        backend=backend,
    ),
    "activate_drop": lambda backend, dtype: activate_drop(ROWS.to(dtype), "relu", backend=backend),
    "linear": lambda backend, dtype: linear(ROWS.to(dtype), ROWS.to(dtype), backend=backend),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door_refuses_kernels_where_none_runs(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UserError, match="backend must be 'reference' on cpu, got 'fused'"):
        DOORS[door]("fused", torch.float32)
    with pytest.raises(UserError, match=r"backend must be 'reference' for torch\.float64"):
        DOORS[door]("fused", torch.float64)
    DOORS[door]("auto", torch.float32)


def test_wires_are_not_laid_out_where_no_kernel_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(UserError, match="backend must be 'reference' on cpu, got 'fused'"):
        wire(NUMBERS.T, NUMBERS[:, 0], nodes=3, shared=1, backend="fused")
