"""How `graphmamba train` ends says whether the run is finished, and what stopped it."""

import os
import signal

import pytest

from graphmamba.cli import main
from graphmamba.training.progress import Lines
from tests.commands.test_train import SMALL
from tests.test_cli import status_of


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_run_that_a_signal_stops_ends_with_its_number(
    number: int, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Lines, "on_epoch", lambda *_: os.kill(os.getpid(), number))
    words = ["train", *SMALL, "--train.epochs", "100000", "--run_dir", "run"]
    assert status_of(words) == status
    assert "go on with    graphmamba train --resume run" in capsys.readouterr().out


def test_a_run_out_of_time_is_not_taken_for_one_that_is_finished() -> None:
    words = ["train", *SMALL, "--train.epochs", "1"]
    assert status_of([*words, "--run_dir", "run", "--max-time", "0"]) == 75
    main(["train", "--resume", "run", "--max-time", "1000"])
    # nothing is left to stop
    main(["train", "--resume", "run", "--max-time", "0"])
