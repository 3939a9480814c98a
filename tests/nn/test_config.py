"""Configs that are built in Python are checked as those of files are."""

import pytest

from graphmamba.errors import UserError
from graphmamba.nn.config import (
    AttentionConfig,
    EncoderConfig,
    LaplacianConfig,
    ModelConfig,
    RandomWalkConfig,
    ResidualConfig,
)
from graphmamba.nn.model import build_layers
from tests.helpers.typecheck import typecheck_off


@pytest.mark.parametrize(
    ("kind", "field"),
    [
        (AttentionConfig, "heads"),
        (EncoderConfig, "has_edges"),
        (LaplacianConfig, "layers"),
        (ModelConfig, "channels"),
        (RandomWalkConfig, "has_norm"),
        (ResidualConfig, "norm"),
    ],
)
def test_values_of_another_type_are_rejected(kind: type, field: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=field):
        kind(**{field: "x"})


@pytest.mark.parametrize("degree", [0, 1, 2])
def test_an_expander_of_one_permutation_is_attended_along(degree: int) -> None:
    attention = AttentionConfig(expander_degree=degree)
    config = ModelConfig(channels=8, global_model="exphormer", attention=attention)
    (stack,) = build_layers(config)
    assert stack.has_expander == (degree > 0)
