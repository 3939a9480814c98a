"""The best run of each model as weights with a card, found again by their name."""

import json
import math
import shutil
import tomllib
from pathlib import Path

import pytest

from graphmamba.errors import UserError
from graphmamba.studies.results import StoredRun
from graphmamba.studies.weights import index, weights
from graphmamba.training import predictor
from graphmamba.training.console import metric_title
from graphmamba.training.experiment import RunOptions, load_experiment
from graphmamba.training.fit import fit
from graphmamba.training.graphs import open_data
from graphmamba.training.predictor import find_pretrained, load_pretrained
from graphmamba.training.results import RunResult
from graphmamba.training.weights import build_model, load_weights, save_weights

ROOT = Path(__file__).parents[2]
SMALL = {
    "split_sizes": [6, 4, 5],
    "model.channels": 24,
    "model.layers": 1,
    "train.epochs": 2,
    "train.batch_size": 3,
    "optim.warmup": 0,
}
NAME = "pattern/graph-mamba"
PARTS = ("validation", "test")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def runs(data_dir: Path) -> Path:
    """Runs of two seeds, with their weights."""
    experiment, store = open_data(load_experiment(NAME, SMALL), data_dir)
    for seed in (0, 1):
        folder = data_dir / "runs" / NAME / f"seed-{seed}"
        fit(experiment, store, RunOptions(seed=seed, device="cpu"), folder)
    return data_dir / "runs"


