"""`torch.export` and `torch.compile` take whole models.

Each runs in a process of its own, since neither can see through the shape checks of the tests.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SETUP = """
import sys
import torch
from torch_geometric.data import Data
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.experiments import batch_of, loss_of, small_experiment

LABELS = {"y", "edge_label", "edge_label_index"}

class Door(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, columns):
        return self.model(Data(**columns))

def columns_of(experiment, model, count, seed, nodes):
    graphs = synthetic_graphs(experiment.data, count, seed=seed, nodes=nodes)
    columns = batch_of(graphs, model.precompute).to_dict()
    return {name: column for name, column in columns.items() if name not in LABELS}
"""
EXPORT = """
for name in sys.argv[1:]:
    experiment = small_experiment(name, **{"model.layers": 1})
    door = Door(experiment.build()).eval()
    first = columns_of(experiment, door.model, count=3, seed=0, nodes=(4, 9))
    other = columns_of(experiment, door.model, count=5, seed=1, nodes=(3, 12))
    shapes = {
        name: {1 if name.endswith("index") else 0: torch.export.Dim.AUTO} for name in first
    }
    program = torch.export.export(door, (first,), dynamic_shapes=(shapes,), strict=False)
    for columns in (first, other):
        assert torch.allclose(program.module()(columns), door(columns), atol=1e-5), name
"""
COMPILE = """
for name in sys.argv[1:]:
    experiment = small_experiment(name, **{"model.layers": 1})
    door = Door(experiment.build())
    compiled = torch.compile(door, backend="aot_eager", dynamic=True)
    for seed, count in ((0, 3), (1, 5)):
        columns = columns_of(experiment, door.model, count, seed, nodes=(4, 9))
        compiled.train()(columns).sum().backward()
        assert all(torch.isfinite(p.grad).all() for p in door.parameters() if p.grad is not None)
        compiled.eval()
        assert torch.allclose(compiled(columns), door(columns), atol=1e-5), name
"""


def run(code: str, *names: str) -> None:
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
    environment = {**os.environ, "GRAPHMAMBA_NO_TYPECHECK": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", SETUP + code, *names],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize(
    "names",
    [
        ("peptides-func/graph-mamba", "pascalvoc-sp/graph-mamba", "pcqm-contact/graph-mamba"),
        ("peptides-func/graph-mamba-plus",),
        ("peptides-func/gps-bigbird", "cifar10/exphormer", "peptides-func/gine", "mnist/gcn"),
        ("peptides-func/gps-transformer", "malnet-tiny/gps-performer", "pascalvoc-sp/gatedgcn"),
    ],
    ids=" ".join,
)
def test_export_of_the_eval_model(names: tuple[str, ...]) -> None:
    run(EXPORT, *names)


def test_compile_of_the_whole_model() -> None:
    run(COMPILE, "malnet-tiny/graph-mamba")
