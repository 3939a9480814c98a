import pytest

from tests.helpers.agreement import poison_allocations


@pytest.fixture
def poison(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Every fresh tensor of reals is NaN, so that what is not written shows; `undo` ends it."""
    poison_allocations(monkeypatch)
    return monkeypatch
