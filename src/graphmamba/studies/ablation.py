"""`graphmamba study ablation`: variants of a model that differ in one component, over seeds."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Annotated, Literal

from graphmamba.atomic import write_text
from graphmamba.checks import check_choice
from graphmamba.commands.printing import say
from graphmamba.commands.train import EXPERIMENT, RUN
from graphmamba.data.catalog import CATALOG
from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.figures import new_figure
from graphmamba.ordering.policy import ABLATIONS
from graphmamba.parse import numbers_in, words_among
from graphmamba.studies import report as write
from graphmamba.studies.results import finished_run
from graphmamba.training.experiment import Experiment, RunOptions, load_experiment
from graphmamba.training.fit import fit
from graphmamba.training.graphs import open_data
from graphmamba.training.metrics import metric_title
from graphmamba.training.run_dir import RunDir, RunResult, deviation_of, mean_of, read_config

Overrides = Mapping[str, object]
TableName = Literal["order", "plus"]
SHARED = ("bins", "train_samples", "eval_samples", "direction")
"""Fields of an ordering that are the same in all rows."""


@dataclass(frozen=True)
class Row:
    """One variant."""

    title: str
    make: Callable[[Experiment, Experiment], Experiment]
    """Makes the variant from the experiment of the table and from the paper's."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """Test score in the paper, of one run, by data set."""


def _order_row(name: str, title: str, peptides: float, voc: float) -> Row:
    def make(own: Experiment, _paper: Experiment) -> Experiment:
        shared = {name: getattr(own.model.ordering, name) for name in SHARED}
        if name == "none":  # the paper has no bins without permutation
            shared["bins"] = 1
        ordering = replace(ABLATIONS[name], **shared)
        return replace(own, model=replace(own.model, ordering=ordering))

    return Row(title, make, {"peptides-func": peptides, "pascalvoc-sp": voc})


def _paper_row(title: str, **parts: tuple[str, ...]) -> Row:
    """Take fields of parts of the experiment from the paper's; without fields the whole part."""

    def make(own: Experiment, paper: Experiment) -> Experiment:
        changed = {}
        for part, names in parts.items():
            theirs = getattr(paper, part)
            taken = {name: getattr(theirs, name) for name in names}
            changed[part] = replace(getattr(own, part), **taken) if names else theirs
        return replace(own, **changed)

    return Row(f"the paper's {title}", make)


ORDER_ROWS = {
    name: _order_row(name, *about)
    for name, about in {
        "none": ("no permutation", 0.6581, 0.3105),
        "permutation": ("node permutation", 0.6821, 0.4193),
        "cluster": ("cluster permutation", 0.6769, 0.3802),
        "eigenvector": ("permutation + eigenvector centrality", 0.6739, 0.3961),
        "degree": ("permutation + degree", 0.6834, 0.4314),
    }.items()
}
"""The paper's ablation: how nodes are ordered."""
PLUS_ROWS = {
    "plus": Row("graph-mamba-plus", lambda own, _: own),
    "no-mamba": Row(
        "without Mamba (fewer parameters)",
        lambda own, _: replace(own, model=replace(own.model, global_model="none")),
    ),
    "paper-encoder": _paper_row("encoder", encoder=()),
    "paper-order": _paper_row("order", model=("ordering",)),
    "paper-block": _paper_row("Mamba block", model=("mamba", "input_norm")),
    "paper-layer": _paper_row("layer", model=("local_model", "layer", "residual")),
    "paper-size": _paper_row("width and depth", model=("channels", "layers")),
    "paper-activation": _paper_row("activation", model=("activation",)),
    "paper-dropout": _paper_row("dropout", model=("dropout",), head=("dropout",)),
    "paper-head": _paper_row("head", head=()),
    "paper-recipe": _paper_row("training recipe", optim=(), train=()),
}
"""`graph-mamba-plus` with one component removed or taken from the paper's model."""
TABLES: dict[TableName, tuple[str, dict[str, Row]]] = {
    "order": ("graph-mamba", ORDER_ROWS),
    "plus": ("graph-mamba-plus", PLUS_ROWS),
}
"""Preset of the table, and its rows."""
ROWS = ORDER_ROWS | PLUS_ROWS


