"""The paper in one file predicts what the library predicts."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file
from torch_geometric.data import Batch, Data

import graphmamba

ROOT = Path(__file__).parents[1]
FILE = ROOT / "examples" / "graph_mamba_minimal.py"
WEIGHTS = ROOT / "weights" / "peptides-func" / "graph-mamba" / "best.safetensors"


@pytest.fixture(scope="module")
def minimal() -> ModuleType:
    spec = importlib.util.spec_from_file_location(FILE.stem, FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def trained(minimal: ModuleType) -> torch.nn.Module:
    model = minimal.GraphMamba()
    model.load_state_dict(minimal.from_library(load_file(WEIGHTS)))
    return model.eval()


def molecule(minimal: ModuleType, edge_index: torch.Tensor, n: int) -> Data:
    """Atoms and bonds at random, within what peptides have."""
    draw, zeros = torch.randint, torch.zeros(n, dtype=torch.long)
    degree = torch.bincount(edge_index[0], minlength=n).clamp_max(11)
    columns = [draw(5, 8, (n,)), zeros, degree, zeros + 5, draw(4, (n,)), zeros, draw(1, 3, (n,))]
    bonds = torch.stack([draw(high, (edge_index.shape[1],)) for high in (2, 1, 2)], dim=1)
    x = torch.stack([*columns, zeros, zeros], dim=1)
    return minimal.add_laplacian(Data(x=x, edge_index=edge_index, edge_attr=bonds))


def tree(n: int) -> torch.Tensor:
    parent = (torch.rand(n - 1) * torch.arange(1, n)).long()
    edges = torch.stack([parent, torch.arange(1, n)])
    return torch.cat([edges, edges.flip(0)], dim=1)


def untied(n: int) -> torch.Tensor:
    """As many edges leave each node as no other, so that there is one order by degree."""
    pairs = [
        (node, (node + 1 + step) % n)
        for node, degree in enumerate(torch.randperm(n).tolist())
        for step in range(degree)
    ]
    return torch.tensor(pairs).T


def doubled(graphs: list[Data]) -> Batch:
    def double(column: torch.Tensor) -> torch.Tensor:
        return column.double() if column.is_floating_point() else column

    return Batch.from_data_list(graphs).apply(double)


def test_without_ties_both_predict_the_same(minimal: ModuleType, trained: torch.nn.Module) -> None:
    torch.manual_seed(0)
    graphs = [molecule(minimal, untied(n), n) for n in range(2, 7)]
    library = graphmamba.load(WEIGHTS)
    with torch.no_grad():
        found = trained(Batch.from_data_list(graphs)).sigmoid().double()
        # the columns that `predict` computes are the minimal file's, too
        torch.testing.assert_close(found, library.predict(graphs).outputs, rtol=1e-5, atol=1e-5)
        exact = library.model.double().eval()(doubled(graphs))
        torch.testing.assert_close(trained.double()(doubled(graphs)), exact, rtol=1e-9, atol=1e-9)


def test_with_ties_left_as_they_are_both_predict_the_same(
    minimal: ModuleType, trained: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(1)
    graphs = doubled([molecule(minimal, tree(n), n) for n in (1, 2, 3, 30, 31, 100)])
    experiment = graphmamba.load_experiment("peptides-func", {"model.ordering.noise": "none"})
    model = experiment.build()
    model.load_state_dict(graphmamba.load(WEIGHTS).model.state_dict())
    monkeypatch.setattr(minimal.torch, "randperm", torch.arange)
    with torch.no_grad():
        exact = model.double().eval()(graphs)
        torch.testing.assert_close(trained.double()(graphs), exact, rtol=1e-9, atol=1e-9)


def test_it_draws_ties_anew_and_sorts_by_degree_in_each_graph(minimal: ModuleType) -> None:
    torch.manual_seed(2)
    batch = torch.tensor([0] * 50 + [1] * 50)
    edges = torch.cat([tree(50), tree(50) + 50], dim=1)
    first, second = (minimal.order_nodes(edges, batch) for _ in range(2))
    degree = torch.bincount(edges[0], minlength=100)
    for order in (first, second):
        assert order.sort().values.tolist() == list(range(100))
        assert batch[order].tolist() == batch.tolist()
        assert (degree[order][:50].diff() >= 0).all()
        assert (degree[order][50:].diff() >= 0).all()
    assert not torch.equal(first, second)


def test_it_has_the_published_number_of_parameters_and_at_most_300_lines(
    trained: torch.nn.Module,
) -> None:
    assert sum(parameter.numel() for parameter in trained.parameters()) == 373_018
    assert len(FILE.read_text().splitlines()) <= 300
