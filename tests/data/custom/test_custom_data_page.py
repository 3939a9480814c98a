"""The pages about custom data are true: their files are read by their code, and commands run."""

import re
import shlex
from pathlib import Path

import pytest

from graphmamba.cli import main

DOCS = Path(__file__).parents[3] / "docs"
NAMES = ("custom-data", "file-formats", "targets", "single-graph")
PAGES = "\n".join((DOCS / f"{name}.md").read_text() for name in NAMES)
SMALL = ["--model.channels", "8", "--model.layers", "1", "--train.epochs", "1"]


@pytest.fixture(autouse=True)
def molecules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of the pages, where its examples look for them."""
    (tmp_path / "molecules").mkdir()
    files = re.findall(r"`(\w+\.csv)`\n\n```csv\n(.*?)```", PAGES, flags=re.DOTALL)
    assert [name for name, _ in files] == ["graphs.csv", "nodes.csv", "edges.csv"]
    for name, text in files:
        (tmp_path / "molecules" / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path / "sets"))


def test_every_example_runs_and_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    examples = re.findall(r"```python\n(.*?)```", PAGES, flags=re.DOTALL)
    assert len(examples) == 6
    for example in examples:
        exec(example, {})
        printed = capsys.readouterr().out.split("\n")
        promised = re.findall(r"print\(.*\)  # (.*)", example)
        for line, promise in zip(printed, promised, strict=False):
            assert line.replace("torch.Size(", "").replace("])", "]") == promise


def test_commands_show_train_and_score_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    blocks = re.findall(r"```bash\n(.*?)```", PAGES, flags=re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if "molecules" in line]
    show, train, by_metric, score, score_part = (
        shlex.split(line, comments=True)[1:] for line in lines
    )
    main(show)
    assert Path("info.png").is_file()
    main([*train, *SMALL, "--run_dir", "run"])
    assert Path("run/best.safetensors").is_file()
    assert "graphmamba predict run" in capsys.readouterr().out
    main([*by_metric, *SMALL, "--run_dir", "by_metric"])
    assert "MCC" in capsys.readouterr().out
    for words, graphs in ((score, 4), (score_part, 1)):
        main(["run" if word == "RUN" else word for word in words])
        assert f"on molecules, graphs scored: {graphs}" in capsys.readouterr().out
