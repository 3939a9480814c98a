"""Random calls through the public doors, on any backend and device."""

import torch
from torch import Tensor

from graphmamba.ops import causal_conv1d, selective_scan
from graphmamba.ops.options import Backend
from tests.helpers import conv_calls, scan_calls
from tests.helpers.agreement import Results, assert_as_exact

Leaves = dict[str, Tensor | None]


def scan_by_door(call: scan_calls.Call, backend: Backend = "auto", device: str = "cpu") -> Results:
    case, leaves = call.case, _leaves(call.inputs, device)
    y = selective_scan(
        **leaves,
        cu_seqlens=case.cu_seqlens.to(device),
        order=None if call.order is None else call.order.to(device),
        scatter=case.scatter,
        softplus=case.softplus,
        discretization=case.discretization,
        reverse=case.reverse,
        log_A=case.is_log,
        backend=backend,
        check=True,
    )
    return _results(y, call.grad, leaves)


def conv_by_door(call: conv_calls.Call, backend: Backend = "auto", device: str = "cpu") -> Results:
    leaves = _leaves({"x": call.x, "weight": call.weight, "bias": call.bias}, device)
    y = causal_conv1d(
        **leaves,
        cu_seqlens=call.cu_seqlens.to(device),
        order=None if call.order is None else call.order.to(device),
        permutation=call.permutation,
        activation=call.activation,
        reverse=call.reverse,
        backend=backend,
        check=True,
    )
    return _results(y, call.grad, leaves)


def assert_scan_right(
    call: scan_calls.Call, backend: Backend = "auto", device: str = "cpu"
) -> None:
    single = call.to(torch.float32)
    ours = scan_by_door(single, backend, device)
    assert_as_exact(ours, scan_calls.by_reference(single), scan_calls.by_reference(call))


def assert_conv_right(
    call: conv_calls.Call, backend: Backend = "auto", device: str = "cpu"
) -> None:
    single = call.to(torch.float32)
    ours = conv_by_door(single, backend, device)
    assert_as_exact(ours, conv_calls.by_reference(single), conv_calls.by_reference(call))


def _leaves(inputs: Leaves, device: str) -> Leaves:
    return {
        name: None if x is None else x.detach().to(device, copy=True).requires_grad_()
        for name, x in inputs.items()
    }


def _results(y: Tensor, grad: Tensor, leaves: Leaves) -> Results:
    y.backward(grad.to(y))
    found = {"y": y.detach(), **{name: x.grad for name, x in leaves.items() if x is not None}}
    return {name: value.cpu() for name, value in found.items() if value is not None}
