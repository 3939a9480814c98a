"""How `graphmamba train` ends says whether the run is finished, and what stopped it."""

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from graphmamba.cli import main
from graphmamba.training.progress import Lines
from tests.commands.test_train import SMALL
from tests.test_cli import status_of

ENDLESS = ["train", *SMALL, "--train.epochs", "100000", "--run_dir", "run"]


@pytest.fixture
def after_epoch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Have something happen after the first epoch."""

    def arrange(happen: Callable[[], object]) -> None:
        left = [happen]
        monkeypatch.setattr(Lines, "on_epoch", lambda *_: left.pop()() if left else None)

    return arrange


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_run_that_a_signal_stops_ends_with_its_number(
    number: signal.Signals,
    status: int,
    after_epoch: Callable[[Callable[[], object]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    after_epoch(lambda: os.kill(os.getpid(), number))
    assert status_of(ENDLESS) == status
    assert "go on with    graphmamba train --resume run" in capsys.readouterr().out


def test_a_run_out_of_time_is_not_taken_for_one_that_is_finished() -> None:
    words = ["train", *SMALL, "--train.epochs", "1"]
    assert status_of([*words, "--run_dir", "run", "--max-time", "0"]) == 75
    assert status_of([*words, "--run_dir", "runs", "--seeds", "0,1", "--max-time", "0"]) == 75
    main(["train", "--resume", "run", "--max-time", "1000"])
    # nothing is left to stop
    main(["train", "--resume", "run", "--max-time", "0"])


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_is_removed_ends_the_run(
    replaced: bool,
    after_epoch: Callable[[Callable[[], object]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def remove() -> None:
        Path("run").rename("away")
        if replaced:
            shutil.copytree("away", "run")

    after_epoch(remove)
    assert status_of(ENDLESS) == 2
    about = "run_dir must stay while a run writes to it, and 'run' was removed or replaced"
    assert capsys.readouterr().err == f"graphmamba: {about}\n"
    names = {path.name for path in Path("away").iterdir()}
    assert not replaced or {path.name for path in Path("run").iterdir()} == names | {".lock"}
    assert replaced or not Path("run").exists()
