import pytest

from graphmamba.bench.bound import chip_bound
from graphmamba.bench.shapes import BATCHES, BatchShape


@pytest.mark.parametrize(
    ("name", "forward_ms"),
    [
        ("peptides", 0.010),
        ("voc", 0.007),
        ("malnet16", 0.009),
        ("malnet256", 0.10),
        ("million", 0.46),
    ],
)
def test_bounds_of_the_quoted_batches(name: str, forward_ms: float) -> None:
    bound = chip_bound(BATCHES[name])
    assert bound.forward_ms == pytest.approx(forward_ms, rel=0.05)
    assert bound.both_ms == pytest.approx(3 * forward_ms, rel=0.05)


def test_memory_bounds_a_scan_with_few_states() -> None:
    shape = BatchShape("narrow", sequences=1, tokens=1000, longest=1000, inner=8, state=1)
    assert chip_bound(shape).forward_ms == pytest.approx(1e3 * 1000 * (4 * 8 + 2) * 4 / 4.3e12)
