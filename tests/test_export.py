"""`torch.export` takes whole models.

Each runs in a process of its own, since it cannot see through the shape checks of the tests.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "prediction.md").read_text()

SETUP = """
import sys
import torch
from torch.export import Dim
from torch_geometric.data import Batch, Data
from graphmamba import GraphMamba, GraphMambaBlock, OrderPolicy
from graphmamba.data.catalog import Features, Task
from graphmamba.nn.config import ModelConfig
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.experiments import batch_of, loss_of, small_experiment

LABELS = {"y", "edge_label", "edge_label_index"}

class FromColumns(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, columns):
        return self.model(Data(**columns))

def export(module, columns, dims):
    shapes = {
        name: {1 if name.endswith("index") else 0: dims.get(name.split("_")[0], dims["other"])}
        for name in columns
    }
    return torch.export.export(module, (columns,), dynamic_shapes=(shapes,), strict=False)

def assert_alike(program, module, *examples):
    for each in examples:
        found, truth = program.module()(*each), module(*each)
        assert found.shape == truth.shape
        assert torch.allclose(found, truth, atol=1e-5)

def columns_of(experiment, model, count, seed, nodes):
    graphs = synthetic_graphs(experiment.dataset_info, count, seed=seed, nodes=nodes)
    columns = batch_of(graphs, model.precompute).to_dict()
    return {name: column for name, column in columns.items() if name not in LABELS}
"""
EXPORT = """
for name in sys.argv[1:]:
    experiment = small_experiment(name, **{"model.layers": 1})
    module = FromColumns(experiment.build()).eval()
    first = columns_of(experiment, module.model, count=3, seed=0, nodes=(4, 9))
    other = columns_of(experiment, module.model, count=5, seed=1, nodes=(3, 12))
    assert_alike(export(module, first, {"other": Dim.AUTO}), module, (first,), (other,))
"""
BY_BATCH = """
DIMS = {"edge": Dim("edges"), "expander": Dim("pairs"), "other": Dim("nodes", min=2)}
for name in sys.argv[1:]:
    experiment = small_experiment(name, **{"model.layers": 1})
    module = FromColumns(experiment.build()).eval()
    first, *others = (
        columns_of(experiment, module.model, count=count, seed=count, nodes=nodes)
        for count, nodes in ((3, (4, 9)), (1, (3, 4)), (5, (3, 12)), (2, (100, 150)))
    )
    for columns in (first, *others):
        del columns["ptr"], columns["graph_key"]
    assert_alike(export(module, first, DIMS), module, (first,), *((each,) for each in others))
"""
BLOCK = """
def example(nodes, edges):
    return torch.randn(nodes, 16), torch.randint(nodes, (2, edges))

def in_graphs(*sizes):
    batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return torch.randn(len(batch), 16), torch.arange(len(batch)).repeat(2, 1), batch

nodes, edges = Dim("nodes", min=2), Dim("edges")
shapes = {"x": {0: nodes}, "edge_index": {1: edges}}
block = GraphMambaBlock(16, OrderPolicy(bins=2)).eval()
program = torch.export.export(block, example(9, 20), dynamic_shapes=shapes)
assert_alike(program, block, *(example(n, 3 * n) for n in (2, 3, 5, 6, 7, 400)), example(4, 0))
in_batch = {**shapes, "batch": {0: nodes}}
program = torch.export.export(block, in_graphs(4, 1, 3), dynamic_shapes=in_batch)
assert_alike(program, block, in_graphs(2), in_graphs(1, 1), in_graphs(30, 1, 0, 2, 9))
"""


RECIPE = re.findall(r"## Export\n.*?```python\n(.*?)```", PAGE, flags=re.DOTALL)
BEFORE_RECIPE = """
task = Task("graph", outputs=2, loss="cross_entropy", metric="accuracy", classes=2)
model = GraphMamba(Features(node_columns=5), task, ModelConfig(channels=16, layers=2))

def batch_of_rings(*sizes):
    rings = (torch.stack([torch.arange(size), torch.arange(size).roll(1)]) for size in sizes)
    return Batch.from_data_list(
        [Data(x=torch.randn(ring.shape[1], 5), edge_index=ring) for ring in rings]
    )

graphs, other = batch_of_rings(4, 3), batch_of_rings(1, 7, 20, 2, 3)
"""
AFTER_RECIPE = """
truth = model(other)
torch.save((other.x, other.edge_index, other.batch, truth), "other.pt")
"""
ELSEWHERE = """
import graphmamba.nn.model
*example, truth = torch.load("other.pt")
found = torch.export.load("model.pt2").module()(*example)
assert found.shape == truth.shape == (5, 2)
assert torch.allclose(found, truth, atol=1e-5)
"""


def run(code: str, *names: str, folder: Path = ROOT) -> None:
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "src")))
    environment = {**os.environ, "GRAPHMAMBA_NO_TYPECHECK": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "-c", SETUP + code, *names],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-4000:]


def thorough(*names: str) -> object:
    return pytest.param(names, marks=pytest.mark.thorough)


@pytest.mark.parametrize(
    "names",
    [
        ("peptides-func/graph-mamba", "cifar10/exphormer"),
        thorough("peptides-func/graph-mamba-plus", "pascalvoc-sp/graph-mamba"),
        thorough("peptides-func/gps-bigbird", "peptides-func/gine", "mnist/gcn"),
        thorough("peptides-func/gps-transformer", "malnet-tiny/gps-performer"),
    ],
    ids=" ".join,
)
def test_export_of_the_eval_model(names: tuple[str, ...]) -> None:
    run(EXPORT, *names)


@pytest.mark.parametrize(
    "names",
    [
        ("peptides-func/graph-mamba",),
        thorough("peptides-func/gine", "pascalvoc-sp/gatedgcn"),
        thorough("peptides-func/gps-transformer", "malnet-tiny/gps-performer"),
        thorough("peptides-func/gps-bigbird", "cifar10/exphormer"),
    ],
    ids=" ".join,
)
def test_models_that_are_given_the_graph_of_each_node_alone_serve_all_sizes(
    names: tuple[str, ...],
) -> None:
    run(BY_BATCH, *names)


def test_an_exported_block_serves_small_graphs_too() -> None:
    run(BLOCK)


def test_what_the_documented_recipe_saves_runs_elsewhere(tmp_path: Path) -> None:
    (recipe,) = RECIPE
    run(BEFORE_RECIPE + recipe + AFTER_RECIPE, folder=tmp_path)
    run(ELSEWHERE, folder=tmp_path)
