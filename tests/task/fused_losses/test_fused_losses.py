"""Losses by kernels, held to the definitions in float64."""

from collections.abc import Callable
from itertools import product
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.task import losses
from graphmamba.task.fused_losses import class_loss, entry_loss, two_class_loss
from tests.helpers.processes import only_interpreted, run_apart
from tests.helpers.typecheck import typecheck_off

Loss = Callable[..., Tensor]
Sizes = tuple[tuple[int, int], ...]
BY_CLASS: tuple[Loss, ...] = losses.cross_entropy, losses.weighted_cross_entropy
BY_ENTRY: tuple[Loss, ...] = losses.binary_cross_entropy, losses.l1
SIZES = ((1, 1), (16, 10), (70, 5), (33, 1), (0, 3), (90, 21), (20, 81))
"""Rows and columns."""
LARGE = ((15_000, 21), (1_900, 6), (70_000, 21), (4_000, 81), (3_800, 2), (40_000, 1))
"""Some that one program holds, some that many share."""
FACTOR = -1.5
"""What comes in at the end."""


def results(loss: Loss, logits: Tensor, label: Tensor, is_fused: bool) -> dict[str, Tensor]:
    leaf = logits.detach().clone().requires_grad_()
    with patch.object(losses, "can_fuse_single", lambda *_: is_fused):
        found = loss(leaf, label)
    (FACTOR * found).backward()
    assert leaf.grad is not None
    return {"loss": found.detach(), "gradient": leaf.grad}


def assert_right(loss: Loss, logits: Tensor, label: Tensor) -> None:
    exact_label = label.double() if label.is_floating_point() else label
    truth = results(loss, logits.double(), exact_label, is_fused=False)
    ours, again = (results(loss, logits, label, is_fused=True) for _ in range(2))
    for name, exact in truth.items():
        assert ours[name].dtype == torch.float32
        assert ours[name].shape == exact.shape
        assert torch.equal(ours[name], again[name])
        error = (ours[name].double() - exact).norm()
        case = loss.__name__, tuple(logits.shape), name
        assert error <= 2e-6 * exact.norm() + 1e-12, case


