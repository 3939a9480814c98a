"""`graphmamba study results`: runs on disk as a page, beside what the paper reports."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from graphmamba.atomic import write_json, write_text
from graphmamba.commands.printing import say
from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.figures import new_figure
from graphmamba.reported import GRAPH_MAMBA, Score, published
from graphmamba.studies.report import COLOURS, INK, QUIET, markdown_table, save_figure
from graphmamba.training.console import bytes_of, metric_title, time_of
from graphmamba.training.experiment import (
    Experiment,
    RunOptions,
    changed_entries,
    config_names,
    load_experiment,
)
from graphmamba.training.metrics import LOWER_IS_BETTER
from graphmamba.training.results import RunResult, deviation_of, mean_of, read_result
from graphmamba.training.run_dir import RunDir, read_config, read_rows


class StoredRun(NamedTuple):
    """What a run was started with, and what it found."""

    experiment: Experiment
    options: RunOptions
    found: RunResult

    @property
    def epochs(self) -> str:
        """Epochs that were made, and of how many where some are missing."""
        made, planned = self.found.epochs, self.experiment.train.epochs
        return str(made) if made == planned else f"{made} of {planned}"


def read_stored(folder: Path) -> StoredRun:
    """Read a run folder, or what is kept of one: `config.yaml` and `results.json`."""
    started = read_config(folder)
    found = read_result(RunDir(folder).results)
    return StoredRun(started.experiment, started.options, found)


def finished_run(place: RunDir, experiment: Experiment) -> RunResult | None:
    """Read a run of this experiment that came to its end; a folder of another one's is rejected."""
    if not place.config.exists():
        return None
    if read_config(place.path).experiment != experiment:
        raise UserError(
            f"folder must hold runs of the same experiment, and '{place.path}' holds another: "
            "name another folder"
        )
    return place.done()


LRGB = "as LRGB releases it"
NO_OTHERS = "none: drawn here by a published recipe, no data of others"


@dataclass(frozen=True)
class DataNote:
    """What differs from the data of the published numbers, and the terms it comes under."""

    word: str
    """Stands in the table."""
    about: str
    """Stands below it."""
    licence: str
    """Of the data that a model was trained on."""
    is_comparable: bool = True
    """Whether scores can be held against the published ones."""


SUPERPIXELS = (
    "superpixels cut again from the images, not the published files: node counts, values and edges "
    "differ a little"
)
NEAREST = (
    f"{SUPERPIXELS}. Each node has 8 edges: ours go to the 8 nearest by place; the published files "
    "keep 8 of the 9 nearest and drop one that depends on how NumPy partitions, so that at least 7 "
    "of 8 edges (87.5 %) are shared where the superpixels are the same"
)
DRAWN = DataNote(
    "drawn again",
    "graphs drawn again by the published recipe, which fixes no seed: other graphs, same law",
    NO_OTHERS,
)
DATA_NOTES = {
    "peptides-func": DataNote(
        "official",
        "official molecules, labels and split; graphs built from SMILES",
        f"CC BY-NC 4.0 (SATPdb, {LRGB}): no commercial use",
    ),
    "peptides-struct": DataNote(
        "partial targets",
        "targets recomputed for a part of the peptides and standardised over these: not comparable "
        "with the published numbers, which therefore stand in parentheses",
        f"CC BY-NC 4.0 (SATPdb, {LRGB}): no commercial use",
        is_comparable=False,
    ),
    "pascalvoc-sp": DataNote(
        "regenerated",
        SUPERPIXELS,
        "terms of Pascal VOC 2011; the images come under Flickr's terms of use",
    ),
    "coco-sp": DataNote(
        "regenerated", SUPERPIXELS, f"CC BY 4.0 (MS COCO, {LRGB}); the images are Flickr's"
    ),
    "pcqm-contact": DataNote(
        "official",
        "official molecules; wrong pairs drawn again in every epoch, as published",
        f"CC BY 4.0 (PCQM4Mv2, {LRGB})",
    ),
    "malnet-tiny": DataNote(
        "official",
        "official graphs and split, nodes without neighbours removed, as published",
        "unknown, see the source: www.mal-net.org",
    ),
    "cifar10": DataNote(
        "regenerated",
        NEAREST,
        "unknown, see the source: www.cs.toronto.edu/~kriz/cifar.html states none",
    ),
    "mnist": DataNote("regenerated", NEAREST, "CC BY-SA 3.0, as those who pass MNIST on state it"),
    "cluster": DRAWN,
    "pattern": DRAWN,
}
"""By the data set's name in the catalogue."""


