"""Random updates of edges, and what each form makes of them."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmamba.encode.activation import Activation
from graphmamba.encode.linear import Linear
from graphmamba.encode.norm import BatchNorm
from graphmamba.scan.options import Backend
from graphmamba.stack.edge_update import Updated, map_edges, update_edges
from tests.helpers.agreement import Results, assert_as_exact, assert_bit_equal, max_error
from tests.helpers.gated_calls import Call, draw


@dataclass(frozen=True)
class Case:
    """Everything that decides a call, but for the numbers; these `call` draws."""

    call: Callable[[], Call]
    has_after: bool = True
    activation: Activation = "relu"
    rate: float = 0.0
    real: tuple[int, int] | None = None
    """Real edges and nodes."""
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
        lambda: draw((3, 90, 0, 1, 80, 1), 40, is_sorted=False), rate=0.2, real=(150, 5)
    ),
    "ghosts": Case(lambda: draw((9, 14, 0, 100, 7, 9, 11), 3), rate=0.2, real=(139, 5)),
    "far from zero": Case(lambda: draw((9, 14, 0, 10, 7, 9, 11) * 4, 3), shift=30.0),
    "one real edge": Case(lambda: draw((1, 0, 3), 4), real=(1, 2)),
    "ghosts alone": Case(lambda: draw((1, 2, 3), 4), real=(0, 0)),
    "one edge": Case(lambda: draw((1,), 4)),
    "no edges": Case(lambda: draw((0, 0, 0), 4, has_scale=True)),
    "no nodes": Case(lambda: draw((), 4)),
    "edges are not read": Case(lambda: draw((2, 20, 1), 4, ends=("d_x",))),
    "nodes are not read": Case(lambda: draw((2, 20, 1), 4, ends=("d_e",))),
}
LARGE = {
    "peptides": Case(lambda: draw((2, 3, 1, 2, 1, 4) * 900, 96), real=(11_000, 5_200)),
    "odd channels": Case(lambda: draw((2, 3, 1, 2, 1, 4) * 90, 95, has_scale=True), rate=0.1),
    "clusters": Case(lambda: draw((45, 60, 52) * 70, 64), real=(10_500, 205)),
    "small clusters": Case(lambda: draw((30, 40, 32) * 50, 48), rate=0.2),
    "thousands at a hub": Case(lambda: draw((2, 1, 3, 0) * 200 + (5000,) + (1, 2) * 300, 64)),
    "far": Case(lambda: draw((5, 8, 4) * 900, 96), shift=30.0),
}


def update(
    case: Case, call: Call, norm: BatchNorm, leaves: dict[str, Tensor], backend: Backend
) -> Updated:
    device = leaves["nodes"].device
    real = case.real and [torch.tensor(each, device=device) for each in case.real]
    return update_edges(
        *(leaves["nodes"], leaves["edges"], call.layout(str(device)), norm, leaves.get("scale")),
        after=leaves.get("after"),
        activation=case.activation,
        rate_after=case.rate,
        seed=torch.tensor(-123456789, device=device),
        real_edges=real and real[0],
        real_nodes=real and real[1],
        backend=backend,
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
    found = update(case, call, norm, leaves, backend)
    ends = (found.x_hat, call.d_x), (found.edges, call.d_e)
    outputs = [(out, grad.to(device, out.dtype)) for out, grad in ends if grad is not None]
    torch.autograd.backward(*zip(*outputs, strict=True))
    results = {
        "x_hat": found.x_hat, "new edges": found.edges, "batches": norm.num_batches_tracked,
        "mean": norm.running_mean, "variance": norm.running_var, "sums": _sums(found, case),
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


def compute_mapped(case: Case, backend: Backend, dtype: torch.dtype, device: str) -> Results:
    """The same with a map of the edges, which are what is added at the end."""
    call, channels = case.call(), case.call().edges.shape[1]
    drawn = {"nodes": call.nodes, "edges": call.edges + case.shift, "scale": call.scale}
    leaves = {
        name: values.float().to(device, dtype).requires_grad_()
        for name, values in drawn.items()
        if values is not None
    }
    torch.manual_seed(0)
    maps = Linear(channels, channels).to(device, dtype)
    norm = _norm(channels, dtype, device, backend)
    maps.backend = norm.backend
    real = case.real and [torch.tensor(each, device=device) for each in case.real]
    found = map_edges(
        *(leaves["nodes"], leaves["edges"], call.layout(device), maps, norm, leaves.get("scale")),
        activation=case.activation,
        rate_after=case.rate,
        seed=torch.tensor(-123456789, device=device),
        real_edges=real and real[0],
        real_nodes=real and real[1],
        backend=backend,
        is_one=True,
    )
    ends = (found.x_hat, call.d_x), (found.edges, call.d_e)
    outputs = [(out, grad.to(device, out.dtype)) for out, grad in ends if grad is not None]
    torch.autograd.backward(*zip(*outputs, strict=True))
    results = {
        "x_hat": found.x_hat, "new edges": found.edges, "batches": norm.num_batches_tracked,
        "mean": norm.running_mean, "variance": norm.running_var, "sums": _sums(found, case),
    }  # fmt: skip
    leaves |= {"map": maps.weight, "map_bias": maps.bias, "weight": norm.weight, "bias": norm.bias}
    for name, leaf in leaves.items():
        results[f"d_{name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return {name: value.detach().cpu() for name, value in results.items()}


def assert_mapped_right(case: Case, device: str = "cpu") -> None:
    """As exact as plain PyTorch, and the same bits again."""
    truth = compute_mapped(case, "reference", torch.float64, "cpu")
    plain = compute_mapped(case, "reference", torch.float32, "cpu")
    ours = compute_mapped(case, "fused", torch.float32, device)
    assert_as_exact(ours, plain, truth)
    assert_bit_equal(ours, compute_mapped(case, "fused", torch.float32, device))


def assert_mapped_close(case: Case, tolerance: float, device: str) -> None:
    """As plain PyTorch does it, but for the digits that products on tensor cores round away."""
    case = replace(case, activation="gelu")
    plain = compute_mapped(case, "reference", torch.float32, "cpu")
    for name, value in compute_mapped(case, "fused", torch.float32, device).items():
        largest = max(1.0, float(plain[name].abs().max()))
        assert max_error(value, plain[name]) <= tolerance * largest, name


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
    one, seed, real = torch.ones(3), torch.tensor(5), torch.tensor(2)
    settings, tests = ("relu", 0.2, 1), ("test_schema", "test_faketensor")
    statistics = torch.zeros(3), torch.ones(3), torch.tensor(0)
    places = seed, real, real
    operators = torch.ops.graphmamba
    inputs = (call.nodes, call.edges, call.scale, *ends, call.edges, one, one, *places)
    inputs = (*inputs, *statistics, *settings, 0.1, 1e-5)
    torch.library.opcheck(operators.edge_update_fused.default, inputs, test_utils=tests)
    kept = torch.ones(2, 3, 3)
    inputs = (call.d_x, call.d_e, call.edges, kept, call.nodes[:, 3:6], call.scale, *ends)
    inputs = (*inputs, torch.ones(2, 3), one, one, *places[:2], *settings)
    torch.library.opcheck(operators.edge_update_fused_backward.default, inputs, test_utils=tests)


def _norm(channels: int, dtype: torch.dtype, device: str, backend: str) -> BatchNorm:
    norm = BatchNorm(channels)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        norm.weight.add_(0.3 * torch.randn(channels, generator=generator))
        norm.bias.add_(0.3 * torch.randn(channels, generator=generator))
    norm.site, norm.backend = 3, "fused" if backend == "fused" else "reference"
    return norm.to(device, torch.promote_types(dtype, torch.float32))


def _sums(found: Updated, case: Case) -> Tensor:
    """Mean and variance of the node rows, by definition where they are not known."""
    rows = found.x_hat if case.real is None else found.x_hat[: case.real[1]]
    count = max(len(rows), 1)
    if found.sums is not None:
        return found.sums / torch.tensor([[1], [count]], device=found.sums.device)
    rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
    mean = rows.sum(0) / count
    return torch.stack([mean, (rows - mean).square().sum(0) / count])
