"""A compiled model learns the same, and each kind of layer is compiled once, in the first epoch."""

from tests.helpers.processes import run_apart

COMPILED = """
import pytest
import torch
from pathlib import Path
from tempfile import mkdtemp
from graphmamba.training.fit import fit
from graphmamba.training.experiment import RunOptions
from tests.helpers.runs import Notes, tiny_experiment, tiny_store

# The code generator is tested with the layers; here it would take minutes.
compile = torch.nn.Module.compile
torch.nn.Module.compile = lambda self, **_: compile(self, dynamic=True, backend="aot_eager")

def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]

class Counted(Notes):
    counts = []

    def on_epoch(self, record):
        super().on_epoch(record)
        self.counts.append(graphs())

experiment = tiny_experiment("pattern/graph-mamba", **{"model.layers": 4})
# whole batches: one of a single graph is compiled apart, and a GPU fills it up
store, notes = tiny_store(experiment, train=16, others=8, nodes=(5, 9)), Counted()
plain, folder = Notes(), Path(mkdtemp())
fit(experiment, store, RunOptions(device="cpu", compile="off"), folder / "plain", plain)
assert not graphs()
fit(experiment, store, RunOptions(device="cpu", compile="on"), folder / "run", notes)
assert notes.losses == pytest.approx(plain.losses, rel=1e-3)
assert notes.counts[0] == notes.counts[-1], notes.counts
# training and evaluation: the encoder, a layer, the last layer (whose edges nobody reads), the head
assert notes.counts[0] <= 2 * 4, notes.counts
"""


def test_layers_that_are_alike_are_compiled_once_and_learn_the_same() -> None:
    run_apart(COMPILED)
