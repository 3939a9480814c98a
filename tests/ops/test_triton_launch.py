"""Partial sums that programs have left, added up into the tensors that they hold."""

import pytest
import torch


def check_partial_sums(device: str) -> None:
    from graphmamba.ops.triton_launch import FEW_ROWS, add_partial_sums

    for count in (1, 33, FEW_ROWS, FEW_ROWS + 1, 3 * FEW_ROWS + 7):
        for shapes in (((5,),), ((3, 11), (4,)), ((2, 3), (1,), (40,), (6, 2))):
            lengths = [torch.Size(shape).numel() for shape in shapes]
            generator = torch.Generator().manual_seed(count)
            partial = torch.randn(count, sum(lengths), generator=generator).to(device)
            # what has not been written must not be counted
            sums = [torch.full(shape, torch.nan, device=device) for shape in shapes]
            add_partial_sums(partial, *sums)
            again = [torch.empty_like(each) for each in sums]
            add_partial_sums(partial, *again)
            parts = partial.double().split(lengths, dim=1)
            for one, repeated, part in zip(sums, again, parts, strict=True):
                assert torch.equal(one, repeated)
                torch.testing.assert_close(
                    one.double().flatten(), part.sum(0), rtol=1e-5, atol=1e-4
                )


def check_interpreted() -> None:
    check_partial_sums("cpu")


@pytest.mark.gpu
def test_a_gpu_adds_partial_sums_up() -> None:
    check_partial_sums("cuda")
