"""A model and a batch once more in another float type, to tell rounding from what is meant."""

import torch
from torch_geometric.data import Data

from graphmamba.stack.gated_gcn import GatedGCN
from graphmamba.task.model import GraphMamba
from graphmamba.train.experiment import Experiment


def twin_of(experiment: Experiment, model: GraphMamba, dtype: torch.dtype) -> GraphMamba:
    """Build an experiment with the weights of a model, in that type; edges by the definition."""
    twin = experiment.build(0)
    twin.load_state_dict(model.state_dict())
    for module in twin.modules():
        if isinstance(module, GatedGCN):
            module.backend = "reference"
    return twin.to(dtype)


def in_type(graphs: Data, dtype: torch.dtype) -> Data:
    """Return a batch whose columns of floats are of that type."""
    graphs = graphs.clone()
    for name in graphs.keys():  # noqa: SIM118
        if torch.is_tensor(graphs[name]) and graphs[name].is_floating_point():
            graphs[name] = graphs[name].to(dtype)
    return graphs
