"""Counter-based random numbers."""

import pytest
import torch
from torch import Tensor

from graphmamba.ops.random import draw_bits, draw_bits_by_kernel, draw_signs, take_bits


def splitmix64(state: int, draws: int) -> list[int]:
    """The published generator in Python's own integers, read as signed."""
    mask, results = (1 << 64) - 1, []
    for _ in range(draws):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        results.append(z - (1 << 64) if z >> 63 else z)
    return results


def test_draws_are_those_of_splitmix64() -> None:
    for seed in (0, 1, 2**62, -5):
        drawn = draw_bits(torch.tensor(seed), torch.arange(20))
        assert drawn.tolist() == splitmix64(seed, 20)


def test_every_bit_is_a_fair_coin() -> None:
    drawn = draw_bits(draw_bits(torch.tensor(3), 0), torch.arange(20_000))
    share = torch.stack([take_bits(drawn, bit, 1) for bit in range(64)]).double().mean(dim=1)
    # Five standard deviations of the mean of 20,000 coins.
    assert (share - 0.5).abs().max() < 5 * 0.5 / 20_000**0.5


def test_neighbouring_streams_are_unrelated() -> None:
    streams = draw_bits(torch.tensor(0), torch.arange(64))[:, None]
    drawn = take_bits(draw_bits(streams, torch.arange(2_000)), 36, 28).double()
    correlation = torch.corrcoef(drawn) - torch.eye(64)
    assert correlation.abs().max() < 0.15
    assert torch.unique(draw_bits(streams, torch.arange(2_000))).numel() == 64 * 2_000


def test_take_bits_reads_the_top_without_sign() -> None:
    assert take_bits(torch.tensor(-1), 36, 28).item() == 2**28 - 1


def test_signs_are_the_lowest_bits_of_a_stream_of_their_own() -> None:
    stream = torch.tensor(11)
    bits = [int(draw_bits(draw_bits(stream, 0), place)) for place in range(20)]
    assert draw_signs(stream, torch.arange(20)).tolist() == [
        1.0 if bit % 2 == 0 else -1.0 for bit in bits
    ]


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


def check_interpreted() -> None:
    for stream, counter in cases()[:-1]:
        assert torch.equal(draw_bits_by_kernel(stream, counter), draw_bits(stream, counter))


@pytest.mark.gpu
def test_a_gpu_draws_the_same_bits() -> None:
    for here, there in zip(cases(), cases("cuda"), strict=True):
        assert torch.equal(draw_bits(*there).cpu(), draw_bits(*here))
    stream, counters = torch.tensor(-5), torch.arange(10)
    assert torch.equal(
        draw_signs(stream.cuda(), counters.cuda()).cpu(), draw_signs(stream, counters)
    )
