"""Policies are plain values that reject what makes no sense."""

from graphmamba.ordering import ABLATIONS, PUBLISHED, OrderPolicy


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
