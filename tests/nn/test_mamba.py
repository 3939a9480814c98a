"""The Mamba block: its size, its first values, its recurrence."""

import math

import pytest
import torch
from torch.nn import functional

from graphmamba.nn import MambaBlock, MambaConfig

REFERENCE = MambaConfig(backend="reference")


def count(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_names_and_shapes_are_those_of_the_original() -> None:
    shapes = {name: tuple(value.shape) for name, value in MambaBlock(96).state_dict().items()}
    assert shapes == {
        "in_proj.weight": (192, 96),
        "conv1d.weight": (96, 1, 4),
        "conv1d.bias": (96,),
        "x_proj.weight": (38, 96),
        "dt_proj.weight": (96, 6),
        "dt_proj.bias": (96,),
        "A_log": (96, 16),
        "D": (96,),
        "out_proj.weight": (96, 96),
    }


def test_initial_values() -> None:
    block = MambaBlock(512, MambaConfig(expand=2))
    dt = functional.softplus(block.dt_proj.bias.double())
    assert dt.min() >= 1e-3 * 0.999
    assert dt.max() <= 1e-1 * 1.001
    # Log-uniform: the median of 1,024 draws is near the geometric mean of the ends.
    assert 0.8e-2 < dt.median() < 1.25e-2
    rates = torch.arange(1.0, 17.0).expand(1024, 16)
    assert torch.allclose(-torch.exp(block.A_log), -rates)
    assert torch.equal(block.D, torch.ones(1024))
    for values, bound in (
        (block.in_proj.weight, 512**-0.5),
        (block.conv1d.weight, 0.5),
        (block.conv1d.bias, 0.5),
        (block.x_proj.weight, 1024**-0.5),
        (block.dt_proj.weight, 32**-0.5),
        (block.out_proj.weight, 1024**-0.5),
    ):
        assert values.abs().max() <= bound
        assert values.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.1)


def written_out(block: MambaBlock, rows: torch.Tensor, is_held: bool = False) -> torch.Tensor:
    """One sequence, step by step, as the reference text has it."""
    length, inner = rows.shape[0], block.D.shape[0]
    x, z = block.in_proj(rows).chunk(2, dim=-1)
    padded = functional.pad(x.T[None], (block.conv1d.kernel_size[0] - 1, 0))
    weight, bias = block.conv1d.weight, block.conv1d.bias
    u = functional.silu(functional.conv1d(padded, weight, bias, groups=inner)[0].T)
    s, B, C = block.x_proj(u).split([block.rank, 16, 16], dim=-1)
    dt = functional.softplus(block.dt_proj(s))
    A = -torch.exp(block.A_log)
    h, y = torch.zeros_like(A), []
    for t in range(length):
        step = dt[t, :, None]  # [inner, 1]
        weight = torch.expm1(step * A) / A if is_held else step
        h = torch.exp(step * A) * h + weight * B[t] * u[t, :, None]
        y.append(h @ C[t] + block.D * u[t])
    return block.out_proj(torch.stack(y) * functional.silu(z))


def test_output_is_the_recurrence_of_the_paper() -> None:
    torch.manual_seed(0)
    block = MambaBlock(8, REFERENCE).double()
    rows = torch.randn(11, 8, dtype=torch.float64)
    cu_seqlens = torch.tensor([0, 6, 7, 7, 11], dtype=torch.int32)
    out = block(rows, cu_seqlens)
    expected = [written_out(block, part) for part in (rows[:6], rows[6:7], rows[7:])]
    assert torch.allclose(out, torch.cat(expected), atol=1e-10)


@pytest.mark.parametrize("inner", [2, 12])
def test_an_inner_width_is_that_of_the_scan_alone(inner: int) -> None:
    torch.manual_seed(0)
    block = MambaBlock(8, MambaConfig(inner=inner, expand=3, backend="reference")).double()
    assert block.in_proj.weight.shape == (2 * inner, 8)
    assert block.A_log.shape == (inner, 16)
    assert block.out_proj.weight.shape == (8, inner)
    rows = torch.randn(7, 8, dtype=torch.float64)
    out = block(rows, torch.tensor([0, 7], dtype=torch.int32))
    assert torch.allclose(out, written_out(block, rows), atol=1e-10)


def test_order_visits_rows_and_puts_them_back() -> None:
    torch.manual_seed(0)
    block = MambaBlock(8, REFERENCE).double()
    rows = torch.randn(5, 8, dtype=torch.float64)
    order = torch.tensor([3, 0, 4, 1, 2])
    cu_seqlens = torch.tensor([0, 5], dtype=torch.int32)
    out = block(rows, cu_seqlens, order)
    assert torch.allclose(out[order], written_out(block, rows[order]), atol=1e-10)


def test_samples_are_averaged() -> None:
    torch.manual_seed(0)
    block = MambaBlock(8, REFERENCE).double()
    rows = torch.randn(4, 8, dtype=torch.float64)
    orders = [torch.randperm(4) for _ in range(3)]
    single = torch.tensor([0, 1, 4], dtype=torch.int32)
    passes = [block(rows, single, order) for order in orders]
    joint = torch.cat([order + 4 * sample for sample, order in enumerate(orders)])
    cu_seqlens = torch.tensor([0, 1, 4, 5, 8, 9, 12], dtype=torch.int32)
    together = block(rows, cu_seqlens, joint, samples=3)
    assert torch.allclose(together, torch.stack(passes).mean(dim=0), atol=1e-12)


def test_reverse_is_the_other_way_round() -> None:
    torch.manual_seed(0)
    forward = MambaBlock(8, REFERENCE).double()
    reverse = MambaBlock(8, REFERENCE, direction="reverse").double()
    reverse.load_state_dict(forward.state_dict())
    rows = torch.randn(6, 8, dtype=torch.float64)
    cu_seqlens = torch.tensor([0, 6], dtype=torch.int32)
    assert torch.allclose(
        reverse(rows, cu_seqlens).flip(0), forward(rows.flip(0), cu_seqlens), atol=1e-12
    )


def test_bidirectional_is_the_mean_of_both_ways() -> None:
    torch.manual_seed(0)
    both = MambaBlock(8, REFERENCE, direction="bidirectional").double()
    ways = {
        name: MambaBlock(8, REFERENCE, direction=name).double() for name in ("forward", "reverse")
    }
    state = both.state_dict()
    back = {
        name.removeprefix("reverse_path."): value
        for name, value in state.items()
        if name.startswith("reverse_path.")
    }
    own = {name: value for name, value in state.items() if not name.startswith("reverse_path.")}
    ways["forward"].load_state_dict(own)
    ways["reverse"].load_state_dict({**own, **back})
    rows = torch.randn(6, 8, dtype=torch.float64)
    cu_seqlens = torch.tensor([0, 4, 6], dtype=torch.int32)
    mean = sum(way(rows, cu_seqlens) for way in ways.values()) / 2
    assert torch.allclose(both(rows, cu_seqlens), mean, atol=1e-12)


def test_zero_order_hold_is_what_the_paper_prints() -> None:
    torch.manual_seed(0)
    block = MambaBlock(8, MambaConfig(discretization="zoh", backend="reference")).double()
    # Steps near 1, where both rules are far apart.
    block.dt_proj.bias.data.fill_(1.0)
    rows = torch.randn(6, 8, dtype=torch.float64)
    out = block(rows, torch.tensor([0, 6], dtype=torch.int32))
    assert torch.allclose(out, written_out(block, rows, is_held=True), atol=1e-10)
    assert not torch.allclose(out, written_out(block, rows), atol=1e-2)
