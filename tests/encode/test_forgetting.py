"""What is forgotten comes back as it was, once for all who ask, and is not held in between."""

import weakref

import pytest
import torch
from torch import Tensor

from graphmamba.encode.forgetting import Forgetting, is_worth_forgetting

X = torch.linspace(-1, 1, 24).view(6, 4)
W = torch.linspace(1, 2, 32).view(4, 8)


def gradients(is_on: bool, calls: list[str] | None = None) -> list[Tensor]:
    """Of a chain in which halves of a product are saved, and what is made of them."""
    x, weight = X.clone().requires_grad_(), W.clone().requires_grad_()
    calls = [] if calls is None else calls

    def project() -> Tensor:
        calls.append("project")
        return x.detach() @ weight

    with Forgetting(is_on) as kept:
        wide, again = x @ weight, kept.recipe(project)
        first, second = wide.chunk(2, dim=1)
        gate = second.sigmoid()
        y = first * gate
        kept.forget(gate, lambda: torch.sigmoid(again().chunk(2, dim=1)[1]))
        kept.forget(wide, again)
    return list(torch.autograd.grad(y.square().sum(), [x, weight]))


def test_gradients_are_the_same_to_the_last_bit() -> None:
    for forgotten, plain in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(forgotten, plain)


def test_what_several_ask_for_is_made_once_and_only_if_it_was_forgotten() -> None:
    calls: list[str] = []
    gradients(True, calls)
    assert calls == ["project"]
    calls.clear()
    gradients(False, calls)
    assert calls == []


@pytest.mark.parametrize("is_on", [True, False])
def test_what_is_forgotten_is_held_by_nobody(is_on: bool) -> None:
    x = X.clone().requires_grad_()
    with Forgetting(is_on) as kept:
        wide = x.exp()
        y = wide.square()
        kept.forget(wide, lambda: x.detach().exp())
    storage = weakref.ref(wide.untyped_storage())
    del wide
    assert (storage() is None) == is_on
    y.sum().backward()
    assert torch.equal(x.grad, 2 * X.exp() * X.exp())


@pytest.mark.parametrize("is_on", [True, False])
def test_a_pass_that_nobody_goes_back_through_is_held_by_nobody(is_on: bool) -> None:
    x = X.clone().requires_grad_()
    with Forgetting(is_on):
        # saved by the operation that made it
        wide = x.exp()
    storage = weakref.ref(wide.untyped_storage())
    del wide
    assert storage() is None


def test_a_part_of_other_extent_is_kept() -> None:
    x = X.clone().requires_grad_()
    with Forgetting(True) as kept:
        wide = x @ W
        first, second = wide.chunk(2, dim=1)
        y = first.square() + second.square()
        # Wrong, so that it shows who asks for it.
        kept.forget(second, lambda: torch.zeros_like(X))
    (grad,) = torch.autograd.grad(y.sum(), [x])
    assert torch.equal(grad, (2 * X @ W[:, :4]) @ W[:, :4].T)


def test_precision_comes_back_with_it() -> None:
    x, weight = X.clone().requires_grad_(), W.clone().requires_grad_()
    made: list[torch.dtype] = []

    def project() -> Tensor:
        out = x.detach() @ weight
        made.append(out.dtype)
        return out

    with torch.autocast("cpu", torch.bfloat16), Forgetting(True) as kept:
        wide = x @ weight
        y = wide.square()
        kept.forget(wide, project)
    y.sum().backward()
    assert made == [torch.bfloat16]


def test_rows_on_the_cpu_and_where_no_gradient_is_recorded_are_kept() -> None:
    assert not is_worth_forgetting(torch.zeros(1 << 20, 4), 4)
    assert is_worth_forgetting(X, 4, wanted=True)
    with torch.no_grad():
        assert not is_worth_forgetting(X, 4, wanted=True)
