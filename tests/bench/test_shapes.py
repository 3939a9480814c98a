import pytest
import torch
from torch.nn import functional

from graphmamba.bench.shapes import BATCHES, BatchShape, draw_lengths, scan_inputs

CPU = torch.device("cpu")


@pytest.mark.parametrize("shape", BATCHES.values(), ids=BATCHES.keys())
def test_lengths_add_up_exactly(shape: BatchShape) -> None:
    for seed in range(3):
        lengths = draw_lengths(shape, seed)
        assert len(lengths) == shape.sequences
        assert sum(lengths) == shape.tokens
        assert max(lengths) == shape.longest
        assert min(lengths) >= 1


@pytest.mark.parametrize(
    ("sequences", "tokens", "longest"),
    [(1, 7, 7), (5, 5, 1), (4, 40, 10), (4, 13, 10), (4, 39, 10)],
)
def test_lengths_exist_up_to_the_tightest_batches(
    sequences: int, tokens: int, longest: int
) -> None:
    shape = BatchShape("tight", sequences, tokens, longest, inner=1)
    lengths = draw_lengths(shape)
    assert (len(lengths), sum(lengths), max(lengths)) == (sequences, tokens, longest)


@pytest.mark.parametrize(("sequences", "tokens", "longest"), [(4, 41, 10), (4, 12, 10), (1, 3, 2)])
def test_batches_that_cannot_be_are_refused(sequences: int, tokens: int, longest: int) -> None:
    with pytest.raises(ValueError, match=f"exactly {tokens} tokens"):
        BatchShape("impossible", sequences, tokens, longest, inner=1)


def test_a_seed_decides_everything() -> None:
    shape = BATCHES["voc"]
    one, same, other = (scan_inputs(shape, device=CPU, seed=seed) for seed in (4, 4, 5))
    assert all(torch.equal(one.leaves[name], same.leaves[name]) for name in one.leaves)
    assert torch.equal(one.cu_seqlens, same.cu_seqlens)
    assert not torch.equal(one.leaves["u"], other.leaves["u"])
    assert not torch.equal(one.cu_seqlens, other.cu_seqlens)


def test_step_sizes_are_those_of_a_fresh_block() -> None:
    leaves = scan_inputs(BATCHES["voc"], device=CPU).leaves
    steps = functional.softplus(leaves["delta"] + leaves["delta_bias"]).detach()
    # The bias alone stays inside [0.001, 0.1]; the projection moves it by some tenths.
    assert 5e-4 < steps.min() < 5e-3
    assert 5e-2 < steps.max() < 2e-1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_inputs_have_the_shape_that_the_scan_takes(dtype: torch.dtype) -> None:
    shape = BatchShape("small", sequences=3, tokens=20, longest=12, inner=6, state=4)
    inputs = scan_inputs(shape, device=CPU, dtype=dtype)
    sizes = {name: tuple(leaf.shape) for name, leaf in inputs.leaves.items()}
    assert sizes == {
        "u": (20, 6),
        "delta": (20, 6),
        "A": (6, 4),
        "B": (20, 4),
        "C": (20, 4),
        "D": (6,),
        "z": (20, 6),
        "delta_bias": (6,),
    }
    assert all(leaf.dtype == dtype and leaf.requires_grad for leaf in inputs.leaves.values())
    assert inputs.cu_seqlens.tolist()[::3] == [0, 20]
    assert inputs.bytes == (3 * 120 + 24 + 2 * 80 + 2 * 6) * dtype.itemsize