SHORT = 2.0
"""A row is flagged where it misses the paper by more than so many published deviations."""


@dataclass(frozen=True)
class Line:
    """One model on one data set, over its seeds: those that are finished, or those that are not."""

    benchmark: str
    model: str
    runs: tuple[StoredRun, ...]
    """By seed; all of the same experiment."""
    is_done: bool

    @property
    def name(self) -> str:
        """Data set and model, as configs are named."""
        return f"{self.benchmark}/{self.model}"

    @property
    def metric(self) -> str:
        """What the best epochs were chosen by."""
        return self.runs[0].found.metric

    @property
    def note(self) -> DataNote:
        """What has to be known about its data."""
        return DATA_NOTES[self.benchmark]

    @property
    def paper(self) -> Score | None:
        """What is reported for it."""
        return published(self.benchmark, self.model)

    @property
    def mean(self) -> float:
        """Mean test score."""
        return mean_of([run.found.test for run in self.runs])

    @property
    def deviation(self) -> float:
        """Standard deviation over the seeds, divided by their number."""
        return deviation_of([run.found.test for run in self.runs])

    @property
    def score(self) -> str:
        """Mean and standard deviation, where there is more than one run."""
        return f"{self.mean:.4f}" + (f" ± {self.deviation:.4f}" if len(self.runs) > 1 else "")

    @property
    def shortfall(self) -> float | None:
        """By how many published deviations it misses the paper; negative where it is better."""
        paper = self.paper
        if paper is None or paper.std is None or not self.note.is_comparable:
            return None
        sign = 1 if self.metric in LOWER_IS_BETTER else -1
        return sign * (self.mean - paper.mean) / paper.std

    @property
    def is_short(self) -> bool:
        """Whether it misses the paper by more than the rule allows."""
        return self.shortfall is not None and self.shortfall > SHORT

    @property
    def is_above(self) -> bool:
        """Whether it beats the paper by as much."""
        return self.shortfall is not None and self.shortfall < -SHORT

    @property
    def label(self) -> str:
        """The model, and whether its runs are unfinished."""
        return self.model if self.is_done else f"{self.model}, unfinished"

    @property
    def title(self) -> str:
        """Data set and model in words."""
        return f"{CATALOG[self.benchmark].title}, {self.label}"

    @property
    def changes(self) -> list[str]:
        """Where it was not trained by the config of its name, or not in 32 bits."""
        changes = ["no config of the package, see its `config.yaml`"]
        if self.name in config_names():
            changes = changed_entries(load_experiment(self.name), self.runs[0].experiment)
        precisions = {run.options.precision for run in self.runs} - {"32-true"}
        return [*changes, *(f"precision {precision}" for precision in sorted(precisions))]


class Collected(NamedTuple):
    """What a folder holds."""

    lines: list[Line]
    """Runs that have a score, sorted as catalogue and configs are."""
    scoreless: list[str]
    """Runs that have none, each with the reason."""


def collect(folder: Path) -> Collected:
    """Read all runs under `BENCHMARK/MODEL/seed-N`.

    Runs that were stopped before their last epoch make a row of their own, since they are not
    what the others are.

    Args:
        folder: Where they are.
    """
    runs: dict[tuple[str, str, bool], list[StoredRun]] = {}
    scoreless: list[str] = []
    for place in run_folders(folder):
        benchmark, model, seed = place.parts[-3:]
        if not RunDir(place).results.exists():
            scoreless.append(f"{benchmark}/{model}/{seed}: killed, it has no results.json")
            continue
        run = read_placed(place)
        if math.isnan(run.found.test):
            why = f"{run.epochs} epochs, ended by {run.found.stop_reason}"
            scoreless.append(f"{benchmark}/{model}/{seed}: {why}")
        else:
            runs.setdefault((benchmark, model, run.found.is_done), []).append(run)
    if not runs:
        raise UserError(f"folder must hold runs with a score, and '{folder}' has none")
    for benchmark, model, _ in runs:
        both = (runs.get((benchmark, model, done), []) for done in (True, False))
        check_same(f"{benchmark}/{model}", [run for own in both for run in own])
    return Collected([Line(*key[:2], tuple(runs[key]), key[2]) for key in _sorted(runs)], scoreless)


