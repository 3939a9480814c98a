"""Statistics of norms recomputed: their definition, and that a run is otherwise the same."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphmamba.nn.model import GraphMamba
from graphmamba.nn.norm import norms_of
from graphmamba.training.batch_norm import BatchNormRecalibration
from graphmamba.training.evaluate import evaluate, labelled_batch
from graphmamba.training.experiment import Experiment, RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.predict import load
from graphmamba.training.run_dir import read_rows
from tests.helpers.runs import assert_same_tensors, tiny_experiment, tiny_store

BATCHES = 3


def experiment_of(name: str = "mnist/graph-mamba", **changes: object) -> Experiment:
    return tiny_experiment(
        name, **{"train.recalibrate_batch_norm": BATCHES, "model.dropout": 0.2, **changes}
    )


def statistics_of(model: GraphMamba) -> list[Tensor]:
    found = [(norm.running_mean, norm.running_var) for norm in norms_of(model)]
    return [each.clone() for pair in found for each in pair if each is not None]


def test_they_are_the_mean_of_those_of_the_batches() -> None:
    experiment = experiment_of(**{"head.dropout": 0.2})
    store, model = tiny_store(experiment), experiment.build()
    fresh = BatchNormRecalibration(model, store, experiment)
    model.eval()
    before = {name: each.clone() for name, each in model.state_dict().items()}
    generator = torch.get_rng_state()
    norms_of(model)[0].running_var.fill_(torch.nan)
    fresh.take()
    assert not model.training
    assert torch.equal(torch.get_rng_state(), generator)
    assert {norm.momentum for norm in norms_of(model)} == {0.1}
    found, after = statistics_of(model), model.state_dict()
    others = [name for name in before if "running" not in name]
    assert_same_tensors({name: after[name] for name in others}, {n: before[n] for n in others})

    sums = [torch.zeros_like(each) for each in found]
    model.load_state_dict(before)
    model.train()
    for norm in norms_of(model):
        norm.momentum = 1.0
    assert len(fresh.batches) == BATCHES
    for number, ids in enumerate(fresh.batches):
        graphs, _ = labelled_batch(store, ids, experiment.dataset_info.task.level, (number,))
        with torch.no_grad():
            model(graphs)
        sums = [one + other for one, other in zip(sums, statistics_of(model), strict=True)]
    for one, other in zip(found, sums, strict=True):
        torch.testing.assert_close(one, other / BATCHES)
    model.load_state_dict(before)
    fresh.take()
    assert all(map(torch.equal, found, statistics_of(model)))


def test_what_is_not_finite_in_a_batch_is_left_out_there() -> None:
    experiment = experiment_of(**{"model.dropout": 0.0})
    store, model = tiny_store(experiment), experiment.build()
    fresh, norm = BatchNormRecalibration(model, store, experiment), norms_of(model)[0]
    seen: list[tuple[Tensor, Tensor]] = []

    def spoil(_: object, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        rows = given[0].clone()
        # one channel in all batches, another in the first, a third is always the same
        rows[:, 0] = 1e30
        rows[0, 0] = -1e30
        if not seen:
            rows[:2, 1] = torch.tensor([1e30, -1e30])
        rows[:, 2] = 0.0
        seen.append((rows.mean(0), rows.var(0)))
        return (rows, *given[1:])

    before = statistics_of(model)[:2]
    with norm.register_forward_pre_hook(spoil):
        fresh.take()
    assert len(seen) == BATCHES
    mean, variance = statistics_of(model)[:2]
    torch.testing.assert_close(mean[0], before[0][0])
    torch.testing.assert_close(variance[0], before[1][0])
    for at, batches in ((1, seen[1:]), (2, seen), (3, seen)):
        own = torch.stack([each[0][at] for each in batches]).mean()
        spread = torch.stack([each[1][at] for each in batches]).mean()
        torch.testing.assert_close(mean[at], own)
        torch.testing.assert_close(variance[at], spread)


def test_batches_are_whole_training_batches() -> None:
    experiment = experiment_of(**{"train.recalibrate_batch_norm": 1000})
    store = tiny_store(experiment)
    train, size = store.split_ids("train"), experiment.train.batch_size
    batches = BatchNormRecalibration(experiment.build(), store, experiment).batches
    assert len(batches) == len(train) // size
    assert {len(each) for each in batches} == {size}
    seen = torch.cat(list(batches))
    assert len(seen.unique()) == len(seen)
    assert set(seen.tolist()) <= set(train.tolist())
    few = experiment_of(**{"train.batch_size": 1000})
    (alone,) = BatchNormRecalibration(few.build(), store, few).batches
    assert sorted(alone.tolist()) == sorted(train.tolist())


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_training_goes_on_as_without_them_and_the_kept_weights_have_them(
    average: float, tmp_path: Path
) -> None:
    rows = {}
    for count in (0, BATCHES):
        changes = {
            "train.recalibrate_batch_norm": count,
            "train.ema_decay": average,
            "train.epochs": 3,
        }
        experiment = experiment_of(**changes)
        store = tiny_store(experiment)
        result = fit(experiment, store, run_dir=tmp_path / str(count))
        rows[count] = read_rows(tmp_path / str(count) / "metrics.csv")
        trained = load(tmp_path / str(count))
        again = evaluate(trained.model, store, "validation", batch_size=experiment.train.batch_size)
        metric = result.metric
        assert again[metric] == pytest.approx(result.scores["validation"][metric])
    for plain, fresh in zip(rows[0], rows[BATCHES], strict=True):
        assert plain["train_loss"] == fresh["train_loss"]
        assert plain["validation_loss"] != fresh["validation_loss"]


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["mnist/graph-mamba", "pattern/graph-mamba"])
def test_captured_batches_give_the_same(name: str, tmp_path: Path) -> None:
    found = {}
    for fast in ("off", "on"):
        experiment = experiment_of(name, **{"train.epochs": 2})
        options = RunOptions(device="cuda", cuda_graph=fast)
        fit(experiment, tiny_store(experiment), options, tmp_path / fast)
        found[fast] = read_rows(tmp_path / fast / "metrics.csv")
    for plain, captured in zip(found["off"], found["on"], strict=True):
        assert float(captured["validation_loss"]) == pytest.approx(
            float(plain["validation_loss"]), rel=0.02
        )
