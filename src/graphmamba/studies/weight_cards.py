"""`graphmamba study weights`: the best run of each model as a file of weights with its card."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from graphmamba.atomic import write_text
from graphmamba.commands.printing import say
from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.studies.report import markdown_table
from graphmamba.studies.results import DATA_NOTES, StoredRun, collect, spread_of
from graphmamba.training.checkpoint import load_weights, read_tensors, write_tensors
from graphmamba.training.experiment import changed_entries, config_names, load_experiment
from graphmamba.training.metrics import LOWER_IS_BETTER
from graphmamba.training.progress import bytes_of, metric_title, time_of
from graphmamba.training.run_dir import RunDir, Scores, json_numbers, read_scores

CARD, BEST = "README.md", "best.safetensors"
MAIN = "graph-mamba"
"""The model that a data set's name alone stands for."""
ONLY_FOR = {
    "warmup": "cosine",
    "patience": "plateau",
    "factor": "plateau",
    "min_lr": "plateau",
}
"""Keys of `optim` that mean something for one schedule alone."""
OFF = {"ema_decay": 0.0, "recalibrate_batch_norm": 0}
"""Keys of `train` that change nothing at these values."""


class Rescored(NamedTuple):
    """What one file of weights scored once more, by `benchmarks/scores.py`."""

    commit: str
    device: str
    scores: Mapping[str, Scores]
    """By split."""


