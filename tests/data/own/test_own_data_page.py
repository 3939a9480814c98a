"""The page about own data is true: its files are read by its code."""

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[3] / "docs" / "own-data.md").read_text()


def test_every_example_runs_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "molecules").mkdir()
    files = re.findall(r"`(\w+\.csv)`\n\n```csv\n(.*?)```", PAGE, flags=re.DOTALL)
    assert [name for name, _ in files] == ["graphs.csv", "nodes.csv", "edges.csv"]
    for name, text in files:
        (tmp_path / "molecules" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMAMBA_ROOT", str(tmp_path / "sets"))
    examples = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert len(examples) == 5
    for example in examples:
        exec(example, {})
        printed = capsys.readouterr().out.split("\n")
        promised = re.findall(r"print\(.*\)  # (.*)", example)
        for line, promise in zip(printed, promised, strict=False):
            assert line.replace("torch.Size(", "").replace("])", "]") == promise
