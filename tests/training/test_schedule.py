"""The learning rate over a run."""

import json

import pytest
import torch

from graphmamba.training.experiment import OptimConfig
from graphmamba.training.schedule import Schedule, set_rate, warmup_cosine


@pytest.mark.parametrize(("warmup", "epochs"), [(10, 200), (5, 100), (10, 150)])
def test_published_schedule(warmup: int, epochs: int) -> None:
    factors = [warmup_cosine(epoch, warmup, epochs) for epoch in range(epochs)]
    assert factors[0] == 1e-6
    assert factors[1] == pytest.approx(1 / warmup)
    assert factors[warmup] == 1.0
    assert max(factors) == factors[warmup]
    assert 0 < factors[-1] < 1e-3
    assert factors[: warmup + 1] == sorted(factors[: warmup + 1])
    assert factors[warmup:] == sorted(factors[warmup:], reverse=True)
    # a run that is nothing but warm-up
    assert [warmup_cosine(epoch, 2, 2) for epoch in range(3)] == [1e-6, 0.5, 1.0]


def test_warmup_in_steps_does_not_know_epochs() -> None:
    optim = OptimConfig(lr=2.0, warmup_steps=4)
    rates = [
        [Schedule(optim, epochs).rate(*divmod(taken, steps), steps) for taken in range(12)]
        for epochs, steps in ((12, 1), (4, 3), (1, 12))
    ]
    assert rates[0] == rates[1] == rates[2]
    assert rates[0][:4] == [0.5, 1.0, 1.5, 2.0]
    assert rates[0][3:] == sorted(rates[0][3:], reverse=True)
    assert 0 < rates[0][-1] < 0.1


def test_a_plateau_lowers_the_rate_as_pytorch_does() -> None:
    optim = OptimConfig(schedule="plateau", lr=0.1, patience=2, min_lr=0.03)
    losses = [1.0, 0.9, 0.9, 0.95, 0.89999, 0.8, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9]
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, factor=0.5, patience=2, min_lr=0.03
    )
    ours = Schedule(optim, 8)
    rates = []
    for epoch, loss in enumerate(losses):
        ours.observe(loss)
        theirs.step(loss)
        rates.append(ours.rate(epoch + 1))
        assert rates[-1] == optimizer.param_groups[0]["lr"]
        again = Schedule(optim, 8)
        again.load_state_dict(json.loads(json.dumps(ours.state_dict())))
        assert again.state_dict() == ours.state_dict()
        ours = again
    assert set(rates) == {0.1, 0.05, 0.03}


@pytest.mark.parametrize("schedule", ["cosine", "constant"])
def test_other_schedules_do_not_look_at_the_loss(schedule: str) -> None:
    optim = OptimConfig(schedule=schedule, lr=0.1, warmup=2, patience=1)
    one, other = Schedule(optim, 8), Schedule(optim, 8)
    for _ in range(5):
        one.observe(1.0)
    rates = [one.rate(epoch) for epoch in range(8)]
    assert rates == [other.rate(epoch) for epoch in range(8)]
    assert (len(set(rates)) == 1) == (schedule == "constant")


@pytest.mark.parametrize("rate", [0.5, torch.tensor(0.5)], ids=["number", "tensor"])
def test_a_rate_that_is_a_tensor_stays_one(rate: float | torch.Tensor) -> None:
    optimizer = torch.optim.Adam([torch.zeros(1, requires_grad=True)], lr=rate)
    before = optimizer.param_groups[0]["lr"]
    set_rate(optimizer, 0.25)
    after = optimizer.param_groups[0]["lr"]
    assert float(after) == 0.25
    assert (after is before) == isinstance(rate, torch.Tensor)
