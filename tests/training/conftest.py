"""Runs by the hundred: that curves are drawn is tested with the commands, and how, by itself."""

from collections.abc import Iterator

import pytest

from tests.helpers.typecheck import typecheck_off

REPEATED = (
    "test_progress",
    "test_ema",
    "test_folds",
    "test_resume",
    "test_run_dir",
    "test_stop",
)
"""Files that train the same tiny model again and again; others check its shapes."""


@pytest.fixture(autouse=True, scope="module")
def without_curves(request: pytest.FixtureRequest) -> Iterator[None]:
    """Drawing takes as long as all else in a tiny run, and checking shapes longer."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmamba.training.fit.can_draw", lambda: False)
        if request.module.__name__.endswith(REPEATED):
            with typecheck_off():
                yield
        else:
            yield