def found_in(runs: Path, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    return json.loads((runs / NAME / f"seed-{seed}" / "results.json").read_text())


def better_seed(runs: Path) -> int:
    scores = [found_in(runs, seed)["scores"]["validation"]["accuracy_sbm"] for seed in (0, 1)]
    return scores.index(max(scores))


def test_evaluating_published_weights_gives_the_score_on_their_card(
    runs: Path,
    data_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from graphmamba.cli import main

    out = tmp_path / "weights[a]"
    monkeypatch.setenv("GRAPHMAMBA_DATA_DIR", str(data_dir))
    main(["study", "weights", str(runs), "--out", str(out)])
    best = better_seed(runs)
    assert f"{out / NAME}: seed {best}, validation" in capsys.readouterr().out
    for split in ("test", "validation"):
        words = ["--pretrained", "pattern", "--weights", str(out), "--split", split]
        main(["evaluate", *words, "--device", "cpu", "--json"])
        told = json.loads(capsys.readouterr().out)
        reported = found_in(runs, best)["scores"][split]
        assert {name: told[name] for name in reported} == reported == told["reported"]
        card = (out / NAME / "README.md").read_text()
        assert f"| {split} | {told['accuracy_sbm']!r} | {told['loss']!r} |" in card


def test_the_card_says_what_a_user_has_to_know(runs: Path, tmp_path: Path) -> None:
    weights(runs, tmp_path)
    card = (tmp_path / NAME / "README.md").read_text()
    for words in (
        f"Seed {better_seed(runs)}, of 2 seeds",
        "Test scores had no part in it",
        "graphmamba evaluate --pretrained pattern",
        "drawn again by the published recipe",
        "Licence of the data: none: drawn here",
        "split_sizes [6, 4, 5] instead of None",
        "batch_size 3, epochs 2",
        "Over 2 finished seeds: test",
        "commit ",
    ):
        assert words in card, words
    assert "patience" not in card
    assert "statistics" not in card
    header = load_pretrained("pattern", tmp_path)
    assert header.options.seed == better_seed(runs)
    listed = (tmp_path / "README.md").read_text()
    assert "| [pattern/graph-mamba](pattern/graph-mamba/README.md) | accuracy" in listed
    # other things in the folder are not listed
    shutil.copytree(tmp_path / NAME, tmp_path / "mine" / "first")
    assert index(tmp_path) == listed


@pytest.mark.parametrize("change", [0.0, 0.125])
def test_weights_report_what_later_code_scores_them(
    runs: Path, change: float, tmp_path: Path
) -> None:
    scores = found_in(runs, better_seed(runs))["scores"]
    before = scores["test"]["accuracy_sbm"]
    scores["test"]["accuracy_sbm"] += change
    rows = [{"weights": NAME, "split": split, "now": scores[split]} for split in PARTS]
    record = {"environment": {"commit": "0123abc", "device": "a device"}, "rows": rows}
    (tmp_path / "scores.json").write_text(json.dumps(record))
    weights(runs, tmp_path / "out", scored=tmp_path / "scores.json")
    card = (tmp_path / "out" / NAME / "README.md").read_text()
    assert "Scored by commit 0123abc on a device, as `evaluate` does there." in card
    assert f"| test | {scores['test']['accuracy_sbm']!r} | " in card
    assert ("had the same digit for digit." in card) == (change == 0)
    assert (f", test {before!r}: kernels that were rewritten since" in card) == (change != 0)
    held = load_weights(tmp_path / "out" / NAME / "best.safetensors")
    assert held.reported == {split: scores[split] for split in PARTS}
    # the choice among seeds stays that of their runs
    assert held.metadata["scores"]["test"]["accuracy_sbm"] == before
    assert load_pretrained("pattern", tmp_path / "out").reported == held.reported
    listed = (tmp_path / "out" / "README.md").read_text()
    assert f"| {scores['test']['accuracy_sbm']:.4f} | none: drawn" in listed


def test_a_record_of_another_kind_is_rejected(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text("[]")
    with pytest.raises(UserError, match=r"scored must be a record of benchmarks/scores\.py, got"):
        weights(runs, tmp_path / "out", scored=tmp_path / "scores.json")
    assert not (tmp_path / "out").exists()


def test_weights_that_report_no_score_are_listed_without(tmp_path: Path) -> None:
    experiment = load_experiment(NAME, SMALL)
    save_weights(tmp_path / NAME / "best.safetensors", experiment.build(), experiment)
    (line,) = (line for line in index(tmp_path).splitlines() if NAME in line)
    cells = [cell.strip() for cell in line.split("|")]
    assert cells[1:5] == [f"[{NAME}]({NAME}/README.md)", metric_title("accuracy_sbm"), "", ""]


def copy_of(runs: Path, into: Path) -> Path:
    return Path(shutil.copytree(runs, into / "runs"))


def rescore(run: Path, **changes: object) -> None:
    path = run / "results.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_validation_chooses_and_the_test_score_does_not(runs: Path, tmp_path: Path) -> None:
    runs = copy_of(runs, tmp_path)
    for seed, (validation, test) in enumerate([(0.7, 0.1), (0.6, 0.9)]):
        scores = {
            "validation": {"loss": 1.0, "accuracy_sbm": validation},
            "test": {"loss": 1.0, "accuracy_sbm": test},
        }
        rescore(runs / NAME / f"seed-{seed}", scores=scores)
    weights(runs, tmp_path)
    assert load_pretrained(NAME, tmp_path).options.seed == 0


@pytest.mark.parametrize(
    ("losses", "chosen", "told"),
    [((math.nan, 1.0), 1, "graph: seed 0."), ((math.nan, math.nan), 0, "no seed does better")],
)
def test_weights_that_find_no_number_are_passed_over(
    runs: Path, tmp_path: Path, losses: tuple[float, float], chosen: int, told: str
) -> None:
    runs = copy_of(runs, tmp_path)
    for seed, (validation, loss) in enumerate(zip((0.7, 0.6), losses, strict=True)):
        scores = {part: {"loss": loss, "accuracy_sbm": validation} for part in PARTS}
        rescore(runs / NAME / f"seed-{seed}", scores=scores)
    weights(runs, tmp_path)
    assert load_pretrained(NAME, tmp_path).options.seed == chosen
    assert told in (tmp_path / NAME / "README.md").read_text()


def test_an_unfinished_run_is_called_so(runs: Path, tmp_path: Path) -> None:
    runs = copy_of(runs, tmp_path)
    rescore(runs / NAME / f"seed-{better_seed(runs)}", stop_reason="max time", epochs=1)
    weights(runs, tmp_path)
    card = (tmp_path / NAME / "README.md").read_text()
    assert "Epochs: 1 of 2, stopped by max time before the last epoch." in card
    assert "1 of 2, unfinished |" in card


def test_weights_of_another_epoch_are_rejected(runs: Path, tmp_path: Path) -> None:
    runs = copy_of(runs, tmp_path)
    rescore(runs / NAME / f"seed-{better_seed(runs)}", best_epoch=7)
    with pytest.raises(ValueError, match=r"must be of the epoch in results\.json, 7, got"):
        weights(runs, tmp_path)
    (runs / NAME / f"seed-{better_seed(runs)}" / "best.safetensors").unlink()
    with pytest.raises(ValueError, match="must be a file, and there is none"):
        weights(runs, tmp_path)


def test_unknown_names_are_rejected(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="did you mean 'pattern/graph-mamba'"):
        weights(runs, tmp_path, names="patern")
    assert not list(tmp_path.rglob("best.safetensors"))


def test_a_clone_has_its_weights_beside_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GRAPHMAMBA_WEIGHTS", raising=False)
    assert ROOT / "weights" == predictor.CLONED
    inside, beside = tmp_path / "inside", tmp_path / "beside"
    monkeypatch.setattr(predictor, "PACKAGED", inside)
    monkeypatch.setattr(predictor, "CLONED", beside)
    for folder in (beside, inside):
        (folder / NAME).mkdir(parents=True)
        (folder / NAME / "best.safetensors").touch()
        assert find_pretrained("pattern").is_relative_to(folder)


def test_the_wheel_has_them_where_an_installed_package_looks() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    assert "weights" in build["wheel"]["only-include"]
    assert "weights" in build["sdist"]["include"]
    inside = predictor.PACKAGED.relative_to(ROOT / "src").as_posix()
    assert build["wheel"]["sources"] == {"src": "", "weights": inside}


@pytest.mark.skipif(not (ROOT / "weights").is_dir(), reason="no weights are published yet")
def test_the_weights_in_the_repository_have_the_scores_on_their_cards() -> None:
    assert (ROOT / "weights" / "README.md").read_text() == index(ROOT / "weights")
    for path in sorted((ROOT / "weights").rglob("*.safetensors")):
        held = load_weights(path)
        build_model(held, path)
        metric = held.experiment.dataset_info.task.metric
        card = (path.parent / "README.md").read_text()
        assert f"| test | {held.reported['test'][metric]!r} |" in card, path
        assert "Licence of the data: " in card, path


def test_runs_are_ranked_without_a_score_last() -> None:
    def run(seed: int, score: float, metric: str) -> StoredRun:
        scores = {"validation": {metric: score}}
        found = RunResult(Path(), seed, metric, 0, scores, 1, "finished", 1, 1.0, 1, {})
        return StoredRun(load_experiment("pattern"), RunOptions(), found)

    for metric, order in (("accuracy", [1, 0, 3, 2]), ("mean_absolute_error", [0, 3, 1, 2])):
        runs = [run(0, 0.5, metric), run(1, 0.7, metric), run(2, float("nan"), metric)]
        runs.append(run(3, 0.5, metric))
        assert [each.found.seed for each in sorted(runs, key=lambda each: each.found.rank)] == order
