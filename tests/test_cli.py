import subprocess
import sys
from inspect import Parameter, getdoc, signature

import pytest

from graphmamba import __version__
from graphmamba.cli import COMMANDS, main

pytest.importorskip("jsonargparse")


def status_of(words: list[str]) -> int | str | None:
    with pytest.raises(SystemExit) as stopped:
        main(words)
    return stopped.value.code


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["bench"], ["bench", "--help"]])
def test_overview_lists_the_commands(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(words)
    assert "bench scan" in capsys.readouterr().out


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
        bare = option.name.rstrip("_")
        is_needed = option.default is Parameter.empty
        assert (bare.upper() if is_needed else f"--{bare}") in shown
        assert "_ " not in shown
        assert f"{option.name}: " in (getdoc(function) or "")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["dance"], "no command 'dance'"),
        (["bench", "dance"], "no command 'bench dance'"),
        (["--loud"], "no command '--loud'"),
        (["bench", "scan", "--loud"], "--loud"),
        (["bench", "scan", "surplus"], "surplus"),
        (["bench", "scan", "--sizes", "peptides,huge"], "'huge'"),
        (["bench", "scan", "--device", "abacus"], "'abacus'"),
        (["bench", "scan", "--device", "mps"], "'mps'"),
        (["bench", "scan", "--json", "no/such/folder/out.json"], "'no/such/folder/out.json'"),
    ],
)
def test_mistakes_give_one_line_and_status_2(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(words) == 2
    streams = capsys.readouterr()
    assert streams.out == ""
    assert told in streams.err
    assert streams.err.count("\n") == 1


def test_the_overview_waits_for_no_library() -> None:
    code = (
        "import sys; from graphmamba.cli import main; main(['--help']);"
        "assert not {'torch', 'jsonargparse'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_the_module_is_the_command() -> None:
    words = [sys.executable, "-m", "graphmamba", "dance"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
