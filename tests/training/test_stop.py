"""Losses that are no numbers stop a run, and can be looked into; so do signals and the clock."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from graphmamba.data.sampler import BatchSampler
from graphmamba.data.store import GraphStore
from graphmamba.training.checkpoint import load_optimizer, load_state, read_tensors, under
from graphmamba.training.experiment import Experiment, RunOptions
from graphmamba.training.fit import fit
from graphmamba.training.stop import LossNotFiniteError, NonFiniteCheck, StopSignals
from tests.helpers.runs import Notes, tiny_experiment, tiny_store
from tests.training.test_step import make_step

EXPERIMENT = tiny_experiment(**{"optim.warmup": 0})
BAD = int(list(BatchSampler(torch.arange(14), 4))[2][0])
"""A graph of the third batch."""


def poisoned() -> GraphStore:
    """A set with one graph whose features are beyond all numbers."""
    columns = tiny_store(EXPERIMENT).columns()
    columns.nodes["x"][columns.node_ptr[BAD]] = torch.inf
    return GraphStore(columns)


@pytest.mark.parametrize("every", [1, 3, 100], ids="every {}".format)
def test_a_bad_batch_stops_the_run_and_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    real = NonFiniteCheck.__init__

    def rarely(self: NonFiniteCheck, *arguments: object) -> None:
        real(self, *arguments)
        self._every = every

    monkeypatch.setattr(NonFiniteCheck, "__init__", rarely)
    notes = Notes()
    with pytest.raises(LossNotFiniteError, match="the loss of step") as failure:
        fit(EXPERIMENT, poisoned(), run_dir=tmp_path / "run", reporter=notes)

    (dump,) = (tmp_path / "run").glob("failed-step-*/state.safetensors")
    tensors, about = read_tensors(dump)
    *_, last = about["steps"]
    assert BAD in last["graphs"]
    message = str(failure.value)
    assert f"step {last['step']}" in message
    assert ", ".join(map(str, last["graphs"])) in message
    assert str(dump) in message
    assert Experiment.of(about["experiment"], "dump") == EXPERIMENT
    assert all(each.isfinite().all() for each in tensors.values())

    # The state and the graphs repeat the failure, and none before it.
    model, step = make_step(EXPERIMENT, poisoned())
    load_state(model, under("model", tensors), dump)
    load_optimizer(step._optimizer, under("optimizer", tensors))
    losses = [step.step(torch.tensor(each["graphs"])) for each in about["steps"]]
    assert [bool(loss.isfinite()) for loss in losses] == [True] * (len(losses) - 1) + [False]
    assert len(losses) <= every


def test_the_last_good_state_is_kept(tmp_path: Path) -> None:
    options = RunOptions(checkpoint_every=0.0)
    with pytest.raises(LossNotFiniteError):
        fit(EXPERIMENT, poisoned(), options, tmp_path / "run")
    tensors, about = read_tensors(tmp_path / "run" / "last" / "state.safetensors")
    assert all(each.isfinite().all() for each in tensors.values())
    assert about["progress"]["step"] == 2
    # the same run on mended data goes on from there
    result = fit(EXPERIMENT, tiny_store(EXPERIMENT), options, tmp_path / "run", resume=True)
    assert result.stop_reason == "finished"


@pytest.mark.parametrize(
    ("loss", "metric", "message"),
    [
        (torch.inf, 0.5, "epoch 1: the validation loss is inf; .* train.recalibrate_batch_norm"),
        (0.5, torch.nan, "the validation accuracy is nan; its labels may be too few"),
    ],
)
def test_scores_that_are_not_finite_are_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: float, metric: float, message: str
) -> None:
    monkeypatch.setattr(
        "graphmamba.training.evaluate.Scorer.score", lambda *_: {"loss": loss, "accuracy": metric}
    )
    with pytest.warns(UserWarning, match=message) as found:
        fit(EXPERIMENT, tiny_store(EXPERIMENT), run_dir=tmp_path / "run")
    assert len(found) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_is_noted_and_the_second_is_not_caught(number: int) -> None:
    caught = []
    before = signal.signal(number, lambda *_: caught.append(number))
    try:
        with StopSignals(60.0, 60.0) as stops:
            assert not stops.is_signalled
            os.kill(os.getpid(), number)
            assert stops.is_signalled
            assert not caught
            os.kill(os.getpid(), number)
            assert caught == [number]
    finally:
        signal.signal(number, before)


def test_other_threads_may_train_too() -> None:
    def enter() -> bool:
        with StopSignals(0.0, 60.0) as stops:
            return stops.is_over

    with ThreadPoolExecutor() as threads:
        assert threads.submit(enter).result()
