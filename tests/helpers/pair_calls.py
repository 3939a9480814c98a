"""Random calls of two batch norms that are added up, and what each form makes of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmamba.ops.batch_norm import Drop, Running, batch_norm_act
from graphmamba.ops.batch_norm.pair import Norm, batch_norm_pair
from tests.helpers.agreement import Results, assert_as_exact, assert_bit_equal

EPS = 1e-5, 1e-3
MOMENTA = 0.3, 0.1


@dataclass(frozen=True)
class PairCase:
    """Everything that decides a call, but for the numbers."""

    rows: int
    channels: int = 5
    has_before: bool = True
    rate: float = 0.0
    count: int | None = None
    is_training: bool = True
    shift: float = 0.0
    """Mean of the rows in standard deviations, which costs digits."""


SMALL = {
    "layer": PairCase(140, 48),
    "layer with padding graphs": PairCase(70, 64, count=66),
    "layer with dropout": PairCase(80, 33, rate=0.3, count=70),
    "odd channels": PairCase(70, 95, rate=0.1),
    "nothing before": PairCase(70, 4, has_before=False, rate=0.2),
    "evaluation": PairCase(70, 4, is_training=False),
    "evaluation with padding graphs": PairCase(70, 4, count=3, is_training=False),
    "far from zero": PairCase(200, 3, count=150, shift=300.0),
    "two rows": PairCase(2, 4),
    "one row": PairCase(1, 4, rate=0.5),
    "one real row": PairCase(70, 4, count=1),
    "padding graphs alone": PairCase(70, 4, count=0),
    "no rows": PairCase(0, 4, rate=0.5),
    "several programs": PairCase(150, 3, rate=0.1, count=130),
}
LARGE = {
    "peptides": PairCase(21_000, 96, count=20_001),
    "dropout": PairCase(15_000, 95, rate=0.1),
    "malnet": PairCase(22_000, 64, count=21_900, shift=100.0),
    "cluster": PairCase(1_900, 48),
}


def draw(case: PairCase, seed: int = 0) -> dict[str, Tensor]:
    """Numbers of the order of one, poisoned where nobody may look."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        # Rounded here, so that the truth starts from the same numbers as what it judges.
        return torch.randn(shape, generator=generator).double()

    shape, channels = (case.rows, case.channels), case.channels
    drawn = {
        "a": normal(*shape) + case.shift,
        "b": normal(*shape) - case.shift,
        "before": normal(*shape),
        "grad": normal(*shape),
        "weight": 1 + 0.3 * normal(2, channels),
        "bias": 0.3 * normal(2, channels),
        "mean": 0.2 * normal(2, channels),
        "variance": 1 + 0.5 * normal(2, channels).abs(),
    }
    if case.count is not None:
        for name in ("a", "b", "before", "grad"):
            drawn[name][case.count :] = torch.nan
    return {name: values.float().double() for name, values in drawn.items()}


def compute(case: PairCase, form: str, dtype: torch.dtype, device: str = "cpu") -> Results:
    """Output, gradients of all inputs, and what both running statistics become.

    Forms are the backends, and `apart`, the two single norms, one after the other.
    """
    drawn = {name: values.to(device, dtype) for name, values in draw(case).items()}
    leaves = {name: drawn[name].requires_grad_() for name in ("a", "b", "before")}
    if not case.has_before:
        del leaves["before"]
    norms = []
    for number, (eps, momentum) in enumerate(zip(EPS, MOMENTA, strict=True)):
        weight, bias = (drawn[name][number].clone().requires_grad_() for name in ("weight", "bias"))
        batches = torch.tensor(3, device=device)
        running = Running(drawn["mean"][number], drawn["variance"][number], batches, momentum)
        norms.append(Norm(weight, bias, running, eps))
    settings = {
        "is_training": case.is_training,
        "count": None if case.count is None else torch.tensor(case.count, device=device),
    }
    drop = Drop(case.rate, torch.tensor(-123456789123456789, device=device), 6)
    if form == "apart":
        first, second = norms
        near = batch_norm_act(leaves["a"], *first[:3], eps=first.eps, **settings)
        out = batch_norm_act(
            *(leaves["b"], *second[:3]), eps=second.eps, before=leaves.get("before"), after=near,
            drop_before=drop, **settings,
        )  # fmt: skip
    else:
        out = batch_norm_pair(**leaves, first=norms[0], second=norms[1], drop=drop,
                              backend=form, **settings)  # fmt: skip
    out.backward(drawn["grad"])
    found = {"y": out.detach(), **{f"d_{name}": values.grad for name, values in leaves.items()}}
    for number, norm in enumerate(norms):
        found |= {
            f"d_weight_{number}": norm.weight.grad, f"d_bias_{number}": norm.bias.grad,
            f"mean_{number}": norm.running.mean, f"variance_{number}": norm.running.variance,
            f"batches_{number}": norm.running.batches,
        }  # fmt: skip
    assert all(each is not None for each in found.values())
    return {name: values.cpu() for name, values in found.items()}


