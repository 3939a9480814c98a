"""`graphmamba study weights`: the best run of each model as a file of weights with its card."""

from collections.abc import Iterable
from pathlib import Path

from graphmamba.commands.printing import say
from graphmamba.data.catalog import CATALOG
from graphmamba.errors import UserError
from graphmamba.parse import words_among
from graphmamba.show.units import metric_title
from graphmamba.study.collected import collect
from graphmamba.study.data_notes import DATA_NOTES
from graphmamba.study.model_card import card
from graphmamba.study.rescored import Rescored, read_rescored
from graphmamba.study.runs import StoredRun
from graphmamba.train.files import read_tensors, write_tensors
from graphmamba.train.folder import RunFolder
from graphmamba.train.weights import Weights, load_weights
from graphmamba.whole_files import write_text

CARD = "README.md"


def weights(
    folder: Path, out: Path = Path("weights"), names: str = "all", scored: Path | None = None
) -> None:
    """Take the best run of each model, by validation, and write its weights with a model card.

    Args:
        folder: Holds BENCHMARK/MODEL/seed-N for each run, weights included.
        out: Gets BENCHMARK/MODEL/best.safetensors, a README.md beside each, and one over all.
        names: Some of the models, as BENCHMARK/MODEL with commas between.
        scored: What the weights scored later, as benchmarks/scores.py records it; that is then
            what their files and cards report.
    """
    found: dict[str, list[StoredRun]] = {}
    for line in collect(folder).lines:
        found.setdefault(line.name, []).extend(line.runs)
    chosen = list(found) if names == "all" else words_among(names, found, "names")
    again = read_rescored(scored) if scored else {}
    for name in chosen:
        best = export(name, found[name], out, again.get(name))
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
    source = RunFolder(best.found.folder).best
    tensors, about = read_tensors(source)
    _check_belongs(source, load_weights(source), best)
    place = RunFolder(out / name)
    # weights of an older run may not say how it computed
    known = {"options": best.options.content(), "environment": dict(best.found.environment)}
    later = {"scored_again": again.content()} if again else {}
    write_tensors(place.best, tensors, about | known | later)
    write_text(place.path / CARD, card(name, ranked, again))
    return best


def _check_belongs(source: Path, held: Weights, run: StoredRun) -> None:
    """Refuse weights that are not those whose scores the run reports."""
    for what, own, told in (
        ("experiment", held.experiment, run.experiment),
        ("seed", held.metadata.get("seed"), run.found.seed),
        ("epoch", held.metadata.get("epoch"), run.found.best_epoch),
    ):
        if own != told:
            raise UserError(f"'{source}' must be of the {what} in results.json, {told}, got {own}")


def index(out: Path) -> str:
    """List all weights in a folder with their scores, as the headers of the files report them.

    A file may report none, such as one that `save_weights` wrote by itself; its cells are empty.
    """
    lines = [
        "# Trained weights",
        "",
        "One folder for each model: the weights, and a card with data, recipe, scores and licence.",
        "`graphmamba evaluate --pretrained NAME` finds them by their name, and BENCHMARK alone is",
        "BENCHMARK/graph-mamba. All were chosen by validation.",
        "",
        "| name | metric | validation | test | licence of the data |",
        "|---|---|---|---|---|",
    ]
    order = list(CATALOG)
    # the folder may hold other things, such as a run that was laid there
    found = {
        path.parent: load_weights(path)
        for path in out.glob("*/*/best.safetensors")
        if path.parts[-3] in CATALOG
    }
    for place in sorted(found, key=lambda path: (order.index(path.parts[-2]), path)):
        name = "/".join(place.parts[-2:])
        lines.append(f"| [{name}]({name}/{CARD}) | {' | '.join(_scores(found[place]))} |")
    return "\n".join([*lines, ""])


def _scores(held: Weights) -> list[str]:
    metric = held.experiment.data.task.metric
    scores = [held.reported.get(split, {}).get(metric) for split in ("validation", "test")]
    values = ["" if score is None else f"{score:.4f}" for score in scores]
    return [metric_title(metric), *values, DATA_NOTES[held.experiment.benchmark].licence]
