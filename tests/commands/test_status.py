"""How `graphmamba train` ends says whether the run is finished, and what stopped it."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from graphmamba.cli import main
from tests.commands.test_train import SMALL
from tests.test_cli import status_of

ENDLESS = ["train", *SMALL, "--train.epochs", "100000", "--run_dir", "run"]


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)], ids=["SIGTERM", "Ctrl-C"]
)
def test_a_run_that_a_signal_stops_ends_with_its_number(
    number: signal.Signals, status: int
) -> None:
    command = [sys.executable, "-m", "graphmamba", *ENDLESS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("epoch 1/"):
            assert process.poll() is None
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == status
    assert "go on with    graphmamba train --resume run" in rest


def test_a_run_out_of_time_is_not_taken_for_one_that_is_finished() -> None:
    words = ["train", *SMALL, "--train.epochs", "1"]
    assert status_of([*words, "--run_dir", "run", "--max-time", "0"]) == 75
    assert status_of([*words, "--run_dir", "runs", "--seeds", "0,1", "--max-time", "0"]) == 75
    main(["train", "--resume", "run", "--max-time", "1000"])
    # nothing is left to stop
    main(["train", "--resume", "run", "--max-time", "0"])


@pytest.mark.parametrize("replaced", [False, True])
def test_a_folder_that_is_removed_ends_the_run(replaced: bool) -> None:
    command = [sys.executable, "-m", "graphmamba", *ENDLESS]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while not process.stdout.readline().startswith("epoch 1/"):
            assert process.poll() is None
        Path("run").rename("away")
        if replaced:
            shutil.copytree("away", "run")
            before = sorted(Path("run").iterdir())
        told = process.stderr.read()
    assert process.returncode == 2
    about = "run_dir must stay while a run writes to it, and 'run' was removed or replaced"
    assert told == f"graphmamba: {about}\n"
    if replaced:
        assert sorted(Path("run").iterdir()) == before
    else:
        assert not Path("run").exists()
