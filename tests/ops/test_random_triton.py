"""The kernel that draws random bits, held to their definition."""

import pytest
import torch
from torch import Tensor

from graphmamba.ops.random import draw_bits, draw_signs
from tests.helpers.processes import only_interpreted, run_apart


def cases(device: str = "cpu") -> list[tuple[Tensor, Tensor | int]]:
    """Streams and counters of all shapes that meet."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.iinfo(torch.int64)
    streams = torch.randint(ends.min, ends.max, (7, 1), generator=generator).to(device)
    counters = torch.randint(ends.min, ends.max, (300,), generator=generator).to(device)
    one = streams[0, 0]
    return [
        (streams, counters), (one, counters), (streams, counters.int()), (one, streams[1, 0]),
        (counters[::3], counters[1::3]), (streams.expand(7, 300), counters.expand(7, 300)),
        (streams[:0], counters), (streams, 3), (one, -2), (one, 2**62), (streams[None], counters),
    ]  # fmt: skip


def assert_interpreted_kernel_draws_alike() -> None:
    from graphmamba.ops import random_triton as fused_bits

    for stream, counter in cases()[:-1]:
        assert torch.equal(fused_bits.draw_bits(stream, counter), draw_bits(stream, counter))


@only_interpreted
def test_the_interpreted_kernel_draws_the_same_bits() -> None:
    run_apart(
        "from tests.ops.test_random_triton import assert_interpreted_kernel_draws_alike\n"
        "assert_interpreted_kernel_draws_alike()\n",
        TRITON_INTERPRET="1",
    )


@pytest.mark.gpu
def test_a_gpu_draws_the_same_bits() -> None:
    for here, there in zip(cases(), cases("cuda"), strict=True):
        assert torch.equal(draw_bits(*there).cpu(), draw_bits(*here))
    signs = draw_signs(torch.tensor(-5), torch.arange(10))
    assert torch.equal(
        draw_signs(torch.tensor(-5, device="cuda"), torch.arange(10, device="cuda")).cpu(), signs
    )


def test_signs_are_the_lowest_bits_of_a_stream_of_their_own() -> None:
    stream = torch.tensor(11)
    bits = [int(draw_bits(draw_bits(stream, 0), place)) for place in range(20)]
    assert draw_signs(stream, torch.arange(20)).tolist() == [
        1.0 if bit % 2 == 0 else -1.0 for bit in bits
    ]
