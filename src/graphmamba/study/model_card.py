"""The card beside published weights: data, recipe, scores, how it was chosen, how it is used."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict

from graphmamba.config import config_names, load_experiment
from graphmamba.data.catalog import CATALOG
from graphmamba.show.units import bytes_of, metric_title, time_of
from graphmamba.study.data_notes import DATA_NOTES
from graphmamba.study.rescored import Rescored
from graphmamba.study.runs import StoredRun
from graphmamba.task.metrics import LOWER_IS_BETTER
from graphmamba.train.experiment import changed_entries
from graphmamba.train.results import Scores, deviation_of, mean_of

MAIN = "graph-mamba"
"""The model that a data set's name alone stands for."""
ONLY_FOR = {
    "warmup": "cosine",
    "patience": "plateau",
    "factor": "plateau",
    "least_learning_rate": "plateau",
}
"""Entries of a recipe that mean something for one schedule alone."""
OFF = {"average": 0.0, "statistics": 0}
"""Entries of a recipe that have no part in it when they are so."""


def card(name: str, runs: Sequence[StoredRun], again: Rescored | None = None) -> str:
    """Write the card of the first run as Markdown.

    Args:
        name: `BENCHMARK/MODEL`.
        runs: All seeds, the one that was chosen first.
        again: Scores that its weights had later; None where nobody has looked.
    """
    benchmark, _, model = name.partition("/")
    return "\n".join(
        [
            f"# {model} on {CATALOG[benchmark].title}",
            "",
            *_scores(runs[0], {**runs[0].found.scores, **(again.scores if again else {})}),
            *(_again(runs[0], again) if again else ()),
            *_section("How it was chosen", _choice(runs)),
            *_section("Use", _use(benchmark if model == MAIN else name, again is not None)),
            *_section("Data", _data(benchmark)),
            *_section("Training", _training(name, runs[0])),
            "",
        ]
    )


def _section(title: str, body: Iterator[str]) -> list[str]:
    return ["", f"## {title}", "", *body]


def _scores(run: StoredRun, reported: Mapping[str, Scores]) -> Iterator[str]:
    """All scores of the weights, with all their digits."""
    names = [name for name in reported["test"] if name != "loss"]
    titles = [f"{metric_title(name)} {'↓' if name in LOWER_IS_BETTER else '↑'}" for name in names]
    yield f"| split | {' | '.join(titles)} | loss |"
    yield "|---" * (len(names) + 2) + "|"
    for split in ("test", "validation"):
        scores = reported[split]
        yield f"| {split} | {' | '.join(repr(scores[name]) for name in (*names, 'loss'))} |"
    yield ""
    yield f"{run.found.parameters:,} parameters, 32 bits each."


def _again(run: StoredRun, again: Rescored) -> Iterator[str]:
    """Say by what they were scored, and what their run had."""
    found = run.found
    had = ", ".join(f"{split} {found.scores[split][found.metric]!r}" for split in again.scores)
    is_same = all(scores == found.scores[split] for split, scores in again.scores.items())
    run_had = f"Its run, by commit {found.environment.get('commit') or 'unknown'}, had"
    yield ""
    yield f"Scored by commit {again.commit} on {again.device}, as `evaluate` does there."
    if is_same:
        yield f"{run_had} the same digit for digit."
    else:
        yield f"{run_had} {had}: kernels that were rewritten since round otherwise."


def _choice(runs: Sequence[StoredRun]) -> Iterator[str]:
    best, metric = runs[0], metric_title(runs[0].found.metric)
    seeds = f"of {len(runs)} seeds" if len(runs) > 1 else "the only seed"
    yield (
        f"Seed {best.found.seed}, {seeds}, and epoch {best.found.best_epoch + 1} have the best "
        f"validation {metric}. Test scores had no part in it."
    )
    passed_over = [
        f"seed {run.found.seed}" for run in runs if best.found.is_sound and not run.found.is_sound
    ]
    if passed_over:
        yield (
            f"Passed over, since their weights find no number for some validation graph: "
            f"{', '.join(passed_over)}."
        )
    if not best.found.is_sound:
        yield "It finds no number for some validation graph, and no seed does better."
    yield ""
    yield f"| seed | validation {metric} | test {metric} | epochs |"
    yield "|---|---|---|---|"
    for run in sorted(runs, key=lambda each: each.found.seed):
        yield (
            f"| {run.found.seed} | {run.found.validation:.4f} | {run.found.test:.4f} | {run.epochs}"
            f"{'' if run.found.is_done else ', unfinished'} |"
        )
    tests = [run.found.test for run in runs if run.found.is_done]
    if len(tests) > 1:
        yield ""
        spread = f"{mean_of(tests):.4f} ± {deviation_of(tests):.4f}"
        yield (
            f"Over {len(tests)} finished seeds: test {metric} {spread}. That, and not the score of "
            "one seed, is what to compare models by."
        )


def _use(name: str, is_scored_again: bool) -> Iterator[str]:
    where = "above" if is_scored_again else "below"
    yield from ("```bash", f"graphmamba evaluate --pretrained {name}", "```", "")
    yield from ("```python", "import graphmamba", "")
    yield from (f'model = graphmamba.load_pretrained("{name}")', "found = model.predict(graphs)")
    yield from ("```", "")
    yield (
        "Line-ups at evaluation follow the seed in the file and the number of each graph in its "
        f"set. On a device like the one {where}, with the commit {where} and the data built from "
        "the same files, `evaluate` therefore gives the test score above digit for digit; "
        "elsewhere sums and Laplacian eigenvectors round differently."
    )


def _data(benchmark: str) -> Iterator[str]:
    note, data = DATA_NOTES[benchmark], CATALOG[benchmark]
    parts = f"{data.train:,} / {data.validation:,} / {data.test:,}"
    yield f"{data.title}, published with {parts} graphs: {note.about}."
    yield ""
    yield f"Licence of the data: {note.licence}."
    yield "The weights come under the licence of this repository, within the terms of the data."


def _training(name: str, run: StoredRun) -> Iterator[str]:
    is_shipped = name in config_names()
    changes = changed_entries(load_experiment(name), run.experiment) if is_shipped else []
    config = f"the config `{name}` of the package" if is_shipped else "a config of its own"
    changed = f", but for {'; '.join(changes)}" if changes else ""
    found, where = run.found, run.found.environment
    schedule = run.experiment.recipe.schedule
    recipe = ", ".join(
        f"{key} {value}"
        for key, value in asdict(run.experiment.recipe).items()
        if value not in (None, OFF.get(key)) and ONLY_FOR.get(key, schedule) == schedule
    )
    ended = "" if found.is_done else f", stopped by {found.ending} before the last epoch"
    # only a CPU is described by its threads
    is_rounded = run.options.tf32 and where.get("threads") is None
    rounded = ", products of matrices in TF32" if is_rounded else ""
    device = where.get("device", "unknown")
    versions = ", ".join(
        f"{key} {where[key]}"
        for key in ("graphmamba", "torch", "triton", "numba", "cuda", "python")
        if where.get(key)
    )
    yield f"- By {config}{changed}; the header of the file holds all of it."
    yield f"- Recipe: {recipe}."
    yield f"- Epochs: {run.epochs}{ended}."
    yield f"- Precision: {run.options.precision}{rounded}."
    yield f"- Machine: {device}; {time_of(found.seconds)}, {bytes_of(found.peak_memory)} at most."
    yield f"- Versions: {versions}; commit {where.get('commit') or 'unknown'}."