def _sorted(keys: Iterable[tuple[str, str, bool]]) -> list[tuple[str, str, bool]]:
    """Data sets as in the catalogue; in each, Graph-Mamba and what grew of it come first."""
    sets, configs = list(CATALOG), config_names()

    def rank(key: tuple[str, str, bool]) -> tuple[object, ...]:
        benchmark, model, is_done = key
        is_shipped, is_grown = f"{benchmark}/{model}" in configs, model.startswith("graph-mamba")
        # models of others come last of all
        place = sets.index(benchmark) if is_shipped else len(sets)
        return place, is_shipped and not is_grown, benchmark, model, not is_done

    return sorted(keys, key=rank)


def run_folders(folder: Path) -> list[Path]:
    """Find the runs under `BENCHMARK/MODEL/seed-N`, by seed."""
    found = [path.parent for path in folder.glob("*/*/seed-*/config.yaml")]
    if not found:
        raise UserError(f"folder must hold BENCHMARK/MODEL/seed-N/config.yaml, got '{folder}'")
    return sorted(found, key=lambda path: (path.parts[:-1], _seed_of(path)))


def _seed_of(folder: Path) -> int:
    number = folder.name.removeprefix("seed-")
    if not number.isdecimal():
        raise UserError(f"'{folder}' must be named seed-N, got '{folder.name}'")
    return int(number)


def read_placed(place: Path) -> StoredRun:
    """Read the run in `BENCHMARK/MODEL/seed-N`; one that lies in another's place is rejected."""
    benchmark = place.parts[-3]
    if benchmark not in CATALOG:
        raise UserError(f"'{place}' must lie in a folder named as a data set, got '{benchmark}'")
    run = read_stored(place)
    trained_on = "custom graphs" if run.experiment.data else run.experiment.dataset
    if trained_on != benchmark:
        raise UserError(f"'{place}' must hold a run on '{benchmark}', got one on {trained_on}")
    if run.found.seed != _seed_of(place):
        raise UserError(f"'{place}' must be named by its seed, which is {run.found.seed}")
    return run


def check_same(name: str, runs: Sequence[StoredRun]) -> None:
    """Reject runs of one model that are of different experiments."""
    first = runs[0]
    for run in runs[1:]:
        changes = changed_entries(first.experiment, run.experiment)
        if changes:
            raise UserError(
                f"runs of {name} must be of the same experiment, and seed {run.found.seed} has "
                f"{changes[0]}: lay it in a folder of another name"
            )


def keep_runs(folder: Path, into: Path) -> None:
    """Copy `results.json`, `metrics.csv` and `config.yaml` of all runs, without weights.

    A run that is kept already is replaced by a later state of it; an earlier one, or one of another
    experiment, is rejected, and then nothing has been copied.

    Args:
        folder: Holds BENCHMARK/MODEL/seed-N for each run.
        into: Gets the same folders.
    """
    if folder.resolve() == into.resolve():
        raise UserError(f"keep must be another folder than that of the runs, got '{into}'")
    places = [Path(*place.parts[-3:]) for place in run_folders(folder)]
    for place in places:
        _check_keep(folder / place, into / place)
    for place in places:
        run, kept = RunDir(folder / place), RunDir(into / place)
        for source, copy in ((run.config, kept.config), (run.metrics, kept.metrics)):
            if source.exists():
                write_text(copy, source.read_text(encoding="utf-8"))
        # last, since whoever finds results reads the config beside them
        if run.results.exists():
            # the folder that the run was made in means nothing elsewhere
            content = read_result(run.results).content() | {"run_dir": place.as_posix()}
            write_json(kept.results, content)


def _check_keep(place: Path, kept: Path) -> None:
    """Reject to lay something else over a run, or what the page could not be made with."""
    has_result = RunDir(place).results.exists()
    if RunDir(kept).results.exists():
        before = read_stored(kept)
        if not has_result or read_stored(place).found.epochs < before.found.epochs:
            raise UserError(f"'{place}' must not be older than what is kept in '{kept}'")
        changes = changed_entries(before.experiment, read_stored(place).experiment)
        if changes:
            raise UserError(
                f"'{place}' must be of the experiment that is kept in '{kept}', and has "
                f"{changes[0]}"
            )
    if has_result:
        found = read_placed(place)
        for other in sorted(kept.parent.glob("seed-*")):
            if RunDir(other).results.exists():
                check_same("/".join(place.parts[-3:-1]), [read_placed(other), found])


