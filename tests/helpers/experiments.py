"""Whole models on small generated data."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data

from graphmamba.data.custom.options import DataSource
from graphmamba.data.transforms.precompute import Precompute, add_columns
from graphmamba.nn.model import GraphMamba
from graphmamba.training.evaluate import labels_of
from graphmamba.training.experiment import Experiment, load_experiment
from graphmamba.training.losses import LOSSES, Target
from tests.helpers.synthetic import synthetic_graphs

SMALL = {"model.channels": 32, "model.layers": 2}
DESCRIBED = " with descriptors"


def small_experiment(name: str, **overrides: object) -> Experiment:
    """A published experiment, narrower and with two layers; optionally with graph descriptors."""
    experiment = load_experiment(name.removesuffix(DESCRIBED), {**SMALL, **overrides})
    if not name.endswith(DESCRIBED):
        return experiment
    info = experiment.dataset_info
    features = replace(info.features, graph_columns=5)
    names = tuple(f"target {number}" for number in range(info.task.outputs))
    return replace(experiment, data=DataSource().described(features, info.task, names))


def batch_of(graphs: Sequence[Data], precompute: Precompute) -> Batch:
    """Graphs with the columns that a model reads, numbered by their place."""
    done = [add_columns(graph, precompute) for graph in graphs]
    for number, graph in enumerate(done):
        graph.graph_key = torch.tensor([number])
    return Batch.from_data_list(done)


def generated_batch(
    experiment: Experiment, model: GraphMamba, count: int = 3, nodes: tuple[int, int] = (3, 7)
) -> Batch:
    """A few graphs of the experiment's kind."""
    return batch_of(synthetic_graphs(experiment.dataset_info, count, nodes=nodes), model.precompute)


def target_in(experiment: Experiment, graphs: Batch) -> Target:
    """The labels of a batch."""
    return labels_of(graphs, experiment.dataset_info.task.level, ())


def loss_of(experiment: Experiment, prediction: Tensor, graphs: Batch) -> Tensor:
    """The experiment's own loss."""
    return LOSSES[experiment.loss](prediction, target_in(experiment, graphs))


def fit(experiment: Experiment, model: GraphMamba, graphs: Batch, steps: int) -> Iterator[float]:
    """Train on the same batch again and again; yields the loss before each step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = loss_of(experiment, model(graphs), graphs)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
