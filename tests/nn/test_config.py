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
