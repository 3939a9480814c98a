"""One step of training."""

import pytest
import torch
from torch import Tensor

from graphmamba.data.store import GraphStore
from graphmamba.nn.model import GraphMamba
from graphmamba.training import step as step_module
from graphmamba.training.distributed import ProcessGroup
from graphmamba.training.evaluate import labelled_batch
from graphmamba.training.experiment import Experiment, RunOptions, config_names
from graphmamba.training.fit import OPTIMIZERS, make_model
from graphmamba.training.losses import LOSSES
from graphmamba.training.step import TrainStep
from tests.helpers.experiments import small_experiment
from tests.helpers.runs import tiny_experiment, tiny_store, with_gaps, without_labels
from tests.helpers.typecheck import typecheck_off

NO_BATCH_NORM = {
    "model.local_model": "none",
    "model.norm": "layer",
    "model.dropout": 0.0,
    "encoder.has_edges": False,
}


# each part of a batch would draw other node orders
SETTLED = {**NO_BATCH_NORM, "model.ordering.noise": "none", "model.ordering.bins": 1}


def make_step(
    experiment: Experiment, store: GraphStore, team: ProcessGroup | None = None
) -> tuple[GraphMamba, TrainStep]:
    torch.manual_seed(0)
    model = experiment.build()
    kind = OPTIMIZERS[experiment.optim.optimizer]
    optimizer = kind(model.parameters(), lr=experiment.optim.lr)
    return model, TrainStep(model, optimizer, store, experiment, team)


@pytest.mark.parametrize("name", config_names())
def test_every_experiment_takes_two_steps(name: str) -> None:
    experiment = small_experiment(name)
    store = tiny_store(experiment, train=4, others=1)
    with typecheck_off():
        model, step = make_step(experiment, store)
        before = {name: each.detach().clone() for name, each in model.named_parameters()}
        losses = [step.step(torch.arange(4)) for _ in range(2)]
    assert step.taken == 2
    assert torch.stack(losses).isfinite().all()
    assert not losses[0].requires_grad
    assert losses[0] != losses[1]
    moved = [name for name, each in model.named_parameters() if not torch.equal(each, before[name])]
    assert len(moved) > len(before) / 2
    assert all(each.isfinite().all() for each in model.parameters())


@pytest.mark.parametrize("has_gaps", [False, True], ids=["whole", "with gaps"])
@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("mnist/graph-mamba", {}),
        ("peptides-func/graph-mamba", {}),
        ("cluster/graph-mamba", {"train.loss": "cross_entropy"}),
        ("pcqm-contact/graph-mamba", {}),
    ],
    ids=["graphs", "answers", "nodes", "pairs"],
)
def test_parts_of_a_batch_add_up_to_the_whole(
    name: str, overrides: dict[str, object], has_gaps: bool
) -> None:
    def after_two_steps(batch_size: int) -> tuple[list[float], list[Tensor]]:
        sizes = {"train.batch_size": batch_size}
        experiment = tiny_experiment(name, **SETTLED, **overrides, **sizes)
        store = tiny_store(experiment)
        store = with_gaps(store, experiment.dataset_info.task.level) if has_gaps else store
        model, step = make_step(experiment, store)
        losses = [float(step.step(torch.arange(14))) for _ in range(2)]
        return losses, [each.detach() for each in model.parameters()]

    losses, parameters = after_two_steps(16)
    in_parts, others = after_two_steps(4)
    assert in_parts == pytest.approx(losses, rel=1e-5)
    for one, other in zip(parameters, others, strict=True):
        assert torch.allclose(one, other, atol=1e-4)


def test_processes_are_weighed_by_their_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny_experiment(
        "peptides-struct/graph-mamba", **SETTLED, **{"optim.max_grad_norm": 0.0}
    )
    store = with_gaps(tiny_store(experiment), "graph")

    def gradients(ids: list[int], others: Tensor | None) -> tuple[Tensor, Tensor]:
        """Those of a step, and what this process adds to the sum over all."""
        added = []

        def all_reduce(flat: Tensor) -> None:
            added.append(flat.clone())
            flat.add_(others)

        monkeypatch.setattr(step_module.distributed, "all_reduce", all_reduce)
        team = None if others is None else ProcessGroup(world=2)
        _, step = make_step(experiment, store, team)
        step.step(torch.tensor(ids))
        flat = step._gradients.flat
        return flat, added[0] if added else flat

    whole, _ = gradients([0, 1, 2, 3], None)
    _, second = gradients([2, 3], torch.zeros_like(whole))
    together, _ = gradients([0, 1], second)
    assert torch.allclose(together, whole, atol=1e-6)


