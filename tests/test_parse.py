"""Several words or numbers on one line."""

import pytest

from graphmamba.errors import UserError
from graphmamba.parse import numbers_in, words_among

SETS = ("mnist", "cifar10", "pattern")


@pytest.mark.parametrize("text", ["pattern,mnist", " pattern , mnist ", "[pattern, mnist]"])
def test_words_come_in_the_order_that_they_were_typed_in(text: str) -> None:
    assert words_among(text, SETS, "benchmarks") == ["pattern", "mnist"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("mnist,patern", "one of 'mnist', 'cifar10', 'pattern', got 'patern'; did you mean 'patt"),
        ("mnist,zinc", "one of 'mnist', 'cifar10', 'pattern', got 'zinc'$"),
        ("mnist,", "one of .* got ''$"),
        ("mnist,mnist", "given, each once, got 'mnist,mnist'"),
        ("", "given, each once, got ''"),
    ],
)
def test_other_words_are_refused(text: str, told: str) -> None:
    with pytest.raises(UserError, match=f"benchmarks must be {told}"):
        words_among(text, SETS, "benchmarks")


@pytest.mark.parametrize("text", ["0,12,3", "0, 12, 3", "[0, 12, 3]"])
def test_numbers_are_whole(text: str) -> None:
    assert numbers_in(text, "seeds") == [0, 12, 3]


@pytest.mark.parametrize("text", ["", "0,", "one", "-1", "1.5", "0,0", "0,00"])
def test_other_numbers_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=f"seeds must be whole numbers .* each once, got '{text}'"):
        numbers_in(text, "seeds")
