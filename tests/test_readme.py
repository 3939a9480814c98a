"""What the README shows can be typed."""

import os
import re
import shlex
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch_geometric.data import Data

from graphmamba.bench import BATCHES
from graphmamba.cli import main
from graphmamba.data.catalog import Features, Task
from graphmamba.data.custom.options import DataSource
from graphmamba.nn.config import ModelConfig
from graphmamba.training.checkpoint import save_weights
from graphmamba.training.experiment import Experiment
from tests.helpers.own_files import write_rings

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("GRAPHMAMBA_DATA", ROOT.parent / "shared" / "data"))
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def commands(program: str) -> list[list[str]]:
    lines = (line for block in blocks("bash") for line in block.splitlines())
    split = (shlex.split(line, comments=True) for line in lines)
    return [words for words in split if words[:1] == [program]]


def test_it_is_short_and_opens_with_the_installation() -> None:
    assert README.count("\n") <= 200
    assert blocks("bash")[0].startswith("pip install .")
    assert blocks("bash")[0] in "\n".join(README.splitlines()[:20])
    assert commands("make") == [["make", "run"], ["make", "test"]]


@pytest.mark.parametrize(
    ("position", "name", "shape"), [(1, "x", (5, 16)), (2, "y", (9, 32))], ids=["block", "scan"]
)
def test_the_examples_give_every_node_a_row(
    position: int, name: str, shape: tuple[int, int]
) -> None:
    torch.manual_seed(0)
    names: dict[str, torch.Tensor] = {}
    exec(blocks("python")[position], names)
    assert names[name].shape == shape
    assert names[name].isfinite().all()


def test_the_example_of_training_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    sizes = [4, 5, 6, 4, 5, 6, 4, 5]
    names: dict[str, Any] = {
        "graphs": [Data(x=torch.ones(n, 2), edge_index=ring, y=torch.tensor(n % 2)) for n in sizes]
    }
    exec(blocks("python")[0].replace('"train.epochs": 20', '"train.epochs": 1'), names)
    assert set(names["predictions"].labels) <= {"0", "1"}
    assert names["result"].run_dir == Path("runs/own")


def test_every_example_is_run_above() -> None:
    assert len(blocks("python")) == 3


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
@pytest.mark.parametrize("words", commands("make"), ids=" ".join)
def test_make_knows_the_target(words: list[str]) -> None:
    subprocess.run([*words, "--dry-run"], cwd=ROOT, check=True, capture_output=True)


SMALL = ["--model.channels", "24", "--model.layers", "1", "--train.epochs", "1"]
"""What makes training short."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with graphs, and with a model that was trained on them."""
    root = tmp_path_factory.mktemp("root")
    write_rings(root / "molecules", label="soluble")
    features = Features(node_columns=1)
    task = Task("graph", 2, "cross_entropy", "accuracy", classes=2)
    own = DataSource(
        path="molecules",
        target="soluble",
        features=features,
        labels=task,
        class_names=("sour", "sweet"),
    )
    experiment = Experiment(data=own, model=ModelConfig(channels=8, layers=1))
    (root / "RUN").mkdir()
    weights = root / "RUN" / "best.safetensors"
    save_weights(weights, experiment.build(), experiment, class_names=own.class_names)
    return root


@pytest.mark.parametrize("words", commands("graphmamba"), ids=" ".join)
def test_commands_run(
    words: list[str],
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if "DIR" in words and not DATA.is_dir():
        pytest.skip("needs benchmark files: set GRAPHMAMBA_DATA")
    words = [str(DATA) if word == "DIR" else word for word in words]
    if words[1] == "train":
        words += SMALL + ([] if "molecules" in words else ["--split_sizes", "4,2,2"])
    monkeypatch.chdir(root)
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(root))
    small = replace(BATCHES["peptides"], sequences=3, tokens=60, longest=40)
    for name in BATCHES:
        monkeypatch.setitem(BATCHES, name, small)
    main(words[1:])
    assert capsys.readouterr().out
