"""What commands print: each line as it is, in one of the processes."""

import pytest

from graphmamba.commands.printing import say


@pytest.mark.parametrize("path", ["exp[a]", "q[/b]", ":dog:", "a b " * 50])
def test_a_path_is_printed_as_it_is(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    say(f"best weights  {path}")
    assert capsys.readouterr().out == f"best weights  {path}\n"


def test_the_first_process_speaks_for_all(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    say("one")
    monkeypatch.setenv("RANK", "0")
    say("another")
    assert capsys.readouterr().out == "another\n"