def row_experiment(
    benchmark: str, table: TableName, row: str, overrides: Overrides | None = None
) -> Experiment:
    """Make the experiment of a row; the overrides apply to the whole table."""
    model, rows = TABLES[table]
    own = load_experiment(f"{benchmark}/{model}", overrides)
    return rows[row].make(own, load_experiment(f"{benchmark}/graph-mamba", overrides))


def row_experiments(
    benchmark: str, table: TableName, overrides: Overrides | None = None
) -> dict[str, Experiment]:
    """Make the experiments of all rows, without repetitions: a component may equal the paper's."""
    made: dict[str, Experiment] = {}
    for row in TABLES[table][1]:
        experiment = row_experiment(benchmark, table, row, overrides)
        if experiment not in made.values():
            made[row] = experiment
    return made


@dataclass(frozen=True)
class Entry:
    """The finished runs of a row on a data set."""

    benchmark: str
    row: str
    runs: tuple[RunResult, ...]

    @property
    def scores(self) -> list[float]:
        """Test score of each seed."""
        return [run.test for run in self.runs]

    @property
    def deviation(self) -> float | None:
        """Standard deviation over seeds; None for one seed."""
        return deviation_of(self.scores) if len(self.runs) > 1 else None

    @property
    def paper(self) -> float | None:
        """Score in the paper."""
        return ROWS[self.row].paper.get(self.benchmark)


def ablation(
    run_dir: Path = Path("ablation"),
    *,
    datasets: str = "peptides-func,pascalvoc-sp",
    table: TableName = "order",
    seeds: str = "0,1,2",
    data_dir: Path | None = None,
    also: Path | None = None,
    out: Path | None = None,
    report: bool = False,
    options: Annotated[Overrides, RUN] = {},  # noqa: B006
    overrides: Annotated[Overrides, EXPERIMENT] = {},  # noqa: B006
) -> None:
    """Train variants of Graph-Mamba that differ in one component, over several seeds.

    The same command resumes a study that was stopped.

    Args:
        run_dir: Output directory; runs go to DATASET/ROW/seed-N.
        datasets: Data sets, separated by commas.
        table: order: the five node orderings of the paper; plus: graph-mamba-plus with one
            component at a time removed or taken from the paper's model.
        seeds: Seeds of each row, separated by commas.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
        also: Directory of further runs DATASET/MODEL/seed-N; a run of the same experiment is read
            from there instead of trained again.
        out: Directory of the table and the figure; default: run_dir.
        report: Train nothing; show finished runs.
        options: See below.
        overrides: See below; they apply to all rows.
    """
    sets = words_among(datasets, CATALOG, "datasets")
    check_choice("table", table, tuple(TABLES))
    if "seed" in options:
        raise UserError(f"seeds must be given in the place of seed, got {options['seed']!r}")
    for name, value in overrides.items():
        group, _, entry = name.rpartition(".")
        is_order = table == "order" and group == "model.ordering" and entry not in SHARED
        if name == "dataset" or group == "data" or is_order:
            raise UserError(f"datasets and rows of the table decide {name}, got {value!r}")
    experiments = {
        (name, row): experiment
        for name in sets
        for row, experiment in row_experiments(name, table, overrides).items()
    }
    given, place = RunOptions.of(dict(options), "options"), out or run_dir
    stores: dict[tuple[str, str], GraphStore] = {}
    done: dict[tuple[str, str], Entry] = {}
    # seed by seed, so that a study that is stopped has all rows of its first seeds
    for seed, (key, experiment) in product(numbers_in(seeds, "seeds"), experiments.items()):
        run = RunDir(run_dir.joinpath(*key, f"seed-{seed}"))
        result = finished_run(run, experiment) or _run_elsewhere(also, experiment, seed)
        missing = ": no finished run" if result is None and report else ""
        sys.stderr.write(f"{key[0]}, {ROWS[key[1]].title}, seed {seed}{missing}\n")
        if missing:
            continue
        if result is None:
            if key not in stores:
                stores[key] = open_data(experiment, data_dir)[1]
            own, is_begun = replace(given, seed=seed), run.config.exists()
            result = fit(experiment, stores[key], own, run.path, resume=is_begun, progress=False)
        if not result.is_done:
            raise UserError(
                f"stopped by {result.stop_reason} in '{result.run_dir}': the same command resumes"
            )
        before = done[key].runs if key in done else ()
        done[key] = Entry(*key, (*before, result))
        write_ablation([done[each] for each in experiments if each in done], place)
    if not done:
        raise UserError(f"run_dir must hold finished runs for a report, and '{run_dir}' has none")
    for name in sets:
        entries = [done[each] for each in experiments if each in done and each[0] == name]
        metric = metric_title(entries[0].runs[0].metric) if entries else ""
        title = f"{CATALOG[name].title}, test {metric}"
        write.page().print(write.table(title, COLUMNS, map(_texts, entries)))
    say(f"Files: {place}")


