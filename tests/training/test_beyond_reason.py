"""Sizes and headers beyond reason are rejected in one line, at once, and without the memory."""

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmamba.errors import UserError
from graphmamba.training.experiment import RunOptions
from graphmamba.training.predictor import load
from graphmamba.training.weights import META, read_tensors, save_weights, write_tensors
from tests.helpers.runs import tiny_experiment
from tests.helpers.typecheck import typecheck_off

SECONDS, MEGABYTES = 20, 500
MODEL = tiny_experiment()


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"train.batch_size": 2**63}, "batch_size must be within 2"),
        ({"train.batch_size": 2**62}, "train.batch_size must be at most"),
        ({"model.layers": 10**9}, "model.layers must be at most 1000, got 1000000000"),
        ({"model.layers": 10**4000}, "layers must be within 2"),
        ({"model.channels": 10**5}, "must have at most 1,073,741,824 parameters, got"),
        ({"model.channels": 10**9}, "the sizes of model, encoder and head are too large"),
        ({"model.channels": 2**62}, "the sizes of model, encoder and head are too large"),
        ({"model.mamba.state": 10**9}, "must have at most"),
        (
            {"split_sizes": [8, 4, 10**9]},
            "split_sizes of test must be at most 1000000, got 1000000000",
        ),
        ({"head.layers": 10**9}, "head.layers must be at most 1000"),
        ({"encoder.stable_gate_eigenvectors": 10**9}, "gate_eigenvectors must be at most 100000"),
        ({"model.ordering.eval_samples": 10**9}, "eval_samples must be at most 1000"),
    ],
)
def test_sizes_beyond_reason_are_rejected_at_once(
    overrides: dict[str, object], message: str
) -> None:
    begin, before = time.process_time(), peak()
    with pytest.raises(UserError, match=message), typecheck_off():
        tiny_experiment(**overrides).build()
    assert time.process_time() - begin < SECONDS
    assert peak() - before < MEGABYTES


def test_steps_of_too_many_batches_are_rejected() -> None:
    with pytest.raises(UserError, match="accumulate_grad_batches must be at most 2147483647"):
        RunOptions(accumulate_grad_batches=2**63)


def test_outlines_take_no_random_numbers() -> None:
    before = torch.get_rng_state()
    MODEL.outline()
    assert torch.equal(torch.get_rng_state(), before)


Change = Callable[[dict[str, Any]], object]
HEADERS: dict[str, tuple[Change, str]] = {
    "score": (lambda about: about.update(scores={"test": {"loss": "x"}}), "scores must be numbers"),
    "scores": (lambda about: about.update(scores={"test": 5}), "scores must be numbers by split"),
    "few names": (
        lambda about: about.update(class_names=["a", "b"]),
        "must be 10 classes",
    ),
    "names": (
        lambda about: about.update(class_names="abcdefghij"),
        "must be 10 classes",
    ),
    "no metric": (lambda about: about["task"].pop("metric"), "task must have a key 'metric'"),
    "seed": (lambda about: about.update(seed="x"), "seed must be at least 0"),
    "large seed": (lambda about: about.update(seed=2**64), "seed must be at least 0 and less"),
    "layers": (lambda about: about["experiment"]["model"].update(layers=10**9), "at most 1000"),
    "more layers": (lambda about: about["experiment"]["model"].update(layers=9), "hold a tensor"),
    "channels": (lambda about: about["experiment"]["model"].update(channels=8000), "have shape"),
    "wide": (
        lambda about: about["experiment"]["model"].update(channels=10**9),
        "are too large",
    ),
    "options": (lambda about: about["options"].update(seed="x"), "seed must be int"),
}


@pytest.mark.parametrize(("change", "message"), HEADERS.values(), ids=HEADERS)
def test_odd_headers_of_weights_are_rejected_at_once(
    tmp_path: Path, change: Change, message: str
) -> None:
    path = tmp_path / "best.safetensors"
    save_weights(path, MODEL.build(), MODEL, class_names=[str(each) for each in range(10)])
    tensors, about = read_tensors(path)
    change(about)
    write_tensors(path, tensors, about)
    begin, before = time.process_time(), peak()
    with pytest.raises(UserError, match=message) as failure, typecheck_off():
        load(path)
    assert "\n" not in str(failure.value)
    assert time.process_time() - begin < SECONDS
    assert peak() - before < MEGABYTES


def test_a_deep_header_is_corrupt(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    for number, text in enumerate(("[" * 100_000, '{"a":' * 100_000)):
        path = tmp_path / f"{number}.safetensors"
        save_file({"x": torch.ones(1)}, path, metadata={META: text})
        with pytest.raises(UserError, match="corrupt or no safetensors file"):
            load(path)
