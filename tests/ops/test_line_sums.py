"""Lines that programs have left, added up into the tensors that they hold."""

import pytest
import torch
from torch import Tensor

from tests.helpers.processes import only_interpreted, run_apart


def assert_lines_are_added_up(device: str) -> None:
    from graphmamba.ops.line_sums import FEW_LINES, add_lines

    for count in (1, 33, FEW_LINES, FEW_LINES + 1, 3 * FEW_LINES + 7):
        for shapes in (((5,),), ((3, 11), (4,)), ((2, 3), (1,), (40,), (6, 2))):
            lengths = [torch.Size(shape).numel() for shape in shapes]
            generator = torch.Generator().manual_seed(count)
            lines = torch.randn(count, sum(lengths), generator=generator).to(device)
            # what has not been written must not be counted
            sums = [torch.full(shape, torch.nan, device=device) for shape in shapes]
            add_lines(lines, *sums)
            again: list[Tensor] = [torch.empty_like(each) for each in sums]
            add_lines(lines, *again)
            for one, repeated, part in zip(
                sums, again, lines.double().split(lengths, dim=1), strict=True
            ):
                assert torch.equal(one, repeated)
                torch.testing.assert_close(
                    one.double().flatten(), part.sum(dim=0), rtol=1e-5, atol=1e-4
                )


@only_interpreted
def test_interpreted_kernels_add_lines_up() -> None:
    run_apart(
        "from tests.ops.test_line_sums import *\nassert_lines_are_added_up('cpu')",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_a_gpu_adds_lines_up() -> None:
    assert_lines_are_added_up("cuda")
