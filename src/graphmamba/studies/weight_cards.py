"""`graphmamba study weights`: the weights of the best run of each model, with a model card."""

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
from graphmamba.studies.results import DATA_NOTES, StoredRun, collect, mean_and_deviation
from graphmamba.training.checkpoint import load_weights, read_tensors, write_tensors
from graphmamba.training.experiment import (
    OptimConfig,
    TrainConfig,
    changed_entries,
    config_names,
    load_experiment,
)
from graphmamba.training.metrics import LOWER_IS_BETTER, metric_title
from graphmamba.training.progress import bytes_of, time_of
from graphmamba.training.run_dir import RunDir, Scores, json_numbers, read_scores

CARD, BEST = "README.md", "best.safetensors"
ALWAYS_LISTED = {
    "batch_size",
    "epochs",
    "lr",
    "weight_decay",
    "optimizer",
    "max_grad_norm",
    "schedule",
}
"""Training settings on the card; others only where they differ from their defaults."""
OF_SCHEDULE = {"cosine": {"warmup"}, "plateau": {"patience", "factor", "min_lr"}, "constant": set()}


class Rescored(NamedTuple):
    """Scores of weights by later code, from `benchmarks/scores.py`."""

    commit: str
    device: str
    scores: Mapping[str, Scores]
    """By split."""


def read_rescored(path: Path) -> dict[str, Rescored]:
    """Read a record of `benchmarks/scores.py`, by `DATASET/MODEL`."""
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
    for row in collect(folder).rows:
        found.setdefault(row.name, []).extend(row.runs)
    rescored = read_rescored(scored) if scored else {}
    for name, runs in found.items():
        best = export(name, runs, out, rescored.get(name)).found
        about = f"seed {best.seed}, validation {best.validation:.4f}, test {best.test:.4f}"
        say(f"{out / name}: {about}")
    write_text(out / CARD, index(out))


def export(
    name: str, runs: Iterable[StoredRun], out: Path, rescored: Rescored | None = None
) -> StoredRun:
    """Write weights and card of the best run by validation, and return the run.

    Args:
        name: `DATASET/MODEL`.
        runs: All seeds.
        out: Gets the folder `DATASET/MODEL`.
        rescored: Scores of the weights by later code.
    """
    ranked = sorted(runs, key=lambda run: run.found.rank)
    best = ranked[0]
    source = RunDir(best.found.run_dir).best
    tensors, header = read_tensors(source)
    held = load_weights(source)
    own = held.experiment, held.metadata.get("seed"), held.metadata.get("epoch")
    if own != (best.experiment, best.found.seed, best.found.best_epoch):
        raise UserError(f"'{source}' must be of the experiment, seed and epoch in results.json")
    # the weights of older runs lack options and environment
    header |= {"options": best.options.content(), "environment": dict(best.found.environment)}
    if rescored:
        scores = {split: json_numbers(values) for split, values in rescored.scores.items()}
        header["scored_again"] = rescored._asdict() | {"scores": scores}
    target = RunDir(out / name)
    write_tensors(target.best, tensors, header)
    write_text(target.path / CARD, card(name, ranked, rescored))
    return best


def index(out: Path) -> str:
    """List all weights in a folder with the scores in their headers."""
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


def card(name: str, runs: Sequence[StoredRun], rescored: Rescored | None = None) -> str:
    """Write the card of the first run; `runs` are all seeds of the model, the best first."""
    dataset, _, model = name.partition("/")
    note, data = DATA_NOTES[dataset], CATALOG[dataset]
    sizes = f"{data.train:,} / {data.validation:,} / {data.test:,}"
    sections = {
        "How it was chosen": _choice(runs),
        "Use": _use(dataset if model == "graph-mamba" else name, rescored is not None),
        "Data": [
            f"{data.title}, published with {sizes} graphs: {note.about}.",
            "",
            f"Licence of the data: {note.licence}.",
            "The weights come under the licence of this repository, within the terms of the data.",
        ],
        "Training": _training(name, runs[0]),
    }
    text = [f"# {model} on {data.title}", "", *_scores(runs[0], rescored)]
    for heading, body in sections.items():
        text += ["", f"## {heading}", "", *body]
    return "\n".join([*text, ""])


def _scores(run: StoredRun, rescored: Rescored | None) -> list[str]:
    found = run.found
    reported = {**found.scores, **(rescored.scores if rescored else {})}
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
    if rescored is None:
        return text
    had = ", ".join(f"{split} {found.scores[split][found.metric]!r}" for split in rescored.scores)
    is_same = all(scores == found.scores[split] for split, scores in rescored.scores.items())
    had = "the same digit for digit" if is_same else f"{had}: later kernels round differently"
    return [
        *text,
        "",
        f"Scored by commit {rescored.commit} on {rescored.device}, as `evaluate` does there.",
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
        score = mean_and_deviation(tests)
        text += [
            "",
            f"Over {len(tests)} finished seeds: test {metric} {score}. That, and not "
            "the score of one seed, is what to compare models by.",
        ]
    return text


def _use(name: str, is_rescored: bool) -> list[str]:
    where = "above" if is_rescored else "below"
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
    found, where, optim = run.found, run.found.environment, run.experiment.optim
    config = "a configuration of its own"
    if name in config_names():
        changes = changed_entries(load_experiment(name), run.experiment)
        config = f"preset `{name}`" + (f", but for {'; '.join(changes)}" if changes else "")
    listed = ALWAYS_LISTED | OF_SCHEDULE[optim.schedule]
    defaults = asdict(TrainConfig()) | asdict(OptimConfig())
    recipe = ", ".join(
        f"{key} {value}"
        for key, value in (asdict(run.experiment.train) | asdict(optim)).items()
        if key in listed or value != defaults[key]
    )
    ended = "" if found.is_done else f", stopped by {found.stop_reason} before the last epoch"
    # the environment lists threads on a CPU only
    is_tf32 = run.options.tf32 and where.get("threads") is None
    known = ("graphmamba", "torch", "triton", "numba", "cuda", "python")
    versions = ", ".join(f"{key} {where[key]}" for key in known if where.get(key))
    return [
        f"- Configuration: {config}; all of it is in the header of the file.",
        f"- Training: {recipe}.",
        f"- Epochs: {run.epochs}{ended}.",
        f"- Precision: {run.options.precision}{', matrix products in TF32' if is_tf32 else ''}.",
        f"- Machine: {where.get('device', 'unknown')}; {time_of(found.seconds)}, "
        f"{bytes_of(found.peak_memory)} at most.",
        f"- Versions: {versions}; commit {where.get('commit') or 'unknown'}.",
    ]
