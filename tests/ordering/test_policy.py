"""Policies are plain values that reject what makes no sense."""

import pytest

from graphmamba.errors import UserError
from graphmamba.ordering import ABLATIONS, PUBLISHED, OrderPolicy
from tests.helpers.typecheck import typecheck_off


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"score": "pagerank"}, "score must be one of .*'degree'.* got 'pagerank'"),
        ({"noise": "loud"}, "noise must be one of .* got 'loud'"),
        ({"noise_scope": "world"}, "noise_scope must be one of .* got 'world'"),
        ({"clusters": "last"}, "clusters must be one of .* got 'last'"),
        ({"bin_assignment": "fair"}, "bin_assignment must be one of .* got 'fair'"),
        ({"direction": "up"}, "direction must be one of .* got 'up'"),
        ({"bins": 0}, "bins must be at least 1, got 0"),
        ({"bins": 10**9}, "bins must be at most 65536, got 1000000000"),
        ({"train_samples": 0}, "train_samples must be at least 1, got 0"),
        ({"eval_samples": -1}, "eval_samples must be at least 1, got -1"),
        ({"noise_width": 0.0}, "noise_width must be positive and finite, got 0.0"),
        ({"noise_width": float("nan")}, "noise_width must be positive and finite, got nan"),
        ({"score": "none", "noise": "normal"}, "noise must be .* with score='none', got 'normal'"),
        (
            {"score": "spectral", "noise": "none"},
            "noise must be 'tie_breaking' with score='spectral', got 'none'",
        ),
        ({"num_eigenvectors": 0}, "num_eigenvectors must be at least 1, got 0"),
    ],
)
def test_wrong_fields_are_rejected(arguments: dict[str, object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        OrderPolicy(**arguments)


def test_one_sample_is_enough_where_all_are_alike() -> None:
    assert OrderPolicy(noise="none").samples(is_training=False) == 1
    assert OrderPolicy(noise="none", bins=2).samples(is_training=False) == 5
    assert (
        OrderPolicy(noise="none", bins=2, bin_assignment="modulo").samples(is_training=False) == 1
    )


def test_training_and_evaluation_have_their_own_samples() -> None:
    policy = OrderPolicy(train_samples=2, eval_samples=7)
    assert policy.samples(is_training=True) == 2
    assert policy.samples(is_training=False) == 7


def test_the_defaults_are_the_published_main_variant() -> None:
    main = PUBLISHED["Mamba_Hybrid_Degree_Noise"]
    assert main == OrderPolicy() == ABLATIONS["degree"]
    assert (main.score, main.noise, main.bins, main.eval_samples) == (
        "degree",
        "tie_breaking",
        1,
        5,
    )


def test_the_published_tables_are_complete() -> None:
    assert len(ABLATIONS) == 5
    assert len(PUBLISHED) == 15
    assert ABLATIONS["none"].is_identity
    assert not any(policy.is_identity for name, policy in PUBLISHED.items() if name != "Mamba")