def results(
    folder: Path,
    out: Path = Path("docs/results.md"),
    keep: Path | None = None,
    curves: bool = True,
    yardsticks: Path = Path("benchmarks/results"),
) -> None:
    """Collect runs into a page, beside the published numbers.

    Args:
        folder: Holds BENCHMARK/MODEL/seed-N for each run.
        out: Markdown file, whose folder is made where it is missing; what was written in it by
            hand, below its mark, is kept, and a file without the mark is rejected.
        keep: Where to copy results.json, metrics.csv and config.yaml of the runs first; the page
            is then made of all that is there.
        curves: Whether to draw the epochs of each set, into a folder named as the page (needs the
            extra plots).
        yardsticks: Holds the records of what is best possible on generated sets, and of trees on
            fingerprints; what is missing is left out of the page.
    """
    by_hand = _written_by_hand(out)
    if keep is not None:
        keep_runs(folder, keep)
        folder = keep
    found = collect(folder)
    pictures = draw_sets(found.lines, out.with_suffix("")) if curves else {}
    write_text(out, f"{page(found, pictures, yardsticks)}\n{MARK}{by_hand}")
    runs = sum(len(line.runs) for line in found.lines)
    say(f"{len(found.lines)} rows of {runs} runs in {out}")
    for line in found.lines:
        if not line.is_done:
            epochs = ", ".join(run.epochs for run in line.runs)
            say(f"unfinished: {line.name}, {epochs} epochs")
        if line.is_short:
            say(f"{FLAG} {line.name}: {line.mean:.4f} against {line.paper}")
    for why in found.scoreless:
        say(f"without a score: {why}")


def _written_by_hand(out: Path) -> str:
    """Return what stands below the mark of an earlier page; reject what is no such page."""
    if out.is_dir():
        raise UserError(f"out must be a file, got the folder '{out}'")
    # a file of another kind need not even be text
    before = out.read_text(encoding="utf-8", errors="replace") if out.exists() else ""
    _, mark, by_hand = before.partition(MARK)
    if before.strip() and not mark:
        raise UserError(
            f"out must be a page of this command, or a new file, got '{out}', which lacks the line "
            f"'{MARK}'"
        )
    return by_hand or "\n"


MARK = "<!-- Written by hand from here on; `graphmamba study results` leaves it alone. -->"
FLAG, ABOVE = "▼", "▲"
COLUMNS = (
    *("data set", "metric", "model", "paper", "ours"),
    *("data", "seeds", "epochs", "parameters", "time of a run", "device"),
)
RUN_COLUMNS = (
    *("data set", "model", "seed", "validation", "test", "best epoch", "epochs", "ended"),
    *("time", "peak memory"),
)
INTRO = f"""\
Test scores of the epoch with the best validation score, mean ± standard deviation over
the seeds (divided by their number, as in the published tables). Epochs were chosen by
validation alone; no test score had a part in any choice. `paper` has what is reported:
the {GRAPH_MAMBA} unless another is named (`graphmamba.reported`). {FLAG} marks rows
more than {SHORT:g} published standard deviations worse than that, {ABOVE} rows as much
better. Runs that were stopped before their last epoch stand in rows of their own, called
unfinished."""


OPTIMUM, FINGERPRINTS = "optimum_cpu.json", "fingerprints_cpu.json"
"""Records by `benchmarks/optimum.py` and `benchmarks/fingerprints.py`."""


