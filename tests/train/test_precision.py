"""Other ways to compute the same run."""

from pathlib import Path

import pytest

from graphmamba.train.engine import start_fabric
from graphmamba.train.fit import fit
from graphmamba.train.options import RunOptions
from tests.helpers.processes import run_apart
from tests.helpers.runs import Notes, tiny_experiment, tiny_store


def test_runs_say_nothing_by_themselves(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    start_fabric(RunOptions(device="cpu", precision="bf16-mixed"))
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_bfloat16_learns_nearly_the_same(tmp_path: Path) -> None:
    experiment = tiny_experiment("peptides-struct/graph-mamba")
    store, notes = tiny_store(experiment), {}
    for precision in ("32-true", "bf16-mixed"):
        notes[precision] = Notes()
        options = RunOptions(precision=precision)
        fit(experiment, store, options, tmp_path / precision, notes[precision])
    exact, mixed = (each.losses for each in notes.values())
    assert mixed != exact
    assert mixed == pytest.approx(exact, rel=0.05)


# Gradients and code generator are tested with the layers; here they would take minutes.
COMPILED = """
from pathlib import Path
from tempfile import mkdtemp
import pytest
import torch
from graphmamba.train.engine import start_fabric
from graphmamba.train.fit import fit
from graphmamba.train.options import RunOptions
from tests.helpers.runs import Notes, tiny_experiment, tiny_store

compile = torch.nn.Module.compile
torch.nn.Module.compile = lambda self, **how: compile(self, **how, backend="eager")
experiment = tiny_experiment("peptides-struct/graph-mamba", **{"recipe.epochs": 1})
store, folder, notes = tiny_store(experiment), Path(mkdtemp()), []
for number, is_compiled in enumerate((False, True)):
    assert not torch._dynamo.utils.counters["frames"]
    notes.append(Notes())
    options = RunOptions(compile=is_compiled)
    fit(experiment, store, options, folder / str(number), notes[-1])
assert torch._dynamo.utils.counters["frames"]["ok"]
plain, compiled = (each.losses for each in notes)
assert compiled == pytest.approx(plain, rel=1e-3)
"""


def test_a_compiled_model_learns_the_same() -> None:
    run_apart(COMPILED)
