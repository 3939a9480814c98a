"""The rows of both ablations, as data: which piece of a model each of them exchanges."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Literal

from graphmamba.config import load_experiment
from graphmamba.order.policy import ABLATIONS, OrderPolicy
from graphmamba.train.experiment import Experiment

Make = Callable[[Experiment, Experiment], Experiment]
"""From the model that a table starts with, and the paper's, to that of a row."""
TableName = Literal["order", "plus"]


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    title: str
    make: Make
    paper: Mapping[str, float] = field(default_factory=dict)
    """Test score of the paper's one run, by data set."""


@dataclass(frozen=True)
class RowTable:
    """Rows that start from the same model."""

    model: str
    """Name of its config."""
    rows: Mapping[str, Row]


KEPT = ("bins", "train_samples", "eval_samples", "direction")
"""Entries of an order that all rows share."""
EXCHANGED = frozenset(field.name for field in fields(OrderPolicy)) - {*KEPT}
"""Those that a row of orders brings itself."""


def _with_order(own: Experiment, _paper: Experiment, *, order: str, has_bins: bool) -> Experiment:
    kept = {name: getattr(own.model.order, name) for name in KEPT}
    changed = replace(ABLATIONS[order], **kept if has_bins else kept | {"bins": 1})
    return replace(own, model=replace(own.model, order=changed))


def _order_row(
    title: str, order: str, peptides: float, voc: float, *, has_bins: bool = True
) -> Row:
    make = partial(_with_order, order=order, has_bins=has_bins)
    return Row(title, make, {"peptides-func": peptides, "pascalvoc-sp": voc})


ORDER_ROWS = {
    # The paper's row without permutation has the order of the data set, and no bins.
    "none": _order_row("neither", "none", 0.6581, 0.3105, has_bins=False),
    "permutation": _order_row("node permutation", "permutation", 0.6821, 0.4193),
    "cluster": _order_row("cluster permutation", "cluster", 0.6769, 0.3802),
    "eigenvector": _order_row(
        "permutation + eigenvector centrality", "eigenvector", 0.6739, 0.3961
    ),
    "degree": _order_row("permutation + degree", "degree", 0.6834, 0.4314),
}
"""The five rows of the paper: what permuting and ranking the nodes is worth."""


def _with_model(own: Experiment, paper: Experiment, *, names: tuple[str, ...]) -> Experiment:
    """Take these entries of the layers from the paper's model."""
    taken = {name: getattr(paper.model, name) for name in names}
    return replace(own, model=replace(own.model, **taken))


def _without_mixer(own: Experiment, _paper: Experiment) -> Experiment:
    return replace(own, model=replace(own.model, mixer="none"))


def _without_dropout(own: Experiment, paper: Experiment) -> Experiment:
    layers = replace(own.model, dropout=paper.model.dropout)
    return replace(own, model=layers, head=replace(own.head, dropout=paper.head.dropout))


BLOCK = ("mamba", "input_norm")
LAYER = ("local", "join", "plain")

PLUS_ROWS = {
    "plus": Row("all of it", lambda own, _paper: own),
    "no-mamba": Row("without Mamba, and smaller by it", _without_mixer),
    "paper-encoder": Row(
        "the paper's encoder", lambda own, paper: replace(own, encoder=paper.encoder)
    ),
    "paper-order": Row("the paper's order", partial(_with_model, names=("order",))),
    "paper-block": Row("the paper's Mamba block", partial(_with_model, names=BLOCK)),
    "paper-layer": Row("the paper's layer around it", partial(_with_model, names=LAYER)),
    "paper-size": Row(
        "the paper's width and depth", partial(_with_model, names=("channels", "layers"))
    ),
    "paper-activation": Row("the paper's activation", partial(_with_model, names=("activation",))),
    "paper-dropout": Row("the paper's dropout", _without_dropout),
    "paper-head": Row("the paper's head", lambda own, paper: replace(own, head=paper.head)),
    "paper-recipe": Row("the paper's recipe", lambda own, paper: replace(own, recipe=paper.recipe)),
}
"""What each piece of `graph-mamba-plus` is worth: in each row one of them is gone, or the paper's
again."""

TABLES: dict[TableName, RowTable] = {
    "order": RowTable("graph-mamba", ORDER_ROWS),
    "plus": RowTable("graph-mamba-plus", PLUS_ROWS),
}
ROWS: dict[str, Row] = {**ORDER_ROWS, **PLUS_ROWS}
"""All rows by name."""


def row_experiment(
    benchmark: str, table: TableName, row: str, overrides: Mapping[str, object] | None = None
) -> Experiment:
    """Make the experiment of a row; the overrides hold for the whole table."""
    own = load_experiment(f"{benchmark}/{TABLES[table].model}", overrides)
    paper = load_experiment(f"{benchmark}/graph-mamba", overrides)
    return TABLES[table].rows[row].make(own, paper)


def row_experiments(
    benchmark: str,
    table: TableName,
    rows: Iterable[str],
    overrides: Mapping[str, object] | None = None,
) -> dict[str, Experiment]:
    """Make the experiments of some rows; one that is the same as an earlier one has no row.

    A piece that a model has in common with the paper's leaves nothing to exchange.
    """
    made: dict[str, Experiment] = {}
    for row in TABLES[table].rows:
        experiment = row_experiment(benchmark, table, row, overrides)
        if experiment not in made.values():
            made[row] = experiment
    return {row: made[row] for row in rows if row in made}
