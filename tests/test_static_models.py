"""Whole models on batches that a padding graph pads: no number of a real graph may change."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch_geometric.data import Batch

from graphmamba.data.static_batch import StaticGather
from graphmamba.data.static_size import StaticSize, StaticSizes
from graphmamba.data.store import GraphStore
from graphmamba.data.transforms.precompute import add_columns
from graphmamba.nn.model import GraphMamba
from graphmamba.training.evaluate import labels_of
from graphmamba.training.experiment import Experiment
from graphmamba.training.losses import LOSSES
from graphmamba.training.metrics import make_metrics
from tests.helpers.experiments import DESCRIBED, small_experiment
from tests.helpers.synthetic import synthetic_graphs

NAMES = [
    "peptides-func/graph-mamba",
    "peptides-func/graph-mamba-plus",
    "peptides-func/graph-mamba-spectral",
    "cluster/graph-mamba-plus",
    "malnet-tiny/graph-mamba-plus",
    "pascalvoc-sp/graph-mamba",
    "pattern/graph-mamba",
    "malnet-tiny/graph-mamba",
    "pcqm-contact/graph-mamba",
    "peptides-func/gps-transformer",
    "peptides-func/gps-performer",
    "peptides-func/gps-bigbird",
    "cifar10/exphormer",
    "peptides-func/gcn",
    "coco-sp/gps-transformer-tuned",
    "peptides-func/graph-mamba" + DESCRIBED,
]
CAPTURED = [
    "peptides-func/graph-mamba",
    "peptides-func/graph-mamba-plus",
    "peptides-func/graph-mamba-spectral",
    "cluster/graph-mamba-plus",
    "malnet-tiny/graph-mamba-plus",
    "peptides-func/gps-transformer",
    "peptides-func/exphormer",
    "peptides-func/gatedgcn",
    "pattern/gps-performer",
    "pattern/gps-bigbird",
    "pascalvoc-sp/gps-transformer-tuned",
    "peptides-func/graph-mamba" + DESCRIBED,
]
SIZES = {
    "snug": ([3, 0, 2], StaticSize(3, 64, 192, (256,))),
    "wide": ([3, 0, 2], StaticSize(3, 90, 700, (400,), ((3, 16),))),
    "empty places": ([3, 0, 2, -1, -1], StaticSize(5, 65, 193, (256,), ((2, 16), (3, 2)))),
}
"""The padding graph of the wide one, and of that with empty places, is larger than any block."""
DROPLESS = {
    "model.dropout": 0.0,
    "model.global_dropout": 0.0,
    "model.attention.dropout": 0.0,
    "head.dropout": 0.0,
}


def small_store(experiment: Experiment, model: GraphMamba, dtype: torch.dtype) -> GraphStore:
    """Graphs with what the model reads, in its type; one of them has one node."""
    drawn = synthetic_graphs(experiment.dataset_info, 4, nodes=(6, 12))
    drawn[2] = synthetic_graphs(experiment.dataset_info, 1, nodes=(1, 1))[0]
    graphs = [add_columns(graph, model.precompute) for graph in drawn]
    for graph in graphs:
        for key, value in graph.to_dict().items():
            if isinstance(value, Tensor) and value.is_floating_point():
                graph[key] = value.to(dtype)
    return GraphStore.from_pyg(graphs)


def padded(store: GraphStore, ids: list[int], size: StaticSize) -> Batch:
    pairs = size.pairs * (len(store.tables) - 3)
    fitted = replace(size, pairs=pairs)
    return StaticGather(store).batch(torch.tensor(ids), fitted)


def results(
    experiment: Experiment, model: GraphMamba, graphs: Batch, rows: int
) -> dict[str, Tensor]:
    """Loss, real predictions, gradients, and what a step of training leaves in the buffers."""
    model = deepcopy(model)
    prediction = model(graphs)
    target = labels_of(graphs, experiment.dataset_info.task.level, ())
    loss = LOSSES[experiment.loss](prediction, target)
    loss.backward()
    gradients = {
        f"gradient of {name}": p.grad for name, p in model.named_parameters() if p.grad is not None
    }
    return {
        "loss": loss.detach(),
        "prediction": prediction.detach()[:rows],
        **gradients,
        **dict(model.named_buffers()),
    }


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", NAMES)
def test_paddings_change_no_number(name: str, training: bool) -> None:
    torch.manual_seed(0)
    experiment = small_experiment(name, **DROPLESS)
    model = experiment.build().double().train(training)
    store = small_store(experiment, model, torch.float64)
    plain = store.batch(torch.tensor([3, 0, 2]))
    rows = 3 if experiment.dataset_info.task.level == "graph" else plain.num_nodes
    truth = results(experiment, model, plain, rows)
    for ids, size in SIZES.values():
        ours = results(experiment, model, padded(store, ids, size), rows)
        assert ours.keys() == truth.keys()
        for key, value in truth.items():
            torch.testing.assert_close(ours[key], value, rtol=1e-9, atol=1e-10, msg=key)


def test_real_rows_keep_their_dropout() -> None:
    torch.manual_seed(0)
    experiment = small_experiment("cluster/graph-mamba", **{"model.dropout": 0.3})
    model = experiment.build().double()
    store = small_store(experiment, model, torch.float64)
    plain = store.batch(torch.tensor([3, 0, 2]))
    truth = results(experiment, model, plain, plain.num_nodes)
    ours = results(experiment, model, padded(store, *SIZES["wide"]), plain.num_nodes)
    for key, value in truth.items():
        torch.testing.assert_close(ours[key], value, rtol=1e-9, atol=1e-10, msg=key)
    model.backbone.noise_seed.passes.add_(1)
    other = results(experiment, model, plain, plain.num_nodes)
    assert not torch.allclose(other["loss"], truth["loss"])


@pytest.mark.parametrize("key", ["degree", "eigenvector", "random_walk"])
@pytest.mark.parametrize("scope", ["graph", "batch"])
def test_paddings_change_no_order(key: str, scope: str) -> None:
    torch.manual_seed(0)
    experiment = small_experiment(
        "peptides-func/graph-mamba",
        **DROPLESS,
        **{
            "model.ordering.score": key,
            "model.ordering.noise": "uniform",
            "model.ordering.noise_scope": scope,
        },
    )
    model = experiment.build().double().eval()
    store = small_store(experiment, model, torch.float64)
    with torch.no_grad():
        truth = model(store.batch(torch.tensor([3, 0, 2])))
        ours = model(padded(store, *SIZES["empty places"]))
    torch.testing.assert_close(ours[:3], truth, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    "name", ["peptides-func", "peptides-struct", "pascalvoc-sp", "malnet-tiny"]
)
def test_metrics_pass_over_paddings_as_over_all_that_has_no_label(name: str) -> None:
    torch.manual_seed(0)
    experiment = small_experiment(f"{name}/graph-mamba", **DROPLESS)
    model = experiment.build().double().eval()
    store = small_store(experiment, model, torch.float64)
    task, scores = experiment.dataset_info.task, []
    for graphs in (store.batch(torch.tensor([3, 0, 2])), padded(store, *SIZES["empty places"])):
        (metric,) = make_metrics(task)
        with torch.no_grad():
            prediction = model(graphs)
        metric.update(prediction, labels_of(graphs, task.level, ()))
        scores.append(metric.compute())
    assert scores[0] == pytest.approx(scores[1], nan_ok=True)


def run_on_shapes(experiment: Experiment, graphs: Batch) -> None:
    """A step of training on tensors that have no values: whoever reads one is caught."""
    model, shapes = experiment.build(), FakeTensorMode()
    weights = {
        name: shapes.from_tensor(each)
        for name, each in (*model.named_parameters(), *model.named_buffers())
    }
    for name, column in graphs.to_dict().items():
        if isinstance(column, Tensor):
            graphs[name] = shapes.from_tensor(column)
    with shapes:
        target = labels_of(graphs, experiment.dataset_info.task.level, ())
        prediction = functional_call(model, weights, (graphs,), {"check": False})
        LOSSES[experiment.loss](prediction, target).backward()
    assert any(each.grad is not None for each in weights.values())


def sized_batch(experiment: Experiment) -> Batch:
    store = small_store(experiment, experiment.build(), torch.float32)
    ids = torch.tensor([3, 0, 2])
    size = StaticSizes.for_graphs(store, torch.arange(4), 3).choose(ids)
    return StaticGather(store).batch(ids, size, by_source=True)


@pytest.mark.parametrize("name", CAPTURED)
def test_nothing_is_read_back_from_a_static_batch(name: str) -> None:
    experiment = small_experiment(name, **{"model.layers": 1})
    run_on_shapes(experiment, sized_batch(experiment))
