"""The seed of each forward pass."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits
from graphmamba.ordering import DrawnSeed, NoiseSeed
from tests.helpers.typecheck import typecheck_off


def test_training_draws_a_new_seed_each_pass() -> None:
    seed = NoiseSeed(7)
    assert len({int(seed()) for _ in range(50)}) == 50


def test_evaluation_always_has_the_same() -> None:
    seed = NoiseSeed(7)
    seed()
    assert {int(seed.eval()()) for _ in range(3)} == {7}


def test_a_resumed_run_goes_on_where_it_stopped() -> None:
    first = NoiseSeed(7)
    for _ in range(3):
        first()
    second = NoiseSeed(0)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(), second())


def test_dropouts_differ_by_process_and_part() -> None:
    seed, other = NoiseSeed(7), NoiseSeed(7)
    other.process = 1
    drawn, same = seed(), other()
    assert torch.equal(drawn, same)
    together = torch.stack(
        [*seed.of_dropouts(drawn, range(5)), *other.of_dropouts(drawn, range(5))]
    )
    assert len(together.unique()) == 10


def test_dropouts_follow_no_order() -> None:
    seed = NoiseSeed(7)
    drawn = seed()
    layers = draw_bits(drawn, torch.arange(20))
    dropouts = torch.stack(seed.of_dropouts(drawn, range(20)))
    assert not torch.isin(dropouts, torch.cat([layers, drawn[None]])).any()


def test_a_pass_that_autograd_makes_anew_is_rejected() -> None:
    seed = NoiseSeed(7)
    rows = torch.ones(3, requires_grad=True)
    found = checkpoint(lambda x: (x * (seed() % 5)).square(), rows, use_reentrant=False)
    with pytest.raises(UserError, match="must not be checkpointed as a whole"):
        found.sum().backward()
    assert int(seed.passes) == 1


def test_a_drawn_seed_stays_the_same_at_evaluation() -> None:
    seed = DrawnSeed().eval()
    assert len({int(seed()) for _ in range(3)}) == 1
    assert len({int(DrawnSeed().eval()()) for _ in range(20)}) == 20
    assert int(DrawnSeed(7).eval()()) == 7


@pytest.mark.parametrize("kind", [NoiseSeed, DrawnSeed])
@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (1.5, "seed must be int, got 1.5"),
        ("a", "seed must be int, got 'a'"),
        (2**63, r"seed must be in -2\*\*63 to 2\*\*63 - 1, got 9223372036854775808"),
        (-(2**63) - 1, r"seed must be in -2\*\*63 to 2\*\*63 - 1, got -9223372036854775809"),
    ],
)
def test_seeds_that_are_no_64_bit_integers_are_rejected(
    seed: object, message: str, kind: type[NoiseSeed | DrawnSeed]
) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        kind(seed)
