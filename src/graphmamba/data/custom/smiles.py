"""A table of molecules -> columns and a task (needs the extra `molecules`)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from graphmamba.checks import check_choice, check_is
from graphmamba.data.catalog import MOLECULES
from graphmamba.data.custom.csv import CsvTable, check_target, read_csv, read_split
from graphmamba.data.custom.labels import CustomData, LabelRule, Skipped, read_labels, task_of
from graphmamba.data.datasets.molecules import descriptors_of, read_smiles
from graphmamba.data.parallel import track
from graphmamba.data.tables import DESCRIPTORS, GraphColumns
from graphmamba.errors import UserError


def read_smiles_csv(
    path: Path | str,
    target: str | Sequence[str],
    rule: LabelRule | None = None,
    smiles: str = "smiles",
    on_error: Literal["skip", "raise"] = "skip",
    *,
    has_descriptors: bool = False,
) -> CustomData:
    """Read one molecule a row, with its labels and, in a column `split`, its split.

    Args:
        path: The file, a .csv, .csv.gz or .parquet; columns that are not named here are ignored.
        target: The target column, or several of them.
        rule: What labels are, where their values should not decide.
        smiles: The column of SMILES.
        on_error: Whether SMILES that RDKit rejects are left out, or raise.
        has_descriptors: Whether to add RDKit's descriptors, as numbers of each graph.
    """
    check_choice("on_error", on_error, ("skip", "raise"))
    table = read_csv(Path(path))
    label = check_target(target, [table])
    check_is("rule", rule or LabelRule(), LabelRule)
    table.cells(smiles)
    cells = {name: table.cells(name) for name in label}
    labels = read_labels(cells, rule or LabelRule(), table.where)
    split = read_split(table)
    columns, kept, skipped = read_molecules(
        table, smiles, on_error, has_descriptors=has_descriptors
    )
    features = replace(MOLECULES, graph_columns=_width(columns))
    columns = replace(
        columns,
        graphs=columns.graphs | {"y": labels.values[kept]},
        split=None if split is None else split[kept],
        source=f"read from {table.path.name}",
    )
    return CustomData(columns, features, task_of("graph", labels), labels.names, skipped)


def _width(columns: GraphColumns) -> int:
    return columns.graphs[DESCRIPTORS].shape[1] if DESCRIPTORS in columns.graphs else 0


def read_molecules(
    table: CsvTable,
    smiles: str,
    on_error: Literal["skip", "raise"],
    *,
    has_descriptors: bool = False,
) -> tuple[GraphColumns, list[int], tuple[Skipped, ...]]:
    """Read the molecules of a table; the rows they are, and those that were left out.

    `has_descriptors` adds RDKit's descriptors, as numbers of each graph.
    """
    is_strict = on_error == "raise"
    molecules = table.filled(smiles) if is_strict else table.cells(smiles)
    rejected: list[int] = []
    columns = read_smiles(molecules, table.where, None if is_strict else rejected)
    if not len(molecules) > len(rejected):
        raise UserError(
            f"{table.path}: {smiles} must name a molecule somewhere, got {len(rejected)} rows that "
            f"RDKit rejects{f', such as {molecules[0]!r}' if molecules else ''}"
        )
    left_out = set(rejected)
    kept = [row for row in range(len(molecules)) if row not in left_out]
    skipped = tuple(Skipped(row, table.where(row), molecules[row]) for row in rejected)
    if has_descriptors:
        texts = track([molecules[row] for row in kept], "Descriptors", len(kept))
        columns = replace(columns, graphs={DESCRIPTORS: descriptors_of(texts)})
    return columns, kept, skipped
