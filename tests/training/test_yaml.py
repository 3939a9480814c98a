"""YAML that is no plain data is rejected in one line, and nothing in it is guessed."""

import re
from pathlib import Path

import pytest

from graphmamba.cli import main
from graphmamba.commands.arguments import Parser
from graphmamba.commands.train import train
from graphmamba.errors import UserError
from graphmamba.parse import read_yaml, words_in
from graphmamba.training.experiment import load_experiment
from graphmamba.training.run_dir import read_config
from tests.helpers.typecheck import typecheck_off

BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(20)
)
REJECTED = {
    "date that is none": ("train: {epochs: 2020-13-45}", "epochs must be int, got '2020-13-45'"),
    "date": ("dataset: 2020-01-01", "dataset must be .* got '2020-01-01'"),
    "explicit date": ("dataset: !!timestamp x", "must be YAML"),
    "hexadecimal": ("train: {epochs: 0x_}", "must be YAML: invalid literal"),
    "no integer": ("train: {epochs: !!int foo}", "must be YAML: invalid literal"),
    "no answer": ("encoder: {has_edges: !!bool maybe}", "must be YAML: 'maybe'"),
    "no number": ("model: {dropout: !!float x}", "must be YAML: could not convert"),
    "binary": ("dataset: !!binary x", "must be YAML"),
    "code": ("dataset: !!python/object/apply:os.getcwd []", "must be YAML: .*constructor"),
    "deep lists": ("model: " + "[" * 100_000, "must be YAML: it is nested too deeply"),
    "deep mappings": ("{a: " * 3000 + "1" + "}" * 3000, "must be YAML: it is nested too deeply"),
    "bomb": (f"{BOMB}dataset: *a20", "an alias is no value.*line 2"),
    "recursion": ("model: &a [*a]", "an alias is no value"),
    "two keys": ("train: {epochs: 1}\ntrain: {epochs: 2}", "key 'train' is given twice"),
    "two keys inside": (
        "train:\n  epochs: 1\n  epochs: 2",
        "'epochs' is given twice",
    ),
    "decimals": (f"train: {{epochs: {'9' * 5000}}}", "must be YAML: Exceeds the limit"),
    "list as a key": ("[a]: 1", "must be YAML: .*unhashable"),
    "NUL": ("a: \0", "must be YAML: unacceptable character"),
}


@pytest.mark.parametrize(("text", "message"), REJECTED.values(), ids=REJECTED)
def test_odd_yaml_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.compile(message, re.DOTALL)), typecheck_off():
        load_experiment(path)
    # that of a run is read by the same words
    with pytest.raises(UserError), typecheck_off():
        read_config(tmp_path)


def test_plain_yaml_means_what_it_did() -> None:
    text = "a: {b: [1, 0x1f, 1.5, true, null, .inf]}\nc: 1e-3\nd: 2020-01-01\n1: x"
    found = {"a": {"b": [1, 31, 1.5, True, None, float("inf")]}, "c": "1e-3", "d": "2020-01-01"}
    assert read_yaml(text, "text") == {**found, 1: "x"}


@pytest.mark.parametrize("text", ["0x_", "!!int foo", "[" * 100_000, "&a [*a]", "9" * 5000])
def test_odd_words_are_rejected_on_the_command_line_too(text: str) -> None:
    with pytest.raises(UserError, match=r"--train.epochs must be int, got"):
        Parser("train", train).read(["--train.epochs", text])
    with pytest.raises(UserError, match=r"words such as a,b|one of"):
        Parser("train", train).read(["--loggers", f"[{text}]]"])


def test_words_nested_deeply_are_no_words() -> None:
    with pytest.raises(UserError, match="label must be words such as"):
        words_in("[" * 50_000 + "]", "label")


def test_what_a_file_holds_cannot_move_the_cursor_of_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.yaml").write_text("dataset: '\u202e" + "x" * 5000 + "'\n")
    with pytest.raises(SystemExit) as ended:
        main(["train", str(tmp_path / "a.yaml")])
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told[:-1].isprintable()
    assert "\\u202exx" in told
    assert len(told) < 2100
