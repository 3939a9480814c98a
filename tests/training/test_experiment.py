"""Configs and options as data."""

import json
import math

import numpy as np
import pytest

from graphmamba.errors import UserError
from graphmamba.training.experiment import OptimConfig, RunOptions, TrainConfig
from tests.helpers.typecheck import typecheck_off


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(),
        RunOptions(seed=7, max_time=60.0, loggers=("tensorboard", "wandb"), compile="on"),
        RunOptions(device="cpu", devices=2, precision="bf16-mixed", early_stopping=5),
    ],
)
def test_options_survive_json(options: RunOptions) -> None:
    assert RunOptions.of(json.loads(json.dumps(options.content())), "file") == options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "tpu"}, "device must be one of 'auto', 'cpu', 'cuda', got 'tpu'"),
        ({"loggers": ("csv",)}, "loggers must be one of 'tensorboard', 'wandb', got 'csv'"),
        ({"devices": 0}, "devices must be at least 1, got 0"),
        ({"seed": -1}, "seed must be at least 0 and less than .*, got -1"),
        (
            {"seed": 1 << 63},
            r"seed must be at least 0 and less than 2\*\*63, got 9223372036854775808",
        ),
        ({"max_time": math.nan}, "max_time must be at least 0, got nan"),
        ({"early_stopping": -1}, "early_stopping must be at least 0, got -1"),
        ({"seed": 1.5}, "seed must be int, got 1.5"),
        ({"seed": np.int64(1)}, r"seed must be int, got np.int64\(1\)"),
        ({"max_time": "60"}, "max_time must be a number, got '60'"),
        (
            {"loggers": "wandb"},
            "loggers must be tuple of one of 'tensorboard', 'wandb', got 'wandb'",
        ),
    ],
)
def test_options_that_cannot_work_are_rejected(options: dict[str, object], message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        RunOptions(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"optimizer": "sgd"}, "optim.optimizer must be one of 'adamw', 'adam', got 'sgd'"),
        ({"loss": "hinge"}, "train.loss must be one of None, .*, got 'hinge'"),
        ({"batch_size": 0}, "train.batch_size must be at least 1, got 0"),
        ({"warmup": -1}, "optim.warmup must be at least 0, got -1"),
        ({"max_grad_norm": float("nan")}, "optim.max_grad_norm must be at least 0, got nan"),
        ({"lr": 0.0}, "optim.lr must be positive and finite, got 0.0"),
        ({"ema_decay": 1.0}, r"train.ema_decay must be in \[0, 1\), got 1.0"),
        ({"ema_decay": float("nan")}, r"train.ema_decay must be in \[0, 1\), got nan"),
    ],
)
def test_training_that_cannot_work_are_rejected(options: dict[str, object], message: str) -> None:
    config = OptimConfig if message.startswith("optim") else TrainConfig
    with typecheck_off(), pytest.raises(UserError, match=message):
        config(**options)
