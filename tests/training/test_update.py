"""The update in a few launches, held to PyTorch's optimizers in float64."""

import copy
from typing import Any

import pytest
import torch
from torch import nn

from graphmamba.training.step import FlatGradients

SHAPES = ((3,), (40, 70), (), (1025,), (7, 5))


def updated(kind: Any, clip: float, device: str, steps: int = 4) -> None:
    from graphmamba.training.update import FusedUpdate

    generator = torch.Generator().manual_seed(0)
    ours = [nn.Parameter(torch.randn(shape, generator=generator).to(device)) for shape in SHAPES]
    exact = [nn.Parameter(each.detach().double().cpu()) for each in ours]
    plain = [nn.Parameter(each.detach().clone()) for each in ours]
    options: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.1}
    found = kind(ours, **(options | {"lr": torch.tensor(0.01, device=device)}))
    others = [(each, kind(each, **options)) for each in (exact, plain)]
    gradients, update = FlatGradients(ours), None
    own, loss = torch.tensor([12.0, 4.0], device=device), torch.zeros((), device=device)
    for step in range(steps):
        drawn = [torch.randn(shape, generator=generator) * 10 ** (1 - step) for shape in SHAPES]
        gradients.clear()
        gradients.add([each.to(device) for each in drawn], torch.tensor(4.0, device=device))
        update = update or FusedUpdate(
            found, gradients.parameters, gradients.parts, gradients.flat, clip
        )
        update(own, loss)
        assert loss.item() == 3.0
        for parameters, optimizer in others:
            for each, grad in zip(parameters, drawn, strict=True):
                each.grad = grad.to(each) / 4
            if clip:
                nn.utils.clip_grad_norm_(parameters, clip)
            optimizer.step()
    for one, near, truth in zip(ours, plain, exact, strict=True):
        scale = truth.abs().max().item()
        bound = 2 * (near.cpu() - truth).abs().max().item() + 1e-6 * scale
        assert (one.cpu() - truth).abs().max().item() <= bound
    # what PyTorch would go on with is the optimizer's own state
    state = copy.deepcopy(found.state_dict())["state"]
    assert [float(each["step"]) for each in state.values()] == [steps] * len(SHAPES)


def check(device: str) -> None:
    for kind in (torch.optim.AdamW, torch.optim.Adam):
        for clip in (0.0, 1.0):
            updated(kind, clip, device)
    says_what_is_no_number(device)


def says_what_is_no_number(device: str) -> None:
    from graphmamba.training.update import FusedUpdate

    weights = nn.Parameter(torch.ones(3, device=device))
    optimizer = torch.optim.AdamW([weights], lr=torch.tensor(0.1, device=device))
    gradients, loss = FlatGradients([weights]), torch.zeros((), device=device)
    for bad in (float("nan"), float("inf")):
        gradients.clear()
        gradients.add(
            [torch.tensor([1.0, bad, 1.0], device=device)], torch.tensor(1.0, device=device)
        )
        FusedUpdate(optimizer, gradients.parameters, gradients.parts, gradients.flat, 0.0)(
            torch.ones(2, device=device), loss
        )
        assert loss.isnan()


@pytest.mark.gpu
def test_the_fused_update_is_that_of_pytorch() -> None:
    check("cuda")


def check_interpreted() -> None:
    check("cpu")
