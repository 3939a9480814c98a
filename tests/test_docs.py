"""What the pages show is there, and runs."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphmamba.cli import COMMANDS, main
from graphmamba.training.experiment import load_experiment

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("notes/*.md")])
THREE_SCREENS = 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_records_that_are_named_are_there(page: Path) -> None:
    for name in re.findall(r"`(?:benchmarks/results/)?(\w+\.json)`", page.read_text()):
        if re.search(r"_(cpu|h200)\.json$", name):
            assert (ROOT / "benchmarks" / "results" / name).exists(), name


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*.md")), ids=lambda page: page.stem)
def test_pages_take_three_screens_at_most(page: Path) -> None:
    # tables that a program writes come before this mark
    by_hand = page.read_text().rpartition("<!-- Written by hand")[2]
    assert len(by_hand.splitlines()) <= THREE_SCREENS


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_have_the_options_that_pages_give(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = [
        each for page in PAGES for each in re.findall(r"```bash\n(.*?)```", page.read_text(), re.S)
    ]
    lines = [
        line for block in blocks for line in block.splitlines() if f"graphmamba {command} " in line
    ]
    given = {
        word.partition("=")[0]
        for line in lines
        for word in shlex.split(line, comments=True)
        if word.startswith("--")
    }
    with pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    known = capsys.readouterr().out
    launcher = {"--nproc-per-node", "--nnodes"}
    for option in given - launcher:
        assert re.search(rf"--{option[2:].replace('-', '_')}[ ,]", known), option


EXAMPLES = {
    "ordering": ("", "", "block"),
    "operators": ("", "", "y"),
    "training": ('"pattern/default"', "small", "result"),
    "prediction": ("", "", "predictions"),
}
"""By page: what is replaced in its first example, by what, and a name that the example makes."""


@pytest.mark.parametrize("page", EXAMPLES)
def test_first_examples_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(tmp_path))
    block = re.findall(r"```python\n(.*?)```", (ROOT / f"docs/{page}.md").read_text(), re.S)[0]
    old, new, made = EXAMPLES[page]
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    small = {"split_sizes": [4, 2, 2], "train.epochs": 1, "model.layers": 1}
    names: dict[str, Any] = {
        "graphs": [Data(x=torch.eye(4, 3), edge_index=ring)],
        "small": load_experiment("pattern/default", small),
    }
    exec(block.replace(old, new) if old else block, names)
    assert names[made] is not None
