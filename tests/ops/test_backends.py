from functools import partial

import pytest
import torch

from graphmamba.errors import UserError
from graphmamba.ops import available_backends, backends, causal_conv1d
from graphmamba.ops.backends import Backend
from tests.helpers import conv_calls
from tests.helpers.agreement import assert_bit_equal
from tests.helpers.doors import conv_by_door, scan_by_door
from tests.helpers.processes import run_apart
from tests.helpers.scan_calls import Case, draw
from tests.helpers.typecheck import typecheck_off

CPU = torch.device("cpu")


def convolve(backend: Backend, device: str = "cpu") -> torch.Tensor:
    x, weight = torch.ones(3, 2, device=device), torch.ones(2, 4, device=device)
    cu_seqlens = torch.tensor([0, 3], device=device)
    return causal_conv1d(x, weight, cu_seqlens=cu_seqlens, backend=backend)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.mark.usefixtures("compiled")
def test_each_device_has_its_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_FOUND", {"cpu": True, "fused": True})
    assert available_backends(CPU) == ("reference", "cpu")
    assert available_backends(torch.device("cuda")) == ("reference", "fused")
    assert available_backends(torch.device("meta")) == ("reference",)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert available_backends(CPU) == ("reference", "cpu", "fused")


def test_what_is_not_installed_is_not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "_FOUND", {"cpu": False, "fused": False})
    assert available_backends(CPU) == ("reference",)
    assert available_backends(torch.device("cuda")) == ("reference",)


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_a_missing_package_is_named_and_nothing_else_runs(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "_FOUND", {"cpu": False, "fused": False})
    with pytest.raises(ImportError, match="backend 'cpu' needs the package numba"):
        convolve(backend)


@pytest.mark.usefixtures("compiled")
def test_a_backend_refuses_tensors_of_another_device() -> None:
    listed = "backend must be one of 'auto', 'reference', 'cpu' for tensors on cpu, got 'fused'"
    with pytest.raises(UserError, match=f"{listed}: 'fused' needs a GPU"):
        convolve("fused")
    listed = "backend must be one of 'reference' for tensors on meta, got 'auto'"
    with pytest.raises(UserError, match=f"{listed}: 'cpu' needs the CPU"):
        convolve("auto", "meta")


@pytest.mark.gpu
def test_the_cpu_backend_refuses_tensors_on_a_gpu() -> None:
    listed = "backend must be one of 'auto', 'reference', 'fused' for tensors on cuda:0, got 'cpu'"
    with pytest.raises(UserError, match=listed):
        convolve("cpu", "cuda")


def test_an_unknown_backend_is_refused() -> None:
    call = draw(Case((3,))).to(torch.float32)
    for door in (convolve, partial(scan_by_door, call)):
        with typecheck_off(), pytest.raises(UserError, match=r"backend must be one of .* 'mamba'"):
            door("mamba")


def test_auto_is_cpu_on_the_cpu() -> None:
    call = draw(Case((30, 4))).to(torch.float32)
    assert_bit_equal(scan_by_door(call, "cpu"), scan_by_door(call, "auto"))


def test_the_reference_is_a_backend_like_the_others() -> None:
    call = conv_calls.draw((30, 4), order="repeated")
    assert_bit_equal(conv_by_door(call, "reference"), conv_calls.by_reference(call))


def test_the_doors_import_no_compiler() -> None:
    run_apart(
        "import sys, graphmamba.ops\n"
        "assert not {'numba', 'triton'} & sys.modules.keys(), sorted(sys.modules)\n"
    )
