"""Several words or numbers on one line, and words that were meant for others."""

import pytest

from graphmamba.commands.arguments import entries_of
from graphmamba.errors import UserError
from graphmamba.parse import OTHER_NAMES, numbers_in, similar, words_among
from graphmamba.training.experiment import Experiment, RunOptions

TRAIN = (
    *entries_of(Experiment), *entries_of(RunOptions),
    "name", "seeds", "run_dir", "resume", "data_dir", "print_config",
)  # fmt: skip
SETS = ("mnist", "cifar10", "pattern")


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
def test_other_words_are_rejected(text: str, told: str) -> None:
    with pytest.raises(UserError, match=f"benchmarks must be {told}"):
        words_among(text, SETS, "benchmarks")


@pytest.mark.parametrize("text", ["", "0,", "one", "-1", "1.5", "0,00", "9" * 5000], ids=len)
def test_other_numbers_are_rejected(text: str) -> None:
    with pytest.raises(UserError, match=f"seeds must be whole numbers .* each once, got '{text}'"):
        numbers_in(text, "seeds")


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("lr", "optim.lr"),
        ("lerning_rate", "optim.lr"),
        ("model.lr", "optim.lr"),
        ("max_epochs", "train.epochs"),
        ("dropout", "model.dropout"),
        ("attention.dropout", "model.attention.dropout"),
        ("layrs", "model.layers"),
        ("encoder.heads", "encoder.laplacian.heads"),
        ("batch", "train.batch_size"),
        ("hidden_dim", "model.channels"),
        ("d_state", "model.mamba.state"),
        ("gpu", "device"),
        ("patience", "optim.patience"),
        ("sede", "seed"),
        ("model", "name"),
        ("output_dir", "run_dir"),
        ("order.score", "model.ordering.score"),
        ("colour", None),
    ],
)
def test_what_was_meant_is_found_by_meaning_and_by_spelling(typed: str, meant: str | None) -> None:
    assert similar(typed, TRAIN) == meant


def test_other_names_stand_for_keys_that_there_are() -> None:
    last_parts = {key.rpartition(".")[2] for key in TRAIN} | {"output"}
    assert set(OTHER_NAMES.values()) <= last_parts
    assert similar("lr", ["dataset", "batch_size"]) is None
    named = [*SETS, *(f"{each}/{model}" for each in SETS for model in ("gcn", "gin"))]
    for typed, meant in (
        ("mnst", "mnist"),
        ("patern/gcn", "pattern/gcn"),
        ("mnist/gnc", "mnist/gcn"),
    ):
        assert similar(typed, named) == meant
