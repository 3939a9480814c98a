"""`graphmamba study ablation`: variants of a model over several seeds."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
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
from graphmamba.training.progress import metric_title
from graphmamba.training.run_dir import RunDir, RunResult, deviation_of, mean_of, read_config

Given = Mapping[str, object]
Make = Callable[[Experiment, Experiment], Experiment]
"""From the model that a table starts with, and the paper's, to that of a row."""
TableName = Literal["order", "plus"]
KEPT = ("bins", "train_samples", "eval_samples", "direction")
"""Entries of an order that all rows share."""


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    title: str
    make: Make
    paper: Mapping[str, float] = field(default_factory=dict)
    """Test score of the paper's one run, by data set."""


def _with_order(own: Experiment, _paper: Experiment, *, order: str) -> Experiment:
    kept = {name: getattr(own.model.ordering, name) for name in KEPT}
    # The paper's row without permutation has the order of the data set, and no bins.
    changed = replace(ABLATIONS[order], **kept | ({"bins": 1} if order == "none" else {}))
    return replace(own, model=replace(own.model, ordering=changed))


def _with_parts(
    own: Experiment, paper: Experiment, *, parts: Mapping[str, tuple[str, ...]]
) -> Experiment:
    """Take these entries of these parts from the paper's; all of a part where none is named."""
    changed = {}
    for part, names in parts.items():
        theirs = getattr(paper, part)
        taken = {name: getattr(theirs, name) for name in names}
        changed[part] = replace(getattr(own, part), **taken) if names else theirs
    return replace(own, **changed)


def _of_paper(title: str, **parts: tuple[str, ...]) -> Row:
    return Row(f"the paper's {title}", partial(_with_parts, parts=parts))


PAPER_SETS = ("peptides-func", "pascalvoc-sp")
PAPER_ORDERS: dict[str, tuple[str, float, float]] = {
    "none": ("no permutation", 0.6581, 0.3105),
    "permutation": ("node permutation", 0.6821, 0.4193),
    "cluster": ("cluster permutation", 0.6769, 0.3802),
    "eigenvector": ("permutation + eigenvector centrality", 0.6739, 0.3961),
    "degree": ("permutation + degree", 0.6834, 0.4314),
}
"""Title of each order, and the paper's scores on these sets."""
ORDER_ROWS = {
    name: Row(title, partial(_with_order, order=name), dict(zip(PAPER_SETS, scores, strict=True)))
    for name, (title, *scores) in PAPER_ORDERS.items()
}
"""The five rows of the paper: what permuting and ranking the nodes is worth."""
PLUS_ROWS = {
    "plus": Row("graph-mamba-plus", lambda own, _: own),
    "no-mamba": Row(
        "without Mamba (fewer parameters)",
        lambda own, _: replace(own, model=replace(own.model, global_model="none")),
    ),
    "paper-encoder": _of_paper("encoder", encoder=()),
    "paper-order": _of_paper("order", model=("ordering",)),
    "paper-block": _of_paper("Mamba block", model=("mamba", "input_norm")),
    "paper-layer": _of_paper("layer", model=("local_model", "layer", "residual")),
    "paper-size": _of_paper("width and depth", model=("channels", "layers")),
    "paper-activation": _of_paper("activation", model=("activation",)),
    "paper-dropout": _of_paper("dropout", model=("dropout",), head=("dropout",)),
    "paper-head": _of_paper("head", head=()),
    "paper-recipe": _of_paper("training recipe", optim=(), train=()),
}
"""What each piece of `graph-mamba-plus` is worth: in each row one of them is gone, or the paper's
again."""
TABLES: dict[TableName, tuple[str, dict[str, Row]]] = {
    "order": ("graph-mamba", ORDER_ROWS),
    "plus": ("graph-mamba-plus", PLUS_ROWS),
}
"""Name of the config that a table starts with, and its rows."""
ROWS: dict[str, Row] = {**ORDER_ROWS, **PLUS_ROWS}


def row_experiment(
    benchmark: str, table: TableName, row: str, overrides: Given | None = None
) -> Experiment:
    """Make the experiment of a row; the overrides hold for the whole table."""
    model, rows = TABLES[table]
    own = load_experiment(f"{benchmark}/{model}", overrides)
    return rows[row].make(own, load_experiment(f"{benchmark}/graph-mamba", overrides))


def row_experiments(
    benchmark: str, table: TableName, overrides: Given | None = None
) -> dict[str, Experiment]:
    """Make the experiments of all rows; one that is the same as an earlier one has no row.

    A piece that a model has in common with the paper's leaves nothing to exchange.
    """
    made: dict[str, Experiment] = {}
    for row in TABLES[table][1]:
        experiment = row_experiment(benchmark, table, row, overrides)
        if experiment not in made.values():
            made[row] = experiment
    return made


@dataclass(frozen=True)
class Entry:
    """Runs of one row on one data set, those that are done."""

    benchmark: str
    row: str
    runs: tuple[RunResult, ...]

    @property
    def scores(self) -> list[float]:
        """Test score of each seed."""
        return [run.test for run in self.runs]

    @property
    def deviation(self) -> float | None:
        """Standard deviation over the seeds, as in published tables; one run has none."""
        return deviation_of(self.scores) if len(self.runs) > 1 else None

    @property
    def paper(self) -> float | None:
        """What the paper has for it."""
        return ROWS[self.row].paper.get(self.benchmark)


