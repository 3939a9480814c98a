"""One experiment of each kind: it trains, learns, repeats, and bears odd graphs."""

import pytest
import torch
from torch_geometric.data import Batch, Data

from graphmamba.data.catalog import CATALOG
from graphmamba.training.experiment import load_experiment
from graphmamba.training.metrics import make_metrics
from tests.helpers.experiments import (
    batch_of,
    fit,
    generated_batch,
    loss_of,
    small_experiment,
    target_in,
)
from tests.helpers.synthetic import synthetic_graphs
from tests.helpers.typecheck import typecheck_off

ONE_OF_EACH = [
    "peptides-func/graph-mamba",
    "peptides-func/gps-transformer",
    "peptides-func/gps-performer",
    "peptides-func/gps-bigbird",
    "peptides-func/exphormer",
    "peptides-func/gatedgcn",
    "peptides-func/gine",
    "peptides-func/gcn",
    "peptides-func/gine-tuned",
    "peptides-func/gcn-tuned",
    "peptides-func/gcn-plus",
    "peptides-func/graph-mamba-spectral",
    "cluster/graph-mamba-plus",
    "malnet-tiny/graph-mamba-plus",
    "pascalvoc-sp/graph-mamba",
    "malnet-tiny/graph-mamba",
    "coco-sp/gps-transformer-tuned",
    "cifar10/exphormer",
    "mnist/gin",
    "pattern/graph-mamba",
    "pcqm-contact/graph-mamba",
    "pcqm-contact/exphormer",
]
"""All kinds of layers, encoders, heads and losses; sets and sizes repeat them."""


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_one_step_of_training_and_one_of_evaluation(name: str) -> None:
    torch.manual_seed(0)
    experiment = load_experiment(name)
    model = experiment.build()
    graphs = generated_batch(experiment, model)
    # One step moves the running statistics a tenth of the way, and sixteen layers that are not yet
    # normalised overflow.
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm1d):
            module.momentum = 1.0

    optimizer = torch.optim.AdamW(model.parameters(), lr=experiment.optim.lr)
    loss = loss_of(experiment, model(graphs), graphs)
    loss.backward()
    optimizer.step()
    assert torch.isfinite(loss)
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())

    model.eval()
    with torch.no_grad():
        prediction = model(graphs)
        again = model(graphs)
    assert torch.isfinite(prediction).all()
    assert torch.equal(prediction, again)
    (metric,) = make_metrics(experiment.dataset_info.task)
    metric.update(prediction, target_in(experiment, graphs))
    assert next(iter(metric.compute())) == experiment.dataset_info.task.metric


@pytest.mark.parametrize("name", [*ONE_OF_EACH[:8], "mnist/gin", "pcqm-contact/graph-mamba"])
def test_four_graphs_can_be_learned_by_heart(name: str) -> None:
    torch.manual_seed(0)
    experiment = small_experiment(
        name, **{"model.dropout": 0.0, "model.attention.dropout": 0.0, "head.dropout": 0.0}
    )
    model = experiment.build()
    graphs = generated_batch(experiment, model, count=4, nodes=(5, 9))
    # shapes are checked elsewhere, and checking them hundreds of times takes longer than training
    with typecheck_off():
        losses = fit(experiment, model, graphs, steps=400)
        first = next(losses)
        assert any(loss < 0.05 * first for loss in losses)


# The messy pieces of real data: a lone node, no edges at all, a node without edges beside others,
# the same edge twice, and an edge from a node to itself.
ODD_EDGES: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "one node": (1, []),
    "one node with a loop": (1, [(0, 0)]),
    "no edges": (3, []),
    "isolated node": (4, [(0, 1), (1, 0), (1, 2)]),
    "repeated edges": (3, [(0, 1), (0, 1), (0, 1), (1, 2)]),
    "loops": (3, [(0, 0), (1, 1), (1, 2), (2, 1)]),
}


def odd_graph(name: str, case: str) -> Data:
    """A generated graph of the set's kind with the edges of the case."""
    nodes, edges = ODD_EDGES[case]
    graph = synthetic_graphs(CATALOG[name], 1, nodes=(nodes, nodes))[0]
    rows = synthetic_graphs(CATALOG[name], 1, seed=1, nodes=(9, 9))[0].edge_attr
    graph.edge_index = torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).T
    graph.edge_attr = None if rows is None else rows[: len(edges)]
    if "edge_label_index" in graph and nodes == 1:
        graph.edge_label_index = torch.zeros(2, 1, dtype=torch.int64)
        graph.edge_label = torch.ones(1)
    return graph


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_odd_graphs_pass_through(name: str) -> None:
    torch.manual_seed(0)
    experiment = small_experiment(name)
    model = experiment.build()
    odd = [odd_graph(experiment.dataset, case) for case in ODD_EDGES]
    for chosen in ([odd[0]], [odd[2]], odd):
        graphs = batch_of(chosen, model.precompute)
        loss = loss_of(experiment, model.train()(graphs), graphs)
        loss.backward()
        assert torch.isfinite(loss)
        assert torch.isfinite(model.eval()(graphs)).all()
    assert all(
        torch.isfinite(parameter.grad).all()
        for parameter in model.parameters()
        if parameter.grad is not None
    )


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_a_graph_gets_what_it_gets_alone(name: str) -> None:
    torch.manual_seed(0)
    experiment = small_experiment(name)
    model = experiment.build().eval()
    graphs = generated_batch(experiment, model, count=4, nodes=(1, 9))
    together = model(graphs)
    rows = graphs.batch if experiment.dataset_info.task.level != "graph" else torch.arange(4)
    for number, graph in enumerate(graphs.to_data_list()):
        alone = model(Batch.from_data_list([graph]))
        assert torch.allclose(alone, together[rows == number], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_same_seed_same_numbers(name: str) -> None:
    def losses() -> list[float]:
        torch.manual_seed(3)
        experiment = small_experiment(name)
        model = experiment.build(seed=3)
        return list(fit(experiment, model, generated_batch(experiment, model), steps=3))

    assert losses() == losses()
