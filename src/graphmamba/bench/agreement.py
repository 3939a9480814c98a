"""Is a backend as exact as plain PyTorch? The judge is the reference in float64."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmamba import scan
from graphmamba.bench.shapes import BatchShape, scan_inputs

FLOOR = 1e-6
"""Error that is allowed where plain PyTorch makes none."""

Tensors = dict[str, Tensor]
Operation = Callable[..., Tensor]

_BATCH = BatchShape("agreement", sequences=5, tokens=250, longest=120, inner=48)


@dataclass(frozen=True)
class Agreement:
    """How far one backend is from the truth, in its worst tensor."""

    operation: str
    backend: str
    worst: str
    """`out`, or the input whose gradient comes nearest to what is allowed."""
    error: float
    allowed: float
    """Twice the error of the reference in the same dtype."""

    @property
    def holds(self) -> bool:
        """Whether the backend is as exact as it has to be; a NaN is not."""
        return self.error <= self.allowed


def check_backends(device: torch.device) -> list[Agreement]:
    """Compare output and all gradients of both operations, for every backend on this device."""
    backends = [name for name in scan.available_backends(device) if name != "reference"]
    return [
        _check(name, backend, device)
        for name in ("causal_conv1d", "selective_scan")
        for backend in backends
    ]


def _check(name: str, backend: str, device: torch.device) -> Agreement:
    inputs, options, out_grad = _EXAMPLES[name](device)
    operation: Operation = getattr(scan, name)

    def run(backend: str, dtype: torch.dtype) -> Tensors:
        leaves = {key: leaf.detach().to(dtype).requires_grad_() for key, leaf in inputs.items()}
        out = operation(**leaves, **options, backend=backend)
        grads = torch.autograd.grad(out, list(leaves.values()), out_grad.to(dtype))
        return {"out": out.detach(), **dict(zip(leaves, grads, strict=True))}

    truth = run("reference", torch.float64)
    plain = run("reference", torch.float32)
    ours = run(backend, torch.float32)
    found = [
        Agreement(
            name,
            backend,
            worst=key,
            error=_max_error(ours[key], truth[key]),
            allowed=2 * _max_error(plain[key], truth[key]) + FLOOR,
        )
        for key in truth
    ]
    broken = [agreement for agreement in found if not agreement.holds]
    return max(broken or found, key=lambda one: one.error / one.allowed)


def _max_error(value: Tensor, truth: Tensor) -> float:
    return float((value.double() - truth).abs().max())


def _scan_example(device: torch.device) -> tuple[Tensors, dict[str, object], Tensor]:
    inputs = scan_inputs(_BATCH, device=device)
    # Visited out of order and written back to the rows they came from, as the model does it.
    order = torch.randperm(_BATCH.tokens, generator=torch.Generator().manual_seed(0)).to(device)
    options = {"cu_seqlens": inputs.cu_seqlens, "order": order, "scatter": True}
    return inputs.leaves, options, inputs.out_grad


def _conv_example(device: torch.device) -> tuple[Tensors, dict[str, object], Tensor]:
    leaves, options, out_grad = _scan_example(device)
    generator = torch.Generator().manual_seed(1)
    weight = torch.rand(_BATCH.inner, 4, generator=generator) - 0.5
    inputs = {"x": leaves["u"], "weight": weight.to(device), "bias": leaves["delta_bias"]}
    del options["scatter"]
    return inputs, options, out_grad


_EXAMPLES = {"causal_conv1d": _conv_example, "selective_scan": _scan_example}
