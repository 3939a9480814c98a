"""The update of all weights by two kernels, held to PyTorch's."""

from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn

from tests.helpers.processes import only_interpreted, run_apart

STEPS = 6
SHAPES = ((3,), (40, 30), (1,), (1025,), (7, 5))


def trained(kind: str, clip: float, device: str, fused_from: int) -> list[Tensor]:
    """Weights, moments and norms after some steps, the first of them by PyTorch."""
    from graphmamba.train.fused_update import FusedUpdate

    generator = torch.Generator().manual_seed(0)

    def draw(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator).to(device)

    parameters = [nn.Parameter(draw(shape)) for shape in SHAPES]
    rate = torch.tensor(0.05, device=device)
    make = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[kind]
    optimizer = make(parameters, lr=rate, weight_decay=0.1, capturable=device == "cuda")
    update, norms = FusedUpdate(optimizer, parameters, clip), []
    for step in range(STEPS):
        for each in parameters:
            each.grad = draw(tuple(each.shape)) * 0.1 * step
        # one that no loss hangs on
        parameters[2].grad = None
        rate.fill_(0.05 / (1 + step))
        if step >= fused_from:
            norms.append(update.run().clone())
            continue
        norms.append(nn.utils.clip_grad_norm_(parameters, clip or 1e30))
        optimizer.step()
    states = [optimizer.state[each] for each in parameters if each.grad is not None]
    moments = [state[name] for state in states for name in ("exp_avg", "exp_avg_sq", "step")]
    return [*(each.detach() for each in parameters), *moments, *norms]


def assert_updates_are_right(device: str) -> None:
    for kind, clip in (("adamw", 1.0), ("adamw", 0.0), ("adam", 1.0)):
        theirs = trained(kind, clip, device, fused_from=STEPS)
        for fused_from in (0, 1):
            ours = trained(kind, clip, device, fused_from)
            for one, other in zip(ours, theirs, strict=True):
                torch.testing.assert_close(one, other, rtol=2e-5, atol=1e-6)


def assert_what_is_not_finite_is_seen(device: str) -> None:
    from graphmamba.train.fused_update import FusedUpdate

    weights = nn.Parameter(torch.ones(5, device=device))
    optimizer = torch.optim.AdamW([weights], lr=torch.tensor(0.1, device=device))
    weights.grad = torch.tensor([1.0, torch.nan, 1.0, 1.0, 1.0], device=device)
    assert not FusedUpdate(optimizer, [weights], 1.0).run().isfinite()


@only_interpreted
def test_interpreted_kernels_update_as_pytorch_does() -> None:
    run_apart(
        "from tests.train.test_fused_update import *\n"
        "assert_updates_are_right('cpu')\n"
        "assert_what_is_not_finite_is_seen('cpu')",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_a_captured_update_reads_what_lies_outside_of_the_graph() -> None:
    from graphmamba.train.fused_update import FusedUpdate

    weights = nn.Parameter(torch.ones(3000, device="cuda"))
    rate = torch.tensor(0.1, device="cuda")
    optimizer = torch.optim.AdamW([weights], lr=rate, capturable=True)
    update, graph = FusedUpdate(optimizer, [weights], 1.0), torch.cuda.CUDAGraph()
    given = torch.ones(3000, device="cuda")
    for is_captured in (False, True):
        with torch.cuda.graph(graph) if is_captured else nullcontext():
            # memory that goes back before the update takes its own
            for size in (2, 64, 1024, 65536):
                torch.full((size,), -1, device="cuda")
            weights.grad = given * 2
            norm = update.run()
    update.fill()
    for _ in range(3):
        graph.replay()
    assert norm.item() == pytest.approx(2 * 3000**0.5)
    assert optimizer.state[weights]["step"].item() == 4


@pytest.mark.gpu
def test_a_gpu_updates_as_pytorch_does() -> None:
    assert_updates_are_right("cuda")
    assert_what_is_not_finite_is_seen("cuda")
