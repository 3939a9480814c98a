"""Experiments and options: from YAML with strict keys and right types, and all presets."""

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.parse import read_yaml
from graphmamba.training.experiment import (
    PRESETS,
    Experiment,
    OptimConfig,
    RunOptions,
    TrainConfig,
    config_names,
    experiment_of,
    load_experiment,
)
from graphmamba.training.graphs import open_data
from tests.helpers.runs import tiny_experiment
from tests.helpers.typecheck import typecheck_off

MODELS = {"graph-mamba", "gps-transformer", "gps-performer", "gps-bigbird", "exphormer"}
LONG_RANGE = {"peptides-func", "peptides-struct", "pascalvoc-sp", "coco-sp", "pcqm-contact"}


@pytest.mark.parametrize("benchmark", CATALOG)
def test_every_benchmark_has_every_model_that_has_settings(benchmark: str) -> None:
    every = {str(file.relative_to(PRESETS).with_suffix("")) for file in PRESETS.rglob("*.yaml")}
    assert every == set(config_names())
    files = {file.stem for file in (PRESETS / benchmark).glob("*.yaml")}
    assert files >= MODELS
    if benchmark != "malnet-tiny":
        assert files >= {"gcn", "gatedgcn"}
        assert files & {"gin", "gine"}
    tuned = {file for file in files if file.endswith("-tuned")}
    assert len(tuned) == (4 if benchmark in LONG_RANGE else 0)


@pytest.mark.parametrize("name", config_names())
def test_file_names_its_row_and_holds_only_what_differs(name: str) -> None:
    text = (PRESETS / f"{name}.yaml").read_text()
    benchmark = name.partition("/")[0]
    assert text.startswith("# ")
    assert CATALOG[benchmark].title in text.splitlines()[0]
    content = yaml.safe_load(text)
    assert content.pop("dataset") == benchmark
    experiment = load_experiment(name)
    assert experiment.dataset == benchmark
    # what is written is read again, from JSON and from YAML
    assert Experiment.of(json.loads(json.dumps(experiment.content())), name) == experiment
    assert Experiment.of(yaml.safe_load(experiment.to_yaml()), name) == experiment
    assert_differs(content, asdict(Experiment()), name)


def assert_differs(content: dict[str, object], default: object, where: str) -> None:
    for key, value in content.items():
        usual = default[key] if isinstance(default, dict) else None
        if isinstance(value, dict):
            assert value, f"{where}.{key} is empty"
            assert_differs(value, usual, f"{where}.{key}")
        elif isinstance(default, dict):
            assert value != usual, f"{where}.{key} repeats the default"


def write(folder: Path, text: str) -> Path:
    file = folder / "own.yaml"
    file.write_text(text)
    return file


def test_own_file(tmp_path: Path) -> None:
    file = write(tmp_path, "dataset: mnist\noptim:\n  lr: 1e-3\n  max_grad_norm: 0\n")
    experiment = load_experiment(file)
    assert experiment.dataset_info.title == "MNIST"
    assert experiment.optim.lr == 1e-3
    assert experiment.optim.max_grad_norm == 0.0
    assert load_experiment(write(tmp_path, "")) == Experiment()
    assert load_experiment("mnist") == load_experiment("mnist/graph-mamba")


def test_overrides_by_dotted_key() -> None:
    changed = load_experiment(
        "peptides-func", {"model.layers": 6, "encoder.laplacian": None, "model.mamba.state": 8}
    )
    assert changed.model.layers == 6
    assert changed.model.mamba.state == 8
    assert changed.encoder.laplacian is None
    assert changed.optim == load_experiment("peptides-func").optim


BOMB = "a0: &a0 [x, x]\n" + "".join(
    f"a{n + 1}: &a{n + 1} [{', '.join([f'*a{n}'] * 9)}]\n" for n in range(20)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle: {}", "no key 'modle'; did you mean 'model'?"),
        ("colour: red", "no key 'colour'; there is: version, dataset, "),
        ("model: {chanels: 4}", "model: no key 'chanels'; did you mean 'channels'?"),
        ("dataset: mnst", "dataset must be one of 'peptides-func', .*, got 'mnst'"),
        ("model: {layers: many}", "model: layers must be int, got 'many'"),
        ("model: {layers: 0}", "model.layers must be at least 1, got 0"),
        ("model: {dropout: true}", "model: dropout must be .*, got True"),
        ("model: 3", "model must hold keys and values, got 3"),
        ("head: {pooling: [mean]}", r"pooling must be one of .*, got \['mean'\]"),
        ("- a\n- b", "must hold keys and values, got list"),
        ("split_sizes: [4, 2]", "split_sizes must have 3 entries"),
        ("split_sizes: [4, 2, 0]", "split_sizes of test must be at least 1, got 0"),
        ("options: {sed: 3}", "options: no key 'sed'; did you mean 'seed'?"),
        ("seeds: [a]", "seeds must be int, got 'a'"),
        ("version: 3\nunheard_of: 1", r"own\.yaml must be of version 2, got 3: a newer graphmamba"),
        ("version: 1", r"version 2, got 1: `python benchmarks/migrate.py`"),
        ("a: [", "must be YAML"),
        ("dataset: 2020-01-01", "dataset must be .* got '2020-01-01'"),
        ("dataset: !!python/object/apply:os.getcwd []", "must be YAML: .*[\n]*.*constructor"),
        (f"{BOMB}dataset: *a20", "an alias is no value .*line 2"),
        ("train: {epochs: 1}\ntrain: {epochs: 2}", "key 'train' is given twice"),
    ],
)
def test_errors_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_experiment(write(tmp_path, text))
    latin = write(tmp_path, "")
    latin.write_bytes("dataset: pattern # café".encode("latin-1"))
    with pytest.raises(UserError, match=r"own\.yaml must be YAML: .*can't decode"):
        load_experiment(latin)


