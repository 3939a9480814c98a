"""Random calls of the gated sum, and what the definition makes of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmamba.ops.edge_layout import EdgeLayout, lay_out_edges
from graphmamba.ops.gated_sum import gated_sum
from graphmamba.ops.options import Backend
from tests.helpers.agreement import Results, assert_as_exact


@dataclass(frozen=True)
class Call:
    """All arguments; `d_x` and `d_e` are the gradients of the outputs, None where it has none."""

    nodes: Tensor
    edges: Tensor
    scale: Tensor | None
    edge_index: Tensor
    source_order: Tensor | None
    d_x: Tensor | None
    d_e: Tensor | None

    def layout(self, device: str = "cpu") -> EdgeLayout:
        order = None if self.source_order is None else self.source_order.to(device)
        return lay_out_edges(self.edge_index.to(device), self.nodes.shape[0], order, check=True)

    def to(self, dtype: torch.dtype) -> "Call":
        names = ("nodes", "edges", "scale", "d_x", "d_e")
        reals = {name: getattr(self, name) for name in names}
        return replace(self, **{n: None if t is None else t.to(dtype) for n, t in reals.items()})


def draw(
    degrees: Sequence[int],
    channels: int = 52,
    *,
    is_sorted: bool = True,
    has_scale: bool = False,
    ends: tuple[str, ...] = ("d_x", "d_e"),
    seed: int = 0,
) -> Call:
    """Node `n` gets `degrees[n]` edges from anywhere: self-loops and repeated edges occur."""
    generator = torch.Generator().manual_seed(seed)
    nodes, edges = len(degrees), sum(degrees)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).double()

    target = torch.repeat_interleave(torch.arange(nodes), torch.tensor(degrees).long())
    source = torch.randint(max(nodes, 1), (edges,), generator=generator)
    edge_index = torch.stack([source, target])
    if not is_sorted:
        edge_index = edge_index[:, torch.randperm(edges, generator=generator)]
    return Call(
        nodes=normal(nodes, 4 * channels),
        edges=normal(edges, channels),
        scale=torch.rand(edges, generator=generator).double() if has_scale else None,
        edge_index=edge_index,
        source_order=edge_index[0].argsort(stable=True) if is_sorted else None,
        d_x=normal(nodes, channels) if "d_x" in ends else None,
        d_e=normal(edges, channels) if "d_e" in ends else None,
    )


def by_door(call: Call, backend: Backend = "auto", device: str = "cpu") -> Results:
    """Outputs and gradients."""
    inputs = {"nodes": call.nodes, "edges": call.edges, "scale": call.scale}
    leaves = {
        name: x.to(device, copy=True).requires_grad_()
        for name, x in inputs.items()
        if x is not None
    }
    x_hat, e_hat = gated_sum(
        *(leaves["nodes"], leaves["edges"], call.layout(device), leaves.get("scale")),
        backend=backend,
    )
    ends = [(x_hat, call.d_x), (e_hat, call.d_e)]
    outputs = [(out, grad.to(device)) for out, grad in ends if grad is not None]
    torch.autograd.backward(*zip(*outputs, strict=True))
    results: Results = {"x_hat": x_hat.detach(), "e_hat": e_hat.detach()}
    for name, leaf in leaves.items():
        # No gradient is one of 0: the factors do not reach e_hat.
        results[f"d_{name}"] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return {name: value.cpu() for name, value in results.items()}


def assert_gated_right(call: Call, backend: Backend = "auto", device: str = "cpu") -> None:
    single = call.to(torch.float32)
    truth, plain = by_door(call, "reference"), by_door(single, "reference")
    assert_as_exact(by_door(single, backend, device), plain, truth)