def yardstick_sections(lines: Sequence[Line], folder: Path) -> dict[str, list[str]]:
    """Hold scores against what no model can beat, and against what needs no network.

    Args:
        lines: The rows of the page.
        folder: Holds the records; one that is missing leaves its section empty.
    """
    optima: dict[tuple[str, str], float] = {}
    if (folder / OPTIMUM).exists():
        for row in json.loads((folder / OPTIMUM).read_text(encoding="utf-8"))["rows"]:
            # the higher one of two chains, which differ in their start
            key = row["set"], row["split"]
            optima[key] = max(row["optimum"], optima.get(key, 0.0))
    gaps = []
    for line in lines:
        if line.is_done and (line.benchmark, "test") in optima:
            cells = [CATALOG[line.benchmark].title, line.model]
            validation = mean_of([run.found.validation for run in line.runs])
            for split, score in (("validation", validation), ("test", line.mean)):
                best = optima[line.benchmark, split]
                cells += [f"{best:.4f}", f"{score:.4f}", f"{best - score:.4f}"]
            gaps.append(cells)
    columns = ("data set", "model", *("optimum, validation", "ours", "gap"))
    about = (
        "What the best decision on each graph scores when the law is known that the graphs were "
        "generated by (`benchmarks/optimum.py`). The gap can be compared between draws of a set, "
        "the score cannot."
    )
    sections = {
        "Gap to the optimum": [
            about, "", *markdown_table((*columns, "optimum, test", "ours", "gap"), gaps)
        ] if gaps else [],
    }  # fmt: skip
    if (folder / FINGERPRINTS).exists() and any(
        line.benchmark == "peptides-func" for line in lines
    ):
        found = json.loads((folder / FINGERPRINTS).read_text(encoding="utf-8"))
        sections["Without a network"] = [
            f"- Peptides-func, AP: {found['test']:.4f} on test, {found['validation']:.4f} on "
            "validation, by boosted trees on counts of circular substructures (ECFP, radius "
            f"{found['radius']}, {found['columns']:,} columns; `benchmarks/fingerprints.py`), "
            "without positions, orders or a GPU."
        ]
    return sections


def page(found: Collected, pictures: Mapping[str, str], yardsticks: Path | None = None) -> str:
    """Write the tables and what has to be known about them.

    Args:
        found: The runs.
        pictures: Where the curves of each data set are, seen from the page; may be empty.
        yardsticks: Holds the records of `yardstick_sections`.
    """
    lines = found.lines
    runs = [(line, run) for line in lines for run in line.runs]
    sets = {line.benchmark: CATALOG[line.benchmark].title for line in lines}
    sections: dict[str, list[str]] = {
        "What differs in the data": [
            f"- **{title}**: {DATA_NOTES[name].about}." for name, title in sets.items()
        ],
        "What differs in the training": [
            f"- {line.title}: {'; '.join(told)}." for line in lines if (told := line.changes)
        ],
        "Rows that fall short": [
            f"- {line.title}: {line.mean:.4f} against {line.paper}, {line.shortfall:.1f} published "
            "standard deviations."
            for line in lines
            if line.is_short
        ],
        "Rows above the paper": [
            f"- {line.title}: {line.mean:.4f} against {line.paper}, {-line.shortfall:.1f} "
            f"published standard deviations above; data: {line.note.word}, seeds: {len(line.runs)}."
            for line in lines
            if line.is_above and line.shortfall is not None
        ],
        **({} if yardsticks is None else yardstick_sections(lines, yardsticks)),
        "Unfinished runs": [
            *(
                f"- {line.name}/seed-{run.found.seed}: {run.epochs} epochs, ended by "
                f"{run.found.stop_reason}."
                for line, run in runs
                if not line.is_done
            ),
            *(f"- {why}; no score." for why in found.scoreless),
        ],
        "Runs that find no number for some graphs": [
            f"- {line.name}/seed-{run.found.seed}, at epoch {run.found.best_epoch + 1}."
            for line, run in runs
            if not run.found.is_sound
        ],
        "Curves": [
            f"![Validation scores on {title} by epoch]({pictures[name]})"
            for name, title in sets.items()
            if name in pictures
        ],
        "Every run": markdown_table(RUN_COLUMNS, (_run_cells(*each) for each in runs)),
    }
    text = ["# Results", "", INTRO, "", *markdown_table(COLUMNS, map(_cells, lines))]
    for title, body in sections.items():
        text += ["", f"## {title}", "", *body] if body else []
    return "\n".join([*text, ""])


