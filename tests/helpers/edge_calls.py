"""Random updates of edges, and what each form makes of them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmamba.encode.activation import Activation
from graphmamba.encode.norm import BatchNorm
from graphmamba.scan.options import Backend
from graphmamba.stack.edge_update import gate_edges, norm_edges
from tests.helpers.agreement import Results, assert_as_exact, assert_bit_equal
from tests.helpers.gated_calls import Call, draw


@dataclass(frozen=True)
class Case:
    """Everything that decides a call, but for the numbers; these `call` draws."""

    call: Callable[[], Call]
    has_after: bool = True
    activation: Activation = "relu"
    rate: float = 0.0
    real: int | None = None
    """Real edges."""
    shift: float = 0.0
    """Mean of the edges in standard deviations, which costs digits."""


SMALL = {
    "molecules": Case(lambda: draw((2, 3, 1, 4) * 5, 33)),
    "dense, dropped": Case(lambda: draw((70, 40, 65), 16, has_scale=True), rate=0.3),
    "shuffled": Case(
        lambda: draw((2, 3, 0, 4) * 5, 5, is_sorted=False, has_scale=True), False, "gelu"
    ),
    "hubs": Case(lambda: draw((3, 90, 0, 1, 2, 150, 1), 6), activation="none"),
    "hubs, shuffled, ghosts": Case(
        lambda: draw((3, 90, 0, 1, 80, 1), 40, is_sorted=False), rate=0.2, real=150
    ),
    "ghosts": Case(lambda: draw((9, 14, 0, 100, 7, 9, 11), 3), rate=0.2, real=139),
    "far from zero": Case(lambda: draw((9, 14, 0, 10, 7, 9, 11) * 4, 3), shift=30.0),
    "one real edge": Case(lambda: draw((1, 0, 3), 4), real=1),
    "ghosts alone": Case(lambda: draw((1, 2, 3), 4), real=0),
    "one edge": Case(lambda: draw((1,), 4)),
    "no edges": Case(lambda: draw((0, 0, 0), 4, has_scale=True)),
    "no nodes": Case(lambda: draw((), 4)),
    "edges are not read": Case(lambda: draw((2, 20, 1), 4, ends=("d_x",))),
    "nodes are not read": Case(lambda: draw((2, 20, 1), 4, ends=("d_e",))),
}
LARGE = {
    "peptides": Case(lambda: draw((2, 3, 1, 2, 1, 4) * 900, 96), real=11_000),
    "odd channels": Case(lambda: draw((2, 3, 1, 2, 1, 4) * 90, 95, has_scale=True), rate=0.1),
    "clusters": Case(lambda: draw((45, 60, 52) * 70, 64), real=10_500),
    "small clusters": Case(lambda: draw((30, 40, 32) * 50, 48), rate=0.2),
    "thousands at a hub": Case(lambda: draw((2, 1, 3, 0) * 200 + (5000,) + (1, 2) * 300, 64)),
    "far": Case(lambda: draw((5, 8, 4) * 900, 96), shift=30.0),
}


def update(
    case: Case, call: Call, norm: BatchNorm, leaves: dict[str, Tensor], backend: Backend
) -> tuple[Tensor, Tensor]:
    """x_hat and the new edges."""
    device = leaves["nodes"].device
    gated = gate_edges(
        *(leaves["nodes"], leaves["edges"], call.layout(str(device)), norm, leaves.get("scale")),
        backend=backend,
    )
    return gated.x_hat, norm_edges(
        *(gated, norm, None if case.real is None else torch.tensor(case.real, device=device)),
        after=leaves.get("after"),
        activation=case.activation,
        rate_after=case.rate,
        seed=torch.tensor(-123456789, device=device),
    )


def compute(
    case: Case,
    backend: Backend,
    dtype: torch.dtype,
    device: str = "cpu",
    norm_backend: str | None = None,
) -> Results:
    """Outputs, all gradients, and what the norm remembers."""
    call = case.call()
    after = torch.randn(call.edges.shape, generator=torch.Generator().manual_seed(7)).double()
    drawn = {"nodes": call.nodes, "edges": call.edges + case.shift, "scale": call.scale}
    drawn["after"] = after if case.has_after else None
    leaves = {
        name: values.float().to(device, dtype).requires_grad_()
        for name, values in drawn.items()
        if values is not None
    }
    norm = _norm(call.edges.shape[1], dtype, device, norm_backend or backend)
    x_hat, edges = update(case, call, norm, leaves, backend)
    ends = (x_hat, call.d_x), (edges, call.d_e)
    outputs = [(out, grad.to(device, out.dtype)) for out, grad in ends if grad is not None]
    torch.autograd.backward(*zip(*outputs, strict=True))
    results = {
        "x_hat": x_hat, "new edges": edges, "batches": norm.num_batches_tracked,
        "mean": norm.running_mean, "variance": norm.running_var,
    }  # fmt: skip
    leaves |= {"weight": norm.weight, "bias": norm.bias}
    for name, leaf in leaves.items():
        # Nobody asks for edges: what they are made of gets no gradient, which is one of 0.
        results[f"d_{name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return {name: value.detach().cpu() for name, value in results.items()}


def assert_update_right(case: Case, device: str = "cpu", is_repeated: bool = True) -> None:
    """As exact as plain PyTorch, and the same bits again."""
    truth = compute(case, "reference", torch.float64)
    plain = compute(case, "reference", torch.float32)
    ours = compute(case, "fused", torch.float32, device)
    assert_as_exact(ours, plain, truth)
    if is_repeated:
        assert_bit_equal(ours, compute(case, "fused", torch.float32, device))


def assert_like_both(case: Case, dtype: torch.dtype, tolerance: float, device: str = "cpu") -> None:
    """Agrees with the kernels of the sum, followed by the norm in plain PyTorch."""
    joint = compute(case, "fused", dtype, device)
    apart = compute(case, "fused", dtype, device, norm_backend="reference")
    for name, value in apart.items():
        torch.testing.assert_close(
            joint[name], value, rtol=tolerance, atol=tolerance, msg=lambda text, n=name: n + text
        )


def check_operators() -> None:
    """PyTorch's own checks of both operators: what they change, alias and allocate."""
    call = draw((2, 3, 1), 3, has_scale=True).to(torch.float32)
    layout = call.layout()
    ends = (layout.edge_index, layout.target_ptr, None, layout.source_ptr, layout.source_order)
    one, places = torch.ones(3), (torch.tensor(5), torch.tensor(2))
    settings, tests = ("relu", 0.2, 1), ("test_schema", "test_faketensor")
    norm = torch.ones(2, 3), call.edges, one, one, *places, *settings
    operators = torch.ops.graphmamba
    torch.library.opcheck(
        operators.edge_norm_sums_fused.default, (call.d_e, *norm), test_utils=tests
    )
    kept = torch.ones(2, 3, 3)
    inputs = (call.d_x, call.d_e, call.edges, kept, call.nodes[:, 3:6], call.scale, *ends)
    inputs = (*inputs, torch.ones(2, 3), one, one, one, one, *places, *settings)
    torch.library.opcheck(operators.edge_update_fused_backward.default, inputs, test_utils=tests)


def _norm(channels: int, dtype: torch.dtype, device: str, backend: str) -> BatchNorm:
    norm = BatchNorm(channels)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        norm.weight.add_(0.3 * torch.randn(channels, generator=generator))
        norm.bias.add_(0.3 * torch.randn(channels, generator=generator))
    norm.site, norm.backend = 3, "fused" if backend == "fused" else "reference"
    return norm.to(device, torch.promote_types(dtype, torch.float32))
