"""Runs by the hundred: that curves are drawn is tested with the commands, and how, by itself."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def without_curves() -> Iterator[None]:
    """Drawing takes as long as all else in a tiny run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmamba.training.fit.can_draw", lambda: False)
        yield
