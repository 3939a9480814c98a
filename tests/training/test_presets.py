"""Experiments from YAML: strict keys, right types, and all files of the package."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.training.experiment import (
    PRESETS,
    Experiment,
    config_names,
    experiment_of,
    load_experiment,
)
from graphmamba.training.graphs import open_data
from tests.helpers.typecheck import typecheck_off

MODELS = {
    "graph-mamba",
    "gps-transformer",
    "gps-performer",
    "gps-bigbird",
    "exphormer",
}
MESSAGE_PASSING = {"gcn", "gatedgcn"}
LONG_RANGE = {"peptides-func", "peptides-struct", "pascalvoc-sp", "coco-sp", "pcqm-contact"}


def write(folder: Path, text: str) -> Path:
    file = folder / "own.yaml"
    file.write_text(text)
    return file


@pytest.mark.parametrize("benchmark", CATALOG)
def test_every_benchmark_has_every_model_that_has_settings(benchmark: str) -> None:
    files = {file.stem for file in (PRESETS / benchmark).glob("*.yaml")}
    assert files >= MODELS
    if benchmark != "malnet-tiny":
        assert files >= MESSAGE_PASSING
        assert files & {"gin", "gine"}
    tuned = {file for file in files if file.endswith("-tuned")}
    assert len(tuned) == (4 if benchmark in LONG_RANGE else 0)


def test_no_file_lies_outside_the_catalogue() -> None:
    files = {str(file.relative_to(PRESETS).with_suffix("")) for file in PRESETS.rglob("*.yaml")}
    assert files == set(config_names())


@pytest.mark.parametrize("name", config_names())
def test_file_names_its_row_and_holds_only_what_differs(name: str) -> None:
    text = (PRESETS / f"{name}.yaml").read_text()
    benchmark = name.partition("/")[0]
    assert text.startswith("# ")
    assert CATALOG[benchmark].title in text.splitlines()[0]
    content = yaml.safe_load(text)
    assert content.pop("dataset") == benchmark
    assert load_experiment(name).dataset == benchmark
    assert_differs(content, asdict(Experiment()), name)


def assert_differs(content: dict[str, object], default: object, where: str) -> None:
    for key, value in content.items():
        usual = default[key] if isinstance(default, dict) else None
        if isinstance(value, dict):
            assert value, f"{where}.{key} is empty"
            assert_differs(value, usual, f"{where}.{key}")
        elif isinstance(default, dict):
            assert value != usual, f"{where}.{key} repeats the default"


def test_a_benchmark_alone_means_graph_mamba() -> None:
    assert load_experiment("mnist") == load_experiment("mnist/graph-mamba")


def test_own_file(tmp_path: Path) -> None:
    file = write(tmp_path, "dataset: mnist\noptim:\n  lr: 1e-3\n  max_grad_norm: 0\n")
    experiment = load_experiment(file)
    assert experiment.dataset_info.title == "MNIST"
    assert experiment.optim.lr == 1e-3
    assert experiment.optim.max_grad_norm == 0.0


def test_empty_file_is_all_defaults(tmp_path: Path) -> None:
    assert load_experiment(write(tmp_path, "")) == Experiment()


def test_overrides_by_dotted_key() -> None:
    changed = load_experiment(
        "peptides-func", {"model.layers": 6, "encoder.laplacian": None, "model.mamba.state": 8}
    )
    assert changed.model.layers == 6
    assert changed.model.mamba.state == 8
    assert changed.encoder.laplacian is None
    assert changed.optim == load_experiment("peptides-func").optim


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("modle: {}", "no key 'modle'; did you mean 'model'?"),
        ("model: {chanels: 4}", "model: no key 'chanels'; did you mean 'channels'?"),
        ("model: {ordering: {bin: 2}}", "model: ordering: no key 'bin'; did you mean 'bins'?"),
        ("dataset: mnst", "dataset must be one of 'peptides-func', .*, got 'mnst'"),
        ("model: {layers: many}", "model: layers must be int, got 'many'"),
        ("model: {layers: 0}", "model.layers must be at least 1, got 0"),
        (
            "model: {global_model: mambo}",
            "model: global_model must be one of 'mamba', .*, got 'mambo'",
        ),
        ("model: {dropout: true}", "model: dropout must be .*, got True"),
        ("model: 3", "model must hold keys and values, got 3"),
        ("head: {pooling: [mean]}", r"pooling must be one of .*, got \['mean'\]"),
        ("optim: {lr: -1}", "lr must be positive and finite, got -1.0"),
        ("- a\n- b", "must hold keys and values, got list"),
        ("a: [", "must be YAML"),
        ("split_sizes: [4, 2]", "split_sizes must have 3 entries"),
        ("split_sizes: [4, 2, 0]", "split_sizes of test must be at least 1, got 0"),
        ("data: {split_ratios: [1, a, 0]}", "split_ratios must be a number, got 'a'"),
        ("options: {sed: 3}", "options: no key 'sed'; did you mean 'seed'?"),
        ("options: 3", "options must hold keys and values, got 3"),
        ("seeds: [a]", "seeds must be int, got 'a'"),
    ],
)
def test_errors_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        load_experiment(write(tmp_path, text))


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        (None, None, "name must be str or Path, got None"),
        ("mnist", ["model.layers"], "overrides must be Mapping or None, got list"),
    ],
)
def test_what_is_no_name_and_no_entries_is_rejected(
    name: Any, overrides: Any, message: str
) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        load_experiment(name, overrides)


def test_unknown_experiment_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no experiment 'peptide-func'.*'peptides-func'"):
        load_experiment("peptide-func")
    with pytest.raises(UserError, match="did you mean 'mnist/gps-performer'"):
        load_experiment("mnist/gps-perfomer")


def test_what_is_like_nothing_is_answered_with_what_there_is(tmp_path: Path) -> None:
    nothing = r"no experiment 'own/nofolder', and no such folder or file; there is: peptides-func,"
    with pytest.raises(UserError, match=nothing):
        load_experiment("own/nofolder")
    with pytest.raises(UserError, match=r"there is: mnist/exphormer-upstream, mnist/exphormer, "):
        load_experiment("mnist/a-model-of-my-own")
    (tmp_path / "graphs.txt").write_text("")
    with pytest.raises(
        UserError, match=r"graphs.txt': files are .yaml, custom graphs .npz or .csv"
    ):
        load_experiment(str(tmp_path / "graphs.txt"))
    with pytest.raises(UserError, match="no key 'colour'; there is: version, dataset, "):
        load_experiment(write(tmp_path, "colour: red"))


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    for name, told in (("absent.yaml", "No such file"), ("folder.yaml", "Is a directory")):
        with pytest.raises(
            UserError, match=rf"name must be .* can be read, got '.*{name}': {told}"
        ):
            load_experiment(tmp_path / name)


@pytest.mark.parametrize("name", ["pattern/default", "peptides-func", "mnist/exphormer"])
def test_written_experiments_are_read_again(name: str, tmp_path: Path) -> None:
    experiment = load_experiment(name)
    assert load_experiment(write(tmp_path, experiment.to_yaml())) == experiment


def test_own_graphs_in_a_file(tmp_path: Path) -> None:
    text = "data: {path: here, target: [a, b], split_ratios: [0.5, 0.25, 0.25], classes: 3}"
    own = load_experiment(write(tmp_path, text)).data
    assert own is not None
    assert (own.path, own.targets, own.classes) == ("here", ("a", "b"), 3)
    assert own.split_ratios == (0.5, 0.25, 0.25)
    named = experiment_of({"data.path": "here", "data.classes": "x,y"}).data
    assert named is not None
    assert named.classes == ("x", "y")
    bracketed = experiment_of({"data.path": "here", "data.split_ratios": "[0.5, 0.25, 0.25]"}).data
    assert bracketed is not None
    assert bracketed.split_ratios == (0.5, 0.25, 0.25)


def test_own_graphs_must_be_read_before_a_model_is_built() -> None:
    with pytest.raises(UserError, match="custom graphs of 'here' must be read before"):
        experiment_of({"data.path": "here"}).build()


def test_a_newer_version_is_rejected_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"own\.yaml must be of version 2, got 3"):
        load_experiment(write(tmp_path, "version: 3\nunheard_of: 1"))


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
        ("cluster", "weighted_binary_cross_entropy", "'cross_entropy' or .* for node"),
        ("pattern", "cross_entropy", "'weighted_binary_cross_entropy' for node"),
        ("pcqm-contact", "l1", "'link_cross_entropy' or 'link_l1' for link"),
    ],
)
def test_a_loss_for_other_labels_is_rejected(benchmark: str, loss: str, fitting: str) -> None:
    experiment = load_experiment(benchmark, {"train.loss": loss})
    for reject in (experiment.check_loss, lambda: experiment.loss, lambda: open_data(experiment)):
        with pytest.raises(UserError, match=rf"train\.loss must be {fitting} .*, got '{loss}'"):
            reject()


def test_a_file_of_another_encoding_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "latin.yaml"
    path.write_bytes("dataset: pattern # café".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.yaml must be YAML: .*can't decode"):
        load_experiment(path)