def test_a_process_without_graphs_takes_part() -> None:
    experiment = tiny_experiment()
    _, step = make_step(experiment, tiny_store(experiment))
    assert float(step.step(torch.arange(0))) == 0.0
    assert not step._gradients.flat.any()
    assert step.step(torch.arange(4)) > 0


def test_parameters_without_a_gradient_are_left_alone() -> None:
    experiment = tiny_experiment("pattern/graph-mamba", **{"optim.weight_decay": 0.5})
    model, step = make_step(experiment, tiny_store(experiment))
    # nobody reads the last edges, and so nobody their norm
    norm = model.backbone.layers[-1].local_model.edge_norm
    before = norm.weight.clone()
    step.step(torch.arange(4))
    assert norm.weight.grad is None
    assert torch.equal(norm.weight, before)
    assert model.backbone.layers[-1].local_model.nodes.weight.grad is not None


@pytest.mark.parametrize("name", ["mnist/graph-mamba", "peptides-struct/graph-mamba"])
def test_graphs_without_labels_teach_nothing(name: str) -> None:
    experiment = tiny_experiment(name)
    store = without_labels(tiny_store(experiment), "train")
    model, step = make_step(experiment, store)
    assert float(step.step(torch.arange(8))) == 0.0
    assert not any(each.grad.any() for each in model.parameters() if each.grad is not None)


def test_the_gradient_is_clipped() -> None:
    def norm_of(clip: float) -> float:
        experiment = tiny_experiment(**{"optim.max_grad_norm": clip})
        model, step = make_step(experiment, tiny_store(experiment))
        step.step(torch.arange(8))
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        return float(torch.nn.utils.get_total_norm(gradients))

    whole = norm_of(0.0)
    assert norm_of(whole / 2) == pytest.approx(whole / 2, rel=1e-4)
    assert norm_of(whole * 2) == pytest.approx(whole)


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_no_number_shows_in_the_loss(clip: float) -> None:
    experiment = tiny_experiment(**{"optim.max_grad_norm": clip})
    model, step = make_step(experiment, tiny_store(experiment))
    parameter = model.head.mlp[0].weight
    parameter.register_hook(lambda gradient: gradient * torch.nan)
    assert step.step(torch.arange(4)).isnan()


def test_the_loss_is_that_of_the_graphs() -> None:
    experiment = tiny_experiment()
    store = tiny_store(experiment)
    _, step = make_step(experiment, store)
    torch.manual_seed(0)
    fresh = experiment.build()
    graphs, target = labelled_batch(store, torch.arange(4), "graph", (0,))
    expected = LOSSES[experiment.loss](fresh(graphs), target)
    assert float(step.step(torch.arange(4))) == pytest.approx(float(expected.detach()), rel=1e-6)


@pytest.mark.parametrize(("rate", "are_alike"), [(0.0, True), (0.5, False)])
def test_processes_node_order_alike_and_drop_apart(rate: float, are_alike: bool) -> None:
    experiment = tiny_experiment("pattern/graph-mamba", **{"model.dropout": rate})
    graphs = tiny_store(experiment).batch(torch.arange(4))
    outputs = []
    for rank in (0, 1):
        torch.manual_seed(0)
        model = make_model(experiment, RunOptions(), ProcessGroup(rank=rank, world=2))
        outputs.append(model(graphs))
    assert torch.equal(*outputs) == are_alike


def test_wrong_pairs_follow_their_counters() -> None:
    columns = tiny_store(tiny_experiment("pcqm-contact/graph-mamba"), nodes=(9, 9)).columns()
    del columns.pairs["edge_label_index"].columns["edge_label"]
    store, pairs = GraphStore(columns), []
    for counters in ((1, 2), (1, 2), (1, 3)):
        graphs, links = labelled_batch(store, torch.arange(4), "link", counters)
        assert torch.equal(graphs.edge_label_index, links.pairs)
        assert set(links.label[~links.label.isnan()].tolist()) == {0.0, 1.0}
        pairs.append(links.pairs)
    assert torch.equal(pairs[0], pairs[1])
    assert not torch.equal(pairs[0], pairs[2])