def read_rescored(path: Path) -> dict[str, Rescored]:
    """Read a record, by the names of the weights, `BENCHMARK/MODEL`."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        where, splits = content["environment"], dict[str, dict[str, Scores]]()
        for row in content["rows"]:
            found = read_scores({row["split"]: row["now"]})
            splits.setdefault(row["weights"], {}).update(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"scored must be a record of benchmarks/scores.py, got '{path}': {error!r}"
        ) from error
    return {
        name: Rescored(where["commit"], where["device"], scores) for name, scores in splits.items()
    }


def weights(folder: Path, out: Path = Path("weights"), scored: Path | None = None) -> None:
    """Export the weights of the best run of each model, by validation, with a model card.

    Args:
        folder: Directory of runs, DATASET/MODEL/seed-N, with their weights.
        out: Output directory; gets DATASET/MODEL/best.safetensors and a README.md for each.
        scored: Report the scores of this file, written by benchmarks/scores.py, in place of those
            of the runs.
    """
    found: dict[str, list[StoredRun]] = {}
    for line in collect(folder).lines:
        found.setdefault(line.name, []).extend(line.runs)
    again = read_rescored(scored) if scored else {}
    for name, runs in found.items():
        best = export(name, runs, out, again.get(name))
        told = f"seed {best.found.seed}, validation {best.found.validation:.4f}"
        say(f"{out / name}: {told}, test {best.found.test:.4f}")
    write_text(out / CARD, index(out))


def export(
    name: str, runs: Iterable[StoredRun], out: Path, again: Rescored | None = None
) -> StoredRun:
    """Write weights and card of the best sound run by validation, and return it.

    Args:
        name: `BENCHMARK/MODEL`.
        runs: Of all its seeds.
        out: Gets the folder `BENCHMARK/MODEL`.
        again: What the weights scored later.
    """
    ranked = sorted(runs, key=lambda run: run.found.rank)
    best = ranked[0]
    source = RunDir(best.found.run_dir).best
    tensors, about = read_tensors(source)
    held = load_weights(source)
    own = held.experiment, held.metadata.get("seed"), held.metadata.get("epoch")
    if own != (best.experiment, best.found.seed, best.found.best_epoch):
        raise UserError(f"'{source}' must be of the experiment, seed and epoch in results.json")
    place = RunDir(out / name)
    # weights of an older run may not say how it computed
    known = {"options": best.options.content(), "environment": dict(best.found.environment)}
    later: dict[str, object] = {}
    if again:
        scores = {split: json_numbers(values) for split, values in again.scores.items()}
        later = {"scored_again": again._asdict() | {"scores": scores}}
    write_tensors(place.best, tensors, about | known | later)
    write_text(place.path / CARD, card(name, ranked, again))
    return best


def index(out: Path) -> str:
    """List all weights in a folder with their scores, as the headers of the files report them."""
    rows = []
    for path in (path for name in CATALOG for path in sorted(out.glob(f"{name}/*/{BEST}"))):
        name, held = "/".join(path.parts[-3:-1]), load_weights(path)
        metric = held.experiment.dataset_info.task.metric
        scores = [held.reported.get(split, {}).get(metric) for split in ("validation", "test")]
        values = ["" if score is None else f"{score:.4f}" for score in scores]
        licence = DATA_NOTES[held.experiment.dataset].licence
        rows.append([f"[{name}]({name}/{CARD})", metric_title(metric), *values, licence])
    return "\n".join(
        [
            "# Trained weights",
            "",
            "One directory per model: weights, and a model card with data, training, scores and "
            "licence.",
            "`graphmamba evaluate --pretrained NAME` loads them by name; DATASET alone stands for",
            "DATASET/graph-mamba. All were chosen on validation scores.",
            "",
            *markdown_table(["name", "metric", "validation", "test", "licence of the data"], rows),
            "",
        ]
    )


def card(name: str, runs: Sequence[StoredRun], again: Rescored | None = None) -> str:
    """Write the card of the first of all runs of a model, as Markdown."""
    benchmark, _, model = name.partition("/")
    note, data = DATA_NOTES[benchmark], CATALOG[benchmark]
    parts = f"{data.train:,} / {data.validation:,} / {data.test:,}"
    sections = {
        "How it was chosen": _choice(runs),
        "Use": _use(benchmark if model == MAIN else name, again is not None),
        "Data": [
            f"{data.title}, published with {parts} graphs: {note.about}.",
            "",
            f"Licence of the data: {note.licence}.",
            "The weights come under the licence of this repository, within the terms of the data.",
        ],
        "Training": _training(name, runs[0]),
    }
    text = [f"# {model} on {data.title}", "", *_scores(runs[0], again)]
    for heading, body in sections.items():
        text += ["", f"## {heading}", "", *body]
    return "\n".join([*text, ""])


def _scores(run: StoredRun, again: Rescored | None) -> list[str]:
    """All scores of the weights, with all their digits, and who found them."""
    found = run.found
    reported = {**found.scores, **(again.scores if again else {})}
    names = [name for name in reported["test"] if name != "loss"]
    titles = [f"{metric_title(name)} {'↓' if name in LOWER_IS_BETTER else '↑'}" for name in names]
    rows = [
        [split, *(repr(reported[split][name]) for name in (*names, "loss"))]
        for split in ("test", "validation")
    ]
    text = [
        *markdown_table(["split", *titles, "loss"], rows),
        "",
        f"{found.parameters:,} parameters, 32 bits each.",
    ]
    if again is None:
        return text
    had = ", ".join(f"{split} {found.scores[split][found.metric]!r}" for split in again.scores)
    is_same = all(scores == found.scores[split] for split, scores in again.scores.items())
    had = "the same digit for digit" if is_same else f"{had}: later kernels round differently"
    return [
        *text,
        "",
        f"Scored by commit {again.commit} on {again.device}, as `evaluate` does there.",
        f"Its run, by commit {found.environment.get('commit') or 'unknown'}, had {had}.",
    ]


def _choice(runs: Sequence[StoredRun]) -> list[str]:
    best, metric = runs[0].found, metric_title(runs[0].found.metric)
    seeds = f"of {len(runs)} seeds" if len(runs) > 1 else "the only seed"
    left_out = [f"seed {run.found.seed}" for run in runs if not run.found.is_sound]
    text = [
        f"Seed {best.seed}, {seeds}, and epoch {best.best_epoch + 1} have the best "
        f"validation {metric}. Test scores had no part in it."
    ]
    if not best.is_sound:
        text.append("Its predictions are NaN for some validation graphs, and no seed does better.")
    elif left_out:
        listed = ", ".join(left_out)
        text.append(f"Left out because of NaN predictions for some validation graphs: {listed}.")
    rows = [
        [
            *(str(run.found.seed), f"{run.found.validation:.4f}", f"{run.found.test:.4f}"),
            run.epochs if run.found.is_done else f"{run.epochs}, unfinished",
        ]
        for run in sorted(runs, key=lambda each: each.found.seed)
    ]
    columns = ["seed", f"validation {metric}", f"test {metric}", "epochs"]
    text += ["", *markdown_table(columns, rows)]
    tests = [run.found.test for run in runs if run.found.is_done]
    if len(tests) > 1:
        text += [
            "",
            f"Over {len(tests)} finished seeds: test {metric} {spread_of(tests)}. That, and not "
            "the score of one seed, is what to compare models by.",
        ]
    return text


def _use(name: str, is_scored_again: bool) -> list[str]:
    where = "above" if is_scored_again else "below"
    return [
        *("```bash", f"graphmamba evaluate --pretrained {name}", "```", ""),
        *("```python", "import graphmamba", ""),
        f'predictor = graphmamba.load_pretrained("{name}")',
        "predictions = predictor.predict(graphs)  # a list of PyG graphs",
        *("```", ""),
        "Random node orders at evaluation follow the seed in the file and the index of each graph. "
        f"On a device like the one {where}, with the commit {where} and the same data files, "
        "`evaluate` therefore gives the test score above digit for digit; elsewhere, sums and "
        "Laplacian eigenvectors are rounded differently.",
    ]


def _training(name: str, run: StoredRun) -> list[str]:
    is_shipped = name in config_names()
    changes = changed_entries(load_experiment(name), run.experiment) if is_shipped else []
    config = f"preset `{name}`" if is_shipped else "a configuration of its own"
    changed = f", but for {'; '.join(changes)}" if changes else ""
    found, where = run.found, run.found.environment
    schedule = run.experiment.optim.schedule
    recipe = ", ".join(
        f"{key} {value}"
        for key, value in {**asdict(run.experiment.train), **asdict(run.experiment.optim)}.items()
        if value not in (None, OFF.get(key)) and ONLY_FOR.get(key, schedule) == schedule
    )
    ended = "" if found.is_done else f", stopped by {found.stop_reason} before the last epoch"
    # only a CPU is described by its threads
    is_rounded = run.options.tf32 and where.get("threads") is None
    rounded = ", matrix products in TF32" if is_rounded else ""
    known = ("graphmamba", "torch", "triton", "numba", "cuda", "python")
    versions = ", ".join(f"{key} {where[key]}" for key in known if where.get(key))
    used = f"{time_of(found.seconds)}, {bytes_of(found.peak_memory)} at most"
    return [
        f"- Configuration: {config}{changed}; all of it is in the header of the file.",
        f"- Training: {recipe}.",
        f"- Epochs: {run.epochs}{ended}.",
        f"- Precision: {run.options.precision}{rounded}.",
        f"- Machine: {where.get('device', 'unknown')}; {used}.",
        f"- Versions: {versions}; commit {where.get('commit') or 'unknown'}.",
    ]