def test_plain_yaml_means_what_it_did() -> None:
    text = "a: {b: [1, 0x1f, 1.5, true, null, .inf]}\nc: 1e-3\nd: 2020-01-01\n1: x"
    found = {"a": {"b": [1, 31, 1.5, True, None, float("inf")]}, "c": "1e-3", "d": "2020-01-01"}
    assert read_yaml(text, "text") == {**found, 1: "x"}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (None, "name must be str or Path, got None"),
        ("peptide-func", "no experiment 'peptide-func'.*'peptides-func'"),
        ("mnist/gps-perfomer", "did you mean 'mnist/gps-performer'"),
        ("own/nofolder", "and no such folder or file; there is: peptides-func,"),
        ("mnist/a-model-of-my-own", "there is: mnist/exphormer-upstream, mnist/exphormer, "),
        (__file__, r"a file must be a .yaml, and graphs a folder"),
        ("absent.yaml", r"name must be .* can be read, got 'absent\.yaml': No such file"),
    ],
)
def test_names_of_nothing_are_rejected(name: Any, message: str) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        load_experiment(name)


def test_own_graphs_in_a_file(tmp_path: Path) -> None:
    text = "data: {path: here, target: [a, b], split_ratios: [0.5, 0.25, 0.25], classes: 3}"
    own = load_experiment(write(tmp_path, text)).data
    assert own is not None
    assert (own.path, own.targets, own.classes) == ("here", ("a", "b"), 3)
    assert own.split_ratios == (0.5, 0.25, 0.25)
    named = experiment_of({"data.path": "here", "data.classes": "x,y"})
    assert named.data is not None
    assert named.data.classes == ("x", "y")
    with pytest.raises(UserError, match="custom graphs of 'here' must be read before"):
        named.build()


def test_loss_is_the_recipe_s_or_the_benchmark_s() -> None:
    assert load_experiment("pcqm-contact").loss == "link_cross_entropy"
    assert load_experiment("pcqm-contact/exphormer").loss == "link_l1"
    weighted = {"train.loss": "weighted_cross_entropy"}
    assert load_experiment("mnist", weighted).loss == "weighted_cross_entropy"


@pytest.mark.parametrize(
    ("benchmark", "loss", "fitting"),
    [
        ("peptides-struct", "cross_entropy", "'l1' or 'mse' or 'huber' for graph"),
        ("peptides-func", "l1", "'binary_cross_entropy' or 'focal' for graph"),
        ("mnist", "link_l1", "'cross_entropy' or 'weighted_cross_entropy' or 'focal' for graph"),
        ("pattern", "cross_entropy", "'weighted_binary_cross_entropy' for node"),
        ("pcqm-contact", "l1", "'link_cross_entropy' or 'link_l1' for link"),
    ],
)
def test_a_loss_for_other_labels_is_rejected(benchmark: str, loss: str, fitting: str) -> None:
    experiment = load_experiment(benchmark, {"train.loss": loss})
    with pytest.raises(UserError, match=rf"train\.loss must be {fitting} .*, got '{loss}'"):
        open_data(experiment)


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(),
        RunOptions(seed=7, max_time=60.0, loggers=("tensorboard", "wandb"), compile="on"),
    ],
)
def test_options_survive_json(options: RunOptions) -> None:
    assert RunOptions.of(json.loads(json.dumps(options.content())), "file") == options


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (RunOptions, {"device": "tpu"}, "device must be one of 'auto', 'cpu', 'cuda', got 'tpu'"),
        (RunOptions, {"loggers": ("csv",)}, r"loggers must be tuple\[.*, got \('csv',\)"),
        (RunOptions, {"devices": 0}, "devices must be at least 1, got 0"),
        (RunOptions, {"seed": 1 << 63}, r"seed must be at least 0 and less than 2\*\*63, got"),
        (RunOptions, {"seed": np.int64(1)}, r"seed must be int, got np.int64\(1\)"),
        (RunOptions, {"max_time": math.nan}, "max_time must be at least 0, got nan"),
        (OptimConfig, {"optimizer": "sgd"}, "optim.optimizer must be one of .*, got 'sgd'"),
        (OptimConfig, {"warmup": -1}, "optim.warmup must be at least 0, got -1"),
        (OptimConfig, {"lr": 0.0}, "optim.lr must be positive and finite, got 0.0"),
        (TrainConfig, {"loss": "hinge"}, "train.loss must be one of None, .*, got 'hinge'"),
        (TrainConfig, {"batch_size": 0}, "train.batch_size must be at least 1, got 0"),
        (TrainConfig, {"ema_decay": math.nan}, r"train.ema_decay must be in \[0, 1\), got nan"),
    ],
)
def test_settings_that_cannot_work_are_rejected(
    kind: type, options: dict[str, object], message: str
) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        kind(**options)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"model.layers": 10**9}, "model.layers must be at most 1000, got 1000000000"),
        ({"split_sizes": [8, 4, 10**9]}, "split_sizes must be at most 1000000, got 1000000000"),
        ({"model.channels": 10**5}, "must have at most 1,073,741,824 parameters, got"),
        ({"model.channels": 2**62}, "the sizes of model, encoder and head are too large"),
        ({"model.mamba.state": 10**9}, "must have at most"),
        ({"model.ordering.eval_samples": 10**9}, "eval_samples must be at most 1000"),
    ],
)
def test_sizes_beyond_reason_are_rejected_at_once(
    overrides: dict[str, object], message: str
) -> None:
    with pytest.raises(UserError, match=message), typecheck_off():
        tiny_experiment(**overrides).build()
