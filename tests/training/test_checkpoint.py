"""Files of weights: what is written can be read again; what processes of runs draw."""

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.training.checkpoint import (
    META,
    build_model,
    generator_tensors,
    generator_words,
    load_weights,
    own_generators,
    process_seed,
    read_tensors,
    restore_generators,
    save_weights,
    write_tensors,
)
from graphmamba.training.experiment import RunOptions
from tests.helpers.experiments import generated_batch, small_experiment


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    experiment = small_experiment("mnist/graph-mamba")
    path = tmp_path / "best.safetensors"
    names = tuple("abcdefghij")
    save_weights(path, experiment.build(), experiment, class_names=names)
    return path


def test_predictions_of_a_reloaded_model_are_those_before_saving(tmp_path: Path) -> None:
    experiment = small_experiment("peptides-func/graph-mamba")
    torch.manual_seed(1)
    model = experiment.build(seed=4)
    graphs = generated_batch(experiment, model)
    model(graphs)  # moves the running statistics and the count of passes
    path = tmp_path / "best.safetensors"
    options = RunOptions(seed=4, precision="bf16-mixed", tf32=False)
    scores = {"test": {"loss": 0.5}}
    save_weights(path, model, experiment, options=options, epoch=7, scores=scores)

    weights = load_weights(path)
    assert weights.experiment == experiment
    assert weights.options == options
    assert weights.metadata["epoch"] == 7
    assert weights.reported == scores
    again = build_model(weights, path)
    assert not again.training
    assert torch.equal(again(graphs), model.eval()(graphs))


def test_weights_that_name_nothing_have_the_names_of_their_benchmark(tmp_path: Path) -> None:
    for name, names in (("pattern", ("host", "pattern")), ("mnist", ())):
        experiment = small_experiment(name)
        save_weights(tmp_path / "old.safetensors", experiment.build(), experiment)
        assert load_weights(tmp_path / "old.safetensors").class_names == names


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (b"", r"best\.safetensors' is corrupt or no safetensors file"),
        (b"\xff" * 64, r"best\.safetensors' is corrupt or no safetensors file"),
        (None, "must be a file of weights, got None"),
        ({"kind": "state"}, "must be a file of weights, got 'state'"),
        ({"format": 3}, "must be of version 2, got 3: a newer graphmamba wrote it"),
        ({"experiment": {"modle": 1}}, "no key 'modle'; did you mean 'model'"),
    ],
)
def test_files_that_cannot_be_understood_are_rejected(
    saved: Path, changes: Mapping[str, object] | bytes | None, message: str
) -> None:
    _, about = read_tensors(saved)
    if isinstance(changes, bytes):
        saved.write_bytes(changes)
    else:
        metadata = {META: json.dumps({**about, **changes})} if changes else {}
        save_file(load_file(saved), saved, metadata=metadata)
    with pytest.raises(UserError, match=message):
        load_weights(saved)
    with pytest.raises(UserError, match=r"nowhere' must be a file, and there is none"):
        load_weights(saved.with_name("nowhere"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("head.mlp.0.weight"), r"Missing key.*head\.mlp\.0\.weight"),
        (lambda state: state.update({"head.mlp.0.weight": torch.zeros(2, 3)}), "size mismatch for"),
        (lambda state: state.update(extra=torch.zeros(1)), 'Unexpected key.*"extra"'),
    ],
    ids=["missing", "other shape", "unknown"],
)
def test_tensors_that_do_not_fit_are_named(
    saved: Path, change: Callable[[dict[str, Tensor]], object], message: str
) -> None:
    weights = load_weights(saved)
    change(weights.state)
    with pytest.raises(UserError, match=message):
        build_model(weights, saved)


@pytest.mark.parametrize("names", ["ab", ["a"], {"a": 1}, 5])
def test_names_that_are_not_those_of_the_classes_are_rejected(saved: Path, names: object) -> None:
    tensors, about = read_tensors(saved)
    write_tensors(saved, tensors, about | {"class_names": names})
    with pytest.raises(UserError, match="class_names must be"):
        load_weights(saved).class_names  # noqa: B018


def test_no_process_of_any_run_draws_what_another_does() -> None:
    seeds = {process_seed(seed, rank) for seed in range(-5, 20) for rank in range(8)}
    assert len(seeds) == 25 * 8
    drawn = []
    for seed in seeds:
        with own_generators(seed):
            drawn.append(torch.rand(()).item())
    assert len({*drawn}) == len(seeds)


def draws() -> list[float]:
    return [torch.rand(()).item(), float(np.random.rand()), random.random()]  # noqa: NPY002


def test_all_generators_are_put_back() -> None:
    before = generator_tensors(), generator_words()
    first = draws()
    restore_generators(*before)
    assert draws() == first
    restore_generators(*before)
    with own_generators(3):
        inside = draws()
    assert draws() == first
    assert all(one != other for one, other in zip(inside, first, strict=True))
