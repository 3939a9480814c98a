"""Which implementation runs where."""

import pytest
import torch
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops import available_backends, backends, causal_conv1d
from graphmamba.ops.backends import Backend, has_triton, uses_triton
from tests.helpers.processes import run_apart
from tests.helpers.typecheck import typecheck_off

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def convolve(backend: Backend, device: str = "cpu") -> Tensor:
    x, weight = torch.ones(3, 2, device=device), torch.ones(2, 4, device=device)
    cu_seqlens = torch.tensor([0, 3], device=device)
    return causal_conv1d(x, weight, cu_seqlens=cu_seqlens, backend=backend)


@pytest.fixture(autouse=True)
def all_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(backends, "_FOUND", {"cpu": True, "triton": True})


def test_each_device_has_its_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_backends(CPU) == ("reference", "cpu")
    assert available_backends(GPU) == ("reference", "triton")
    assert available_backends(torch.device("meta")) == ("reference",)
    assert torch.equal(convolve("cpu"), convolve("auto"))
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert available_backends(CPU) == ("reference", "cpu", "triton")


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_a_missing_package_is_named_and_nothing_else_runs(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_FOUND", {"cpu": False, "triton": False})
    assert available_backends(CPU) == available_backends(GPU) == ("reference",)
    with pytest.raises(ImportError, match="backend 'cpu' needs the package numba"):
        convolve(backend)


def test_a_backend_rejects_tensors_of_another_device() -> None:
    listed = "backend must be one of 'auto', 'reference', 'cpu' for tensors on cpu, got 'triton'"
    with pytest.raises(UserError, match=f"{listed}: 'triton' needs a GPU"):
        convolve("triton")
    listed = "backend must be one of 'reference' for tensors on meta, got 'auto'"
    with pytest.raises(UserError, match=f"{listed}: 'cpu' needs the CPU"):
        convolve("auto", "meta")
    with pytest.raises(UserError, match="must be 'reference' for tensors on cpu, got 'triton'"):
        uses_triton("triton", CPU)
    with typecheck_off(), pytest.raises(UserError, match=r"backend must be one of .* 'mamba'"):
        convolve("mamba")


@pytest.mark.gpu
def test_the_cpu_backend_rejects_tensors_on_a_gpu() -> None:
    listed = "backend must be one of 'auto', 'reference', 'triton' for tensors on cuda:0, got 'cpu'"
    with pytest.raises(UserError, match=listed):
        convolve("cpu", "cuda")


def test_kernels_without_a_cpu_form_run_on_gpus_and_outside_of_compiled_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert uses_triton("auto", GPU)
    assert uses_triton("triton", GPU)
    assert not uses_triton("reference", GPU)
    assert not uses_triton("auto", CPU)
    assert not has_triton(torch.ones(2))
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not uses_triton("auto", GPU)
    monkeypatch.undo()
    monkeypatch.setattr(backends, "_FOUND", {"cpu": True, "triton": False})
    assert not uses_triton("auto", GPU)


def test_operators_import_no_compiler() -> None:
    run_apart(
        "import sys, graphmamba.ops\n"
        "assert not {'numba', 'triton'} & sys.modules.keys(), sorted(sys.modules)\n"
    )
