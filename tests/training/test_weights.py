"""A trained model as one file: what is written can be read again, and nothing else passes."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, RunOptions, config_names, load_experiment
from graphmamba.training.weights import META, build_model, load_weights, read_tensors, save_weights
from tests.helpers.experiments import generated_batch, small_experiment


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    experiment = small_experiment("mnist/graph-mamba")
    torch.manual_seed(1)
    path = tmp_path / "best.safetensors"
    options = RunOptions(seed=4)
    save_weights(
        path, experiment.build(seed=4), experiment, class_names=tuple("abcdefghij"), options=options
    )
    return path


def rewrite(path: Path, **changes: object) -> None:
    """Change entries of the header."""
    tensors, about = read_tensors(path)
    save_file(tensors, path, metadata={META: json.dumps({**about, **changes})})


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
    assert weights.metadata["scores"] == {"test": {"loss": 0.5}}
    again = build_model(weights, path)
    assert not again.training
    assert torch.equal(again(graphs), model.eval()(graphs))


def test_class_names_are_kept(saved: Path) -> None:
    assert load_weights(saved).class_names == tuple("abcdefghij")


def test_weights_that_name_nothing_have_the_names_of_their_benchmark(tmp_path: Path) -> None:
    for name, names in (("pattern", ("host", "pattern")), ("mnist", ())):
        experiment = small_experiment(name)
        save_weights(tmp_path / "old.safetensors", experiment.build(), experiment)
        assert load_weights(tmp_path / "old.safetensors").class_names == names


@pytest.mark.parametrize("name", config_names())
def test_every_experiment_survives_json(name: str) -> None:
    experiment = load_experiment(name)
    assert Experiment.of(json.loads(json.dumps(experiment.content())), name) == experiment


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere\.safetensors' must be a file, and there is none"):
        load_weights(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda content: content[: len(content) // 2], id="cut short"),
        pytest.param(lambda _content: b"", id="empty"),
        pytest.param(lambda content: b"\xff" * 64 + content[64:], id="header overwritten"),
    ],
)
def test_corrupt_files_are_named(saved: Path, damage) -> None:
    saved.write_bytes(damage(saved.read_bytes()))
    with pytest.raises(UserError, match=r"best\.safetensors' is corrupt or no safetensors file"):
        load_weights(saved)


def test_files_of_others_are_rejected(saved: Path) -> None:
    save_file(load_file(saved), saved)
    with pytest.raises(UserError, match="was not written by graphmamba"):
        load_weights(saved)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, "must be of version 2, got 3: a newer graphmamba wrote it"),
        ({"format": "x"}, "must say its format, got 'x'"),
        ({"kind": "state"}, "must be a file of weights, got 'state'"),
        ({"experiment": None}, "must hold an experiment, got None"),
        ({"experiment": {"modle": 1}}, "no key 'modle'; did you mean 'model'"),
        ({"experiment": {"version": 99}}, "version 2, got 99"),
    ],
)
def test_headers_that_cannot_be_understood_are_rejected(
    saved: Path, changes: Mapping[str, object], message: str
) -> None:
    rewrite(saved, **changes)
    with pytest.raises(UserError, match=message):
        load_weights(saved)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("head.mlp.0.weight"), "hold a tensor 'head.mlp.0.weight'"),
        (
            lambda state: state.update({"head.mlp.0.weight": torch.zeros(2, 3)}),
            r"tensor 'head.mlp.0.weight' must have shape \[32, 32\], got \[2, 3\]",
        ),
        (lambda state: state.update(extra=torch.zeros(1)), "must hold no tensor 'extra'"),
    ],
    ids=["missing", "other shape", "unknown"],
)
def test_tensors_that_do_not_fit_are_named(saved: Path, change, message: str) -> None:
    weights = load_weights(saved)
    change(weights.state)
    with pytest.raises(UserError, match=message):
        build_model(weights, saved)


def test_weights_for_other_data_are_rejected(saved: Path) -> None:
    task = load_weights(saved).metadata["task"]
    rewrite(saved, task={**task, "classes": 3, "outputs": 3})
    with pytest.raises(UserError, match="task must be those of its experiment"):
        build_model(load_weights(saved), saved)
