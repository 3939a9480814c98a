"""What the README shows can be typed."""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphmamba.bench.shapes import BATCHES
from graphmamba.cli import main

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("GRAPHMAMBA_DATA", ROOT.parent / "shared" / "data"))
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands(program: str) -> list[list[str]]:
    lines = (line for block in blocks("bash") for line in block.splitlines())
    split = (shlex.split(line, comments=True) for line in lines)
    return [words for words in split if words[:1] == [program]]


def test_it_is_short_and_opens_with_the_two_commands() -> None:
    assert README.count("\n") <= 150
    assert blocks("bash")[0] in "\n".join(README.splitlines()[:15])
    assert commands("make") == [["make", "run"], ["make", "test"]]


@pytest.mark.parametrize(
    ("position", "name", "shape"), [(0, "y", (9, 32)), (1, "rows", (5, 16))], ids=["scan", "block"]
)
def test_the_examples_give_every_node_a_row(
    position: int, name: str, shape: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    names: dict[str, torch.Tensor] = {}
    exec(blocks("python")[position], names)
    assert names[name].shape == shape
    assert names[name].isfinite().all()


def test_every_example_is_run_above() -> None:
    assert len(blocks("python")) == 2


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("words", commands("make"), ids=" ".join)
def test_make_knows_the_target(words: list[str]) -> None:
    subprocess.run([*words, "--dry-run"], cwd=ROOT, check=True, capture_output=True)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.mark.parametrize("words", commands("graphmamba"), ids=" ".join)
def test_commands_run(
    words: list[str],
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("jsonargparse")
    if "DIR" in words and not DATA.is_dir():
        pytest.skip("needs benchmark files: set GRAPHMAMBA_DATA")
    words = [str(DATA) if word == "DIR" else word for word in words]
    monkeypatch.chdir(root)
    monkeypatch.setenv("GRAPHMAMBA_ROOT", str(root))
    small = replace(BATCHES["peptides"], sequences=3, tokens=60, longest=40)
    for name in BATCHES:
        monkeypatch.setitem(BATCHES, name, small)
    main(words[1:])
    assert capsys.readouterr().out


def test_links_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target