def _cells(line: Line) -> list[str]:
    arrow = "↓" if line.metric in LOWER_IS_BETTER else "↑"
    found = [run.found for run in line.runs]
    source = f", {line.paper.source}" if line.paper and line.paper.source != GRAPH_MAMBA else ""
    reported = f"{line.paper}{source}" if line.paper else ""
    return [
        CATALOG[line.benchmark].title,
        f"{metric_title(line.metric)} {arrow}",
        line.label,
        reported if line.note.is_comparable or not reported else f"({reported})",
        line.score + (f" {FLAG}" if line.is_short else f" {ABOVE}" if line.is_above else ""),
        line.note.word,
        ", ".join(str(run.seed) for run in found),
        ", ".join(dict.fromkeys(run.epochs for run in line.runs)),
        f"{found[0].parameters:,}",
        time_of(sum(run.seconds for run in found) / len(found)),
        ", ".join(sorted({str(run.environment.get("device", "")) for run in found})),
    ]


def _run_cells(line: Line, run: StoredRun) -> list[str]:
    found = run.found
    return [
        *(CATALOG[line.benchmark].title, line.label, str(found.seed), f"{found.validation:.4f}"),
        *(f"{found.test:.4f}", str(found.best_epoch + 1), run.epochs, found.stop_reason),
        *(time_of(found.seconds), bytes_of(found.peak_memory)),
    ]


STYLES = ("-", (0, (5, 2)), (0, (1.5, 1.5)))
"""Of lines; the next is taken when the colours are used up."""
SHOWN = 0.97
"""Share of the scores that a picture has room for; the worst, of the first epochs, are cut off."""


def draw_sets(lines: Sequence[Line], folder: Path) -> dict[str, str]:
    """Draw each data set into `BENCHMARK.svg`: a colour for each model, a dot at its best epoch.

    Returns the files as seen from beside the folder.
    """
    sets = dict.fromkeys(line.benchmark for line in lines)
    for benchmark in sets:
        own = [line for line in lines if line.benchmark == benchmark]
        metric, models = own[0].metric, list(dict.fromkeys(line.model for line in own))
        figure = new_figure(7.2, 3.4)
        panel = figure.subplots()
        scores: list[float] = []
        for line in own:
            for run in line.runs:
                scores += _draw_run(panel, run, line.model, models.index(line.model))
        panel.set_title(CATALOG[benchmark].title, fontsize=10, loc="left", color=INK)
        panel.set_xlabel("epoch", fontsize=9, color=QUIET)
        panel.set_ylabel(f"validation {metric_title(metric)}", fontsize=9, color=QUIET)
        panel.set_ylim(*limits(scores, metric in LOWER_IS_BETTER))
        panel.set_xlim(left=0)
        handles, labels = panel.get_legend_handles_labels()
        unique = dict(zip(labels, handles, strict=True))
        figure.legend(
            unique.values(), unique, loc="outside right upper", frameon=False, fontsize=8.5
        )
        save_figure(figure, folder / benchmark, ("svg",))
    return {benchmark: f"{folder.name}/{benchmark}.svg" for benchmark in sets}


def _draw_run(panel: Any, run: StoredRun, model: str, number: int) -> list[float]:
    """Draw validation scores by epoch, counted from 1; those after it was resumed too."""
    path = RunDir(run.found.run_dir).metrics
    rows, column = read_rows(path), f"validation_{run.found.metric}"
    if not rows or column not in rows[0]:
        raise UserError(f"'{path}' must have a row an epoch with '{column}'")
    epochs, values = [int(row["epoch"]) + 1 for row in rows], [row[column] for row in rows]
    colour, style = COLOURS[number % len(COLOURS)], STYLES[number // len(COLOURS) % len(STYLES)]
    panel.plot(
        epochs, values, color=colour, linestyle=style, linewidth=1.1, alpha=0.75, label=model
    )
    best = run.found.best_epoch + 1
    if best in epochs:
        panel.plot(best, values[epochs.index(best)], "o", color=colour, markersize=4)
    return values


def limits(scores: Sequence[float], is_lower_better: bool) -> tuple[float, float]:
    """Leave out the worst scores, so that the first epochs do not flatten all others."""
    ordered = sorted(score for score in scores if not math.isnan(score)) or [0.0]
    spare = int((1 - SHOWN) * len(ordered))
    low = ordered[0] if is_lower_better else ordered[spare]
    high = ordered[-1 - spare] if is_lower_better else ordered[-1]
    room = 0.04 * (high - low) or 0.01
    return low - room, high + room