def assert_pair_right(case: PairCase, device: str = "cpu", is_repeated: bool = True) -> None:
    """As exact as two norms of plain PyTorch, and the same bits again."""
    truth = compute(case, "apart", torch.float64)
    plain = compute(case, "apart", torch.float32)
    ours = compute(case, "fused", torch.float32, device)
    assert_as_exact(ours, plain, truth)
    if is_repeated:
        assert_bit_equal(ours, compute(case, "fused", torch.float32, device))


def assert_rounded_rows_right(device: str = "cpu") -> None:
    """Rows in bfloat16 beside others in float32: each gradient in the type of its rows."""
    for low in ({"a"}, {"b"}, {"a", "b"}, {"before"}, {"a", "b", "before"}):
        generator = torch.Generator().manual_seed(0)
        found = []
        for form in ("reference", "fused"):
            generator.manual_seed(0)
            rows = {
                name: torch.randn(70, 20, generator=generator).bfloat16().to(device)
                for name in ("a", "b", "before")
            }
            rows = {name: x if name in low else x.float() for name, x in rows.items()}
            leaves = {name: values.requires_grad_() for name, values in rows.items()}
            norms = [
                Norm(*(torch.ones(20, device=device) for _ in range(2)),
                     Running(*(torch.ones(20, device=device) for _ in range(2))))
                for _ in range(2)
            ]  # fmt: skip
            out = batch_norm_pair(**leaves, first=norms[0], second=norms[1], backend=form)
            grad = torch.randn(70, 20, generator=generator).to(device, out.dtype)
            out.backward(grad)
            found.append([out.detach(), *(x.grad for x in leaves.values())])
            assert all(x.grad.dtype == x.dtype for x in leaves.values())
            assert out.dtype == (torch.bfloat16 if len(low) == len(rows) else torch.float32)
        for ours, plain in zip(*reversed(found), strict=True):
            torch.testing.assert_close(ours.float(), plain.float(), rtol=2e-2, atol=2e-2)


def assert_strided_rows_right(device: str = "cpu") -> None:
    """Rows that do not lie close, and a gradient that is one number expanded."""
    found = []
    for form in ("reference", "fused"):
        generator = torch.Generator().manual_seed(0)
        wide = torch.randn(40, 30, generator=generator).to(device).requires_grad_()
        norms = [
            Norm(*(torch.rand(10, generator=generator).to(device) for _ in range(2)),
                 Running(*(torch.ones(10, device=device) for _ in range(2))))
            for _ in range(2)
        ]  # fmt: skip
        a, b, before = wide.split(10, dim=1)
        out = batch_norm_pair(a, b, *norms, before=before, backend=form)
        # The gradient of a sum is one number, expanded; that of the first norm stays near 0.
        out.square().sum().backward(retain_graph=True)
        out.sum().backward()
        found.append([out.detach(), wide.grad])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


def check_operators() -> None:
    """PyTorch's own checks of both operators: what they change, alias and allocate."""
    a, b, before = torch.randn(3, 70, 3)
    weight, places = torch.rand(3), (torch.tensor(5), torch.tensor(60))
    operators = torch.ops.graphmamba
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_static")
    for rate in (0.0, 0.1):
        settings = rate, 4, True
        statistics = [x for _ in range(2) for x in (torch.zeros(3), torch.ones(3), torch.tensor(0))]
        for rows in ((a, b), (a.bfloat16(), b.bfloat16())):
            inputs = (*rows, before, *[weight] * 4, *places, *statistics, *settings, MOMENTA, EPS)
            torch.library.opcheck(operators.batch_norm_pair_fused.default, inputs, test_utils=tests)
        kept = torch.ones(2, 2, 3)
        inputs = (a, kept, a, b, before, weight, weight, *places, *settings)
        backward = operators.batch_norm_pair_fused_backward.default
        torch.library.opcheck(backward, inputs, test_utils=tests)