def class_labels(rows: int, classes: int, generator: torch.Generator) -> list[Tensor]:
    """All labelled, some, none, and one class alone; ghosts come last."""
    drawn = torch.randint(classes, (rows,), generator=generator)
    some = torch.where(torch.rand(rows, generator=generator) < 0.3, -1, drawn)
    some[rows - rows // 4 :] = -1
    return [drawn, some, torch.full_like(drawn, -1), torch.full_like(drawn, classes - 1)]


def assert_class_losses_are_right(device: str, sizes: Sizes) -> None:
    for rows, classes in sizes:
        generator = torch.Generator().manual_seed(rows)
        logits = 4 * torch.randn(rows, classes, generator=generator).to(device)
        for label in class_labels(rows, classes, generator):
            for loss in BY_CLASS:
                assert_right(loss, logits, label.to(device))


def assert_any_number_of_classes_is_right(device: str) -> None:
    for classes in range(1, 22):
        generator = torch.Generator().manual_seed(classes)
        rows = int(torch.randint(1, 90, (), generator=generator))
        logits = torch.randn(rows, classes, generator=generator).to(device)
        label = class_labels(rows, classes, generator)[1].to(device)
        assert_right(BY_CLASS[classes % 2], logits, label)


def assert_two_class_losses_are_right(device: str, sizes: Sizes) -> None:
    for rows, _ in sizes:
        generator = torch.Generator().manual_seed(rows)
        logits = 4 * torch.randn(rows, 1, generator=generator).to(device)
        for label in class_labels(rows, 2, generator):
            assert_right(losses.weighted_binary_cross_entropy, logits, label.to(device))


def assert_entry_losses_are_right(device: str, sizes: Sizes) -> None:
    for rows, outputs in sizes:
        generator = torch.Generator().manual_seed(rows)
        logits = 4 * torch.randn(rows, outputs, generator=generator)
        target = torch.rand(rows, outputs, generator=generator)
        some = torch.where(torch.rand(rows, outputs, generator=generator) < 0.3, torch.nan, target)
        # where a distance has no slope
        some[:1, :1] = logits[:1, :1]
        for label in (target, target.round(), some, torch.full_like(target, torch.nan)):
            for loss in BY_ENTRY:
                assert_right(loss, logits.to(device), label.to(device))


def assert_large_logits_lose_no_digits(device: str) -> None:
    for x, label in product((0.0, 1e-3, 5.0, -5.0, 15.0, -15.0, 80.0, -80.0, 1e4, -1e4), (0, 1)):
        # one of the other class, or there would be no weight, but next to no loss of its own
        logits = torch.tensor([[x], [200.0 - 400.0 * label]], device=device)
        labels = torch.tensor([label, 1 - label], device=device)
        assert_right(losses.weighted_binary_cross_entropy, logits, labels)
        assert_right(losses.binary_cross_entropy, logits[:1], labels[:1, None].float())
    for x_0, x_1 in ((1e4, -1e4), (-300.0, -310.0), (88.0, 89.0)):
        logits = torch.tensor([[x_0, x_1, 0.0], [x_1, x_0, 0.5]], device=device)
        for loss in BY_CLASS:
            assert_right(loss, logits, torch.tensor([0, 2], device=device))


def assert_tensors_may_lie_apart(device: str) -> None:
    torch.manual_seed(0)
    logits = torch.randn(6, 40, device=device).T[::2]
    label = torch.randint(6, (40,), device=device)[::2]
    for loss in BY_CLASS:
        assert_right(loss, logits, label)
    for loss in BY_ENTRY:
        assert_right(loss, logits, torch.rand(12, 20, device=device).T[:, ::2])


def assert_what_is_no_number_is_seen(device: str) -> None:
    """A logit, and a class that there is not; but not if the row does not count."""
    label = torch.tensor([0, 1, -1], device=device)
    for row, is_seen in ((1, True), (2, False)):
        logits = torch.randn(3, 2, device=device)
        logits[row] = torch.nan
        table = torch.where(label < 0, torch.nan, 1.0)[:, None].expand(3, 2).contiguous()
        found = [class_loss(logits, label, is_weighted=kind) for kind in (True, False)]
        found += [entry_loss(logits, table, loss=kind) for kind in ("l1", "binary_cross_entropy")]
        found += [two_class_loss(logits[:, :1], label)]
        assert all(bool(each.isnan()) == is_seen for each in found)
    logits = torch.randn(3, 2, device=device)
    for beyond in (2, 3):
        label = torch.tensor([0, 1, beyond], device=device)
        assert class_loss(logits, label, is_weighted=True).isnan()
        assert two_class_loss(logits[:, :1], label).isnan()


def assert_nothing_is_differentiated_twice() -> None:
    logits = torch.randn(3, 2, requires_grad=True)
    loss = class_loss(logits, torch.tensor([0, 1, 1]), is_weighted=True).square()
    (gradient,) = torch.autograd.grad(loss, logits, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def assert_all_is_right(device: str, sizes: Sizes) -> None:
    assert_class_losses_are_right(device, sizes)
    assert_any_number_of_classes_is_right(device)
    assert_two_class_losses_are_right(device, sizes)
    assert_entry_losses_are_right(device, sizes)
    assert_large_logits_lose_no_digits(device)
    assert_tensors_may_lie_apart(device)
    assert_what_is_no_number_is_seen(device)


@only_interpreted
def test_interpreted_kernels_are_as_exact_as_torch() -> None:
    run_apart(
        "from graphmamba.task.fused_losses import fused\n"
        "from tests.task.fused_losses.test_fused_losses import *\n"
        # so that many programs share what takes an interpreter no time
        "fused.MOST_ALONE, fused.TILE, fused.COUNTED, fused.SHARES = 1024, 512, 1024, 4\n"
        "fused.MOST_LINES = 8\n"
        "assert_all_is_right('cpu', SIZES)\n"
        "assert_nothing_is_differentiated_twice()",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_kernels_are_as_exact_as_torch() -> None:
    assert_all_is_right("cuda", (*SIZES, *LARGE))


@pytest.mark.gpu
def test_a_gpu_takes_the_kernels_where_nobody_chooses_types() -> None:
    logits, label = torch.randn(4, 3, device="cuda"), torch.tensor([0, 1, 2, -1], device="cuda")
    with patch.object(losses, "class_loss", wraps=class_loss) as fused:
        losses.weighted_cross_entropy(logits, label)
        assert fused.call_count == 1
        losses.weighted_cross_entropy(logits.bfloat16(), label)
        with torch.autocast("cuda", torch.bfloat16):
            losses.weighted_cross_entropy(logits, label)
        assert fused.call_count == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda x: class_loss(x, torch.zeros(2, dtype=torch.long), is_weighted=True),
            r"label must be of shape \(3,\), got \(2,\)",
        ),
        (
            lambda x: two_class_loss(x[:, :1], torch.zeros(2, dtype=torch.long)),
            r"logits must be of shape \(2, 1\), got \(3, 1\)",
        ),
        (
            lambda x: entry_loss(x, x[:2], loss="l1"),
            r"target must be of shape \(3, 2\), got \(2, 2\)",
        ),
    ],
)
def test_labels_of_other_rows_are_refused(call: Callable[[Tensor], Tensor], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        call(torch.zeros(3, 2))