Table = Sequence[Entry]


def run_rows(
    experiments: Mapping[tuple[str, str], Experiment],
    seeds: Sequence[int],
    run_dir: Path,
    options: RunOptions,
    data_dir: Path | None = None,
    also: Path | None = None,
    is_complete: bool = True,
) -> Iterator[Table]:
    """Make the runs that are missing; gives the table whenever one is done.

    Args:
        experiments: What is trained, by data set and row.
        seeds: Seeds of each row.
        run_dir: Gets DATASET/ROW/seed-N.
        options: How it is trained, but for the seed.
        data_dir: Where data sets are.
        also: Holds DATASET/MODEL/seed-N; a run there of the same experiment is not made again.
        is_complete: Whether runs that are missing are made; else they are told and left out.
    """
    opened: dict[tuple[str, str], GraphStore] = {}
    done: dict[tuple[str, str], Entry] = {}
    # seed by seed, so that a study that is stopped has all rows of the seeds that it has
    for seed, (name, experiment) in product(seeds, experiments.items()):
        benchmark, row = name
        place = RunDir(run_dir / benchmark / row / f"seed-{seed}")
        result = finished_run(place, experiment) or _run_elsewhere(also, experiment, seed)
        is_missing = result is None and not is_complete
        told = ": no finished run" if is_missing else ""
        sys.stderr.write(f"{benchmark}, {ROWS[row].title}, seed {seed}{told}\n")
        if is_missing:
            continue
        if result is None:
            if name not in opened:
                opened[name] = open_data(experiment, data_dir)[1]
            own, goes_on = replace(options, seed=seed), place.config.exists()
            result = fit(experiment, opened[name], own, place.path, resume=goes_on, progress=False)
        if not result.is_done:
            raise UserError(
                f"stopped by {result.stop_reason} in '{result.run_dir}': the same command resumes"
            )
        before = done.get(name, Entry(*name, ()))
        done[name] = replace(before, runs=(*before.runs, result))
        # in the order of the experiments: the first seeds may be missing in some rows
        yield [done[each] for each in experiments if each in done]


def _run_elsewhere(also: Path | None, experiment: Experiment, seed: int) -> RunResult | None:
    """Read a finished run of this experiment from another directory."""
    found = also.glob(f"{experiment.dataset}/*/seed-{seed}/config.yaml") if also else ()
    for config in sorted(found):
        run = RunDir(config.parent)
        if read_config(run.path).experiment == experiment and (result := run.done()):
            return result
    return None


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
    options: Annotated[Given, RUN] = {},  # noqa: B006
    overrides: Annotated[Given, EXPERIMENT] = {},  # noqa: B006
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
        is_order = table == "order" and group == "model.ordering" and entry not in KEPT
        if name == "dataset" or group == "data" or is_order:
            raise UserError(f"datasets and rows of the table decide {name}, got {value!r}")
    experiments = {
        (name, row): experiment
        for name in sets
        for row, experiment in row_experiments(name, table, overrides).items()
    }
    given = RunOptions.of(dict(options), "options")
    place, found = out or run_dir, list[Entry]()
    for rows in run_rows(
        experiments, numbers_in(seeds, "seeds"), run_dir, given, data_dir, also, not report
    ):
        found = [*rows]
        write_ablation(found, place)
    if not found:
        raise UserError(f"run_dir must hold finished runs for a report, and '{run_dir}' has none")
    for name in sets:
        own = [entry for entry in found if entry.benchmark == name]
        metric = metric_title(own[0].runs[0].metric) if own else ""
        title = f"{CATALOG[name].title}, test {metric}"
        write.page().print(write.table(title, COLUMNS, map(_texts, own)))
    say(f"Files: {place}")


COLUMNS = ("model", "seeds", "mean", "std", "lowest", "highest", "paper, 1 run")


def _texts(entry: Entry) -> list[str]:
    values = mean_of(entry.scores), entry.deviation, min(entry.scores), max(entry.scores)
    return [
        ROWS[entry.row].title,
        ",".join(str(run.seed) for run in entry.runs),
        *("" if value is None else f"{value:.4f}" for value in (*values, entry.paper)),
    ]


def write_ablation(entries: Table, folder: Path) -> None:
    """Write CSV, JSON, Markdown, PNG and SVG files of the runs that are done."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [_cells(entry) for entry in entries]
    write.write_csv(folder / "ablation.csv", rows)
    runs = [run.content() for entry in entries for run in entry.runs]
    write.write_json(folder / "ablation.json", {"rows": rows, "runs": runs})
    named = (
        [CATALOG[entry.benchmark].title, metric_title(entry.runs[0].metric), *_texts(entry)]
        for entry in entries
    )
    lines = write.markdown_table(["data set", "metric", *COLUMNS], named)
    write_text(folder / "ablation.md", "\n".join([*lines, ""]))
    plot_ablation(entries, folder / "ablation")


def _cells(entry: Entry) -> dict[str, object]:
    return {
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


def plot_ablation(entries: Table, path: Path) -> None:
    """Draw a point for each run, a bar for their mean, a diamond for the paper's run."""
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
    marks = (panel.get_legend_handles_labels() for panel in panels)
    handles = {text: mark for found in marks for mark, text in zip(*found, strict=True)}
    figure.legend(
        handles.values(), handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8.5
    )
    write.save_figure(figure, path)
