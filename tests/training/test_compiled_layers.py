"""What compiling costs: each kind of layer once, and nothing after the first epoch."""

import pytest

from tests.helpers.processes import run_apart

COMPILED = """
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

experiment = tiny_experiment(NAME, **{"model.layers": 4})
# whole batches: one of a single graph is compiled apart, and a GPU fills it up
store, notes = tiny_store(experiment, train=16, others=8, nodes=(5, 9)), Counted()
fit(experiment, store, RunOptions(device="cpu", compile="on"), Path(mkdtemp()) / "run", notes)
assert notes.counts[0] == notes.counts[-1], notes.counts
# training and evaluation: the encoder, a layer, the last layer (whose edges nobody reads), the head
assert notes.counts[0] <= 2 * 4, notes.counts
"""


@pytest.mark.parametrize("name", ["pattern/graph-mamba"])
def test_layers_that_are_alike_are_compiled_once(name: str) -> None:
    run_apart(f"NAME = {name!r}\n" + COMPILED)
