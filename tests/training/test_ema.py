"""The moving average of the weights: its definition, and that it is what a run scores and keeps."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphmamba.nn.model import GraphMamba
from graphmamba.training.checkpoint import load_state, read_tensors, under
from graphmamba.training.ema import MovingAverage
from graphmamba.training.evaluate import evaluate
from graphmamba.training.experiment import RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.predict import load
from graphmamba.training.run_dir import read_rows
from tests.helpers.runs import (
    Notes,
    assert_same_run,
    assert_same_tensors,
    send,
    tiny_experiment,
    tiny_store,
)

DECAY = 0.4
STEPS = 8
"""More than it takes until the decay is no longer limited."""
AVERAGED = {"train.ema_decay": 0.99, "model.dropout": 0.3}


def disturb(model: GraphMamba, number: int) -> None:
    """Change all that a step changes."""
    generator = torch.Generator().manual_seed(number)
    with torch.no_grad():
        for each in [*model.parameters(), *model.buffers()]:
            change = torch.randint(-8, 8, each.shape, generator=generator).to(each)
            each.add_(change / 8 if each.is_floating_point() else change)


def follow(means: dict[str, Tensor], model: GraphMamba, step: int) -> dict[str, Tensor]:
    decay = min(DECAY, (1 + step) / (10 + step))
    return {
        name: decay * means[name] + (1 - decay) * each if each.is_floating_point() else each.clone()
        for name, each in model.state_dict().items()
    }


@pytest.mark.parametrize("device", ["cpu", pytest.param("captured", marks=pytest.mark.gpu)])
def test_it_follows_every_step_by_its_definition(device: str) -> None:
    model = tiny_experiment().build().to("cpu" if device == "cpu" else "cuda")
    average = MovingAverage(model, DECAY)
    update = average.update
    means = {name: each.clone() for name, each in model.state_dict().items()}
    assert_same_tensors(average.model.state_dict(), means)
    if device == "captured":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            average.update()
        update = graph.replay
    limited = []
    for step in range(1, STEPS + 1):
        disturb(model, step)
        update()
        means = follow(means, model, step)
        limited.append((1 + step) / (10 + step) < DECAY)
        for name, each in average.model.state_dict().items():
            torch.testing.assert_close(each, means[name], msg=name)
    assert set(limited) == {True, False}
    assert int(average.steps) == STEPS
    assert not any(each.requires_grad for each in average.model.parameters())


def test_a_run_scores_and_keeps_the_average(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    experiment = tiny_experiment(**AVERAGED, **{"train.epochs": 1})
    store, options = tiny_store(experiment), RunOptions(device="cpu")
    result = fit(experiment, store, options, folder)
    state, _ = read_tensors(folder / "last" / "state.safetensors")
    trained = load(folder).model
    assert_same_tensors(under("average.model", state), trained.state_dict())

    def scores(model: GraphMamba, split: str) -> dict[str, float]:
        return evaluate(
            model, store, split, batch_size=experiment.train.batch_size, loss=experiment.loss
        )

    (row,) = read_rows(folder / "metrics.csv")
    for split in ("validation", "test"):
        assert result.scores[split] == scores(trained, split)
    assert row["validation_loss"] == result.scores["validation"]["loss"]
    load_state(trained, under("model", state), folder)
    assert scores(trained, "validation") != result.scores["validation"]


def test_training_itself_does_not_see_it(tmp_path: Path) -> None:
    states, losses = [], []
    for average in (0.0, 0.9):
        experiment = tiny_experiment(**{**AVERAGED, "train.ema_decay": average})
        notes, folder = Notes(), tmp_path / str(average)
        fit(experiment, tiny_store(experiment), run_dir=folder, reporter=notes)
        states.append(under("model", read_tensors(folder / "last" / "state.safetensors")[0]))
        losses.append(notes.losses)
    assert losses[0] == losses[1]
    best, _ = read_tensors(tmp_path / "0.0" / "best.safetensors")
    assert best.keys() == states[0].keys()
    assert_same_tensors(*states)


@pytest.mark.parametrize("step", [1, 6])
def test_a_run_that_was_stopped_goes_on_with_its_average(tmp_path: Path, step: int) -> None:
    experiment = tiny_experiment(**AVERAGED, **{"optim.schedule": "plateau"})
    store = tiny_store(experiment)
    fit(experiment, store, run_dir=tmp_path / "whole")
    stop = Notes({step: send(15)})
    assert fit(experiment, store, run_dir=tmp_path / "run", reporter=stop).stop_reason == "signal"
    fit(experiment, store, run_dir=tmp_path / "run", resume=True)
    state, _ = read_tensors(tmp_path / "run" / "last" / "state.safetensors")
    assert int(state["average.steps"]) == 12
    assert_same_run(tmp_path / "run", tmp_path / "whole")