def _run_elsewhere(also: Path | None, experiment: Experiment, seed: int) -> RunResult | None:
    """Find a finished run of this experiment in another directory."""
    found = also.glob(f"{experiment.dataset}/*/seed-{seed}/config.yaml") if also else ()
    for config in sorted(found):
        run = RunDir(config.parent)
        if read_config(run.path).experiment == experiment and (result := run.done()):
            return result
    return None


COLUMNS = ("model", "seeds", "mean", "std", "lowest", "highest", "paper, 1 run")


def _texts(entry: Entry) -> list[str]:
    values = mean_of(entry.scores), entry.deviation, min(entry.scores), max(entry.scores)
    return [
        ROWS[entry.row].title,
        ",".join(str(run.seed) for run in entry.runs),
        *("" if value is None else f"{value:.4f}" for value in (*values, entry.paper)),
    ]


def write_ablation(entries: Sequence[Entry], folder: Path) -> None:
    """Write the table as CSV, JSON and Markdown, and the figure as PNG and SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "benchmark": entry.benchmark,
            "row": entry.row,
            "metric": entry.runs[0].metric,
            "seeds": " ".join(str(run.seed) for run in entry.runs),
            "scores": " ".join(f"{score:.6f}" for score in entry.scores),
            "mean": mean_of(entry.scores),
            "deviation": "" if entry.deviation is None else entry.deviation,
            "paper": "" if entry.paper is None else entry.paper,
            "parameters": entry.runs[0].parameters,
            "seconds": sum(run.seconds for run in entry.runs),
            "is_done": all(run.is_done for run in entry.runs),
        }
        for entry in entries
    ]
    write.write_csv(folder / "ablation.csv", rows)
    runs = [run.content() for entry in entries for run in entry.runs]
    write.write_json(folder / "ablation.json", {"rows": rows, "runs": runs})
    cells = (
        [CATALOG[entry.benchmark].title, metric_title(entry.runs[0].metric), *_texts(entry)]
        for entry in entries
    )
    lines = write.markdown_table(["data set", "metric", *COLUMNS], cells)
    write_text(folder / "ablation.md", "\n".join([*lines, ""]))
    plot_ablation(entries, folder / "ablation")


def plot_ablation(entries: Sequence[Entry], path: Path) -> None:
    """Plot a dot for each run, a bar for their mean, a diamond for the paper's run."""
    sets = list(dict.fromkeys(entry.benchmark for entry in entries))
    names = [row for row in ROWS if any(entry.row == row for entry in entries)]
    figure = new_figure(1.6 + 4.2 * len(sets), 1.2 + 0.4 * len(names))
    panels = figure.subplots(1, len(sets), sharey=True, squeeze=False)[0]
    ours, papers = write.COLOURS[:2]
    for entry in entries:
        panel, place = panels[sets.index(entry.benchmark)], names.index(entry.row)
        panel.plot(
            entry.scores, [place] * len(entry.scores), "o", color=ours, alpha=0.55, markersize=6,
            markeredgewidth=0, label="one run",
        )  # fmt: skip
        panel.plot([mean_of(entry.scores)], [place], "|", color=ours, markersize=17,
                   markeredgewidth=2.2, label="mean of our runs")  # fmt: skip
        if entry.paper is not None:
            panel.plot([entry.paper], [place], "D", color=papers, markersize=5.5,
                       label="paper, one run")  # fmt: skip
        panel.set_title(CATALOG[entry.benchmark].title, fontsize=10, loc="left", color=write.INK)
        metric = metric_title(entry.runs[0].metric)
        panel.set_xlabel(f"test {metric}", fontsize=9, color=write.QUIET)
    panels[0].set_yticks(range(len(names)), [ROWS[name].title for name in names])
    panels[0].set_ylim(len(names) - 0.5, -0.5)
    found = (panel.get_legend_handles_labels() for panel in panels)
    handles = {text: mark for marks in found for mark, text in zip(*marks, strict=True)}
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5
    )
    write.save_figure(figure, path)
