import os
import subprocess
import sys
from inspect import Parameter, getdoc, signature
from pathlib import Path

import pytest
import torch

from graphmamba import __version__
from graphmamba.cli import COMMANDS, main


def status_of(words: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    return stopped.value.code


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["bench"], ["bench", "--help"]])
def test_overview_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(words)
    shown = capsys.readouterr().out
    assert "bench scan" in shown
    usage = "graphmamba bench COMMAND" if "bench" in words else "graphmamba COMMAND"
    assert shown.startswith(f"usage: {usage} [OPTIONS]\n")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--version"])
    assert capsys.readouterr().out == f"graphmamba {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_explained(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    function = COMMANDS[name].load()
    assert status_of([*name.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    for option in signature(function).parameters.values():
        assert f"{option.name}: " in (getdoc(function) or "")
        assert "_ " not in shown
        marks = getattr(option.annotation, "__metadata__", ())
        if marks:
            assert marks[0].title in shown
            continue
        bare = option.name.rstrip("_")
        comes_first = option.default is Parameter.empty or option.name == COMMANDS[name].first
        assert (bare.upper() if comes_first else f"--{bare}") in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["dance"], "no command 'dance'"),
        (["bench", "scan", "--loud"], "--loud"),
        (["bench", "scan", "--sizes", "peptides,huge"], "'huge'"),
        (["bench", "scan", "--device", "abacus"], "'abacus'"),
        (["bench", "scan", "--devise", "cpu"], "did you mean '--device'?"),
        (
            ["train", "mnst"],
            "no experiment 'mnst', and no such folder or file; did you mean 'mnist'?",
        ),
        (["train", "mnist/gps-perf"], "did you mean 'mnist/gps-performer'?"),
        (["train", "--metric", "f1"], "--metric must not be 'f1'; did you mean 'macro_f1'?"),
        (["train", "absent.yaml"], "absent.yaml"),
        (["train", "--model.layrs", "2"], "did you mean '--model.layers'?"),
        (["train", "--model.layers", "two"], "--model.layers must be int, got 'two'"),
        (["train", "--model.layers", "0"], "model.layers must be at least 1, got 0"),
        (["train", "--lr", "1e-3"], "no option '--lr'; did you mean '--optim.lr'?"),
        (["train", "--seed", "-1"], "seed must be at least 0 and less than 2**63, got -1"),
        (["train", "--seeds", "0,x"], "seeds must be whole numbers"),
        (["train", "--precision", "16"], "--precision must be one of '32-true', 'bf16-mixed'"),
        (["train", "--resume", "no/run"], "'no/run' must be the folder of a run"),
        (["train", "mnist", "--resume", "no/run"], "must not be given 'mnist'"),
        (["train", "--data.path", "no/graphs"], "no 'no/graphs'"),
        (["evaluate"], "a run folder or file of weights"),
        (["evaluate", "no/run"], "got no 'no/run'"),
        (["evaluate", "no/run", "--split", "half"], "split must be one of"),
        (["evaluate", "--pretrained", "mnist", "--weights", "no/w"], "no pretrained weights"),
        (["predict", "no/run", "--bugdet", "3"], "did you mean '--budget'?"),
        (["train", "malnet-tiny"], "graphmamba data build malnet-tiny"),
    ],
)
def test_errors_give_one_line_and_status_2(
    words: list[str],
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert status_of(words) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert told in streams.err
    assert streams.err.count("\n") == 1
    assert [*tmp_path.iterdir()] == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU would be taken")
def test_a_device_that_is_not_there_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(["train", "--device", "cuda"]) == 2
    assert "got 'cuda'" in capsys.readouterr().err
    assert status_of(["train", "--devices", "4096"]) == 2
    assert "devices must be at most the" in capsys.readouterr().err


def test_of_several_processes_one_reports_the_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert status_of(["train", "mnst"]) == 2
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    assert status_of(["train", "mnst"]) == 2
    assert "did you mean 'mnist'" in capsys.readouterr().err


def test_the_overview_waits_for_no_library() -> None:
    code = (
        "import sys; from graphmamba.cli import main; main(['--help']);"
        "assert not {'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("words", [["study", "--help"], ["--help"]])
def test_a_reader_that_has_enough_is_no_error(words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    called = [sys.executable, "-m", "graphmamba", *words]
    done = subprocess.run(called, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")
