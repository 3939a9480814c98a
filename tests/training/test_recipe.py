"""How a model is trained, as data."""

import pytest

from graphmamba.errors import UserError
from graphmamba.training.recipe import Recipe
from tests.helpers.typecheck import typecheck_off


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "sgd"}, "recipe.optimizer must be one of 'adamw', 'adam', got 'sgd'"),
        ({"schedule": "step"}, "recipe.schedule must be one of"),
        ({"loss": "hinge"}, "recipe.loss must be one of None, .*, got 'hinge'"),
        ({"batch_size": 0}, "recipe.batch_size must be at least 1, got 0"),
        ({"warmup": -1}, "recipe.warmup must be at least 0, got -1"),
        ({"clip": float("nan")}, "recipe.clip must be at least 0, got nan"),
        ({"learning_rate": 0.0}, "recipe.learning_rate must be positive and finite, got 0.0"),
        ({"factor": 1.0}, "recipe.factor must be between 0 and 1, got 1.0"),
        ({"average": 1.0}, r"recipe.average must be in \[0, 1\), got 1.0"),
        ({"average": -0.1}, r"recipe.average must be in \[0, 1\), got -0.1"),
        ({"average": float("nan")}, r"recipe.average must be in \[0, 1\), got nan"),
    ],
)
def test_recipes_that_cannot_work_are_refused(options: dict[str, object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        Recipe(**options)
