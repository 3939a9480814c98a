"""Reader of a table of molecules (needs the extra `molecules`)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphmamba.checks import check_choice, check_is
from graphmamba.data.catalog import MOLECULES
from graphmamba.data.custom.csv import CsvTable, check_target, read_csv, read_split
from graphmamba.data.custom.labels import (
    CustomData,
    CustomGraphs,
    LabelRule,
    Skipped,
    read_labels,
    task_of,
)
from graphmamba.data.custom.options import OnError
from graphmamba.data.datasets.molecules import descriptors_of, read_smiles
from graphmamba.data.parallel import track
from graphmamba.data.tables import DESCRIPTORS
from graphmamba.errors import UserError

MOST_DESCRIBED = 20_000  # most molecules that get RDKit descriptors by default: some 5 ms each


def read_smiles_csv(
    path: Path | str,
    target: str | Sequence[str],
    rule: LabelRule | None = None,
    smiles: str = "smiles",
    on_error: OnError = "skip",
    *,
    has_descriptors: bool = False,
) -> CustomData:
    """Read one molecule per row, with its targets and an optional column `split`.

    Args:
        path: The file, a .csv, .csv.gz or .parquet; columns that are not named here are ignored.
        target: The target column, or several of them.
        rule: What labels are, where their values should not decide.
        smiles: The column of SMILES.
        on_error: Whether SMILES that RDKit rejects are left out, or raise.
        has_descriptors: Whether to add RDKit descriptors of each graph.
    """
    check_choice("on_error", on_error, ("skip", "raise"))
    check_is("rule", rule or LabelRule(), LabelRule)
    table = read_csv(Path(path))
    cells = {name: table.cells(name) for name in check_target(target, [table])}
    if smiles not in table.names:  # before molecules are read, which takes long
        raise UserError(
            f"{path}, line 1: column {smiles!r} must be there, since a table by itself holds "
            f"molecules, got {table.names}; of tables of nodes and edges give the folder"
        )
    labels = read_labels(cells, rule or LabelRule(), table.where)
    split = read_split(table)
    found, kept = molecules_of(table, smiles, on_error, has_descriptors=has_descriptors)
    columns = replace(
        found.columns,
        graphs=found.columns.graphs | {"y": labels.values[kept]},
        split=None if split is None else split[kept],
    )
    return replace(found, columns=columns).labelled(task_of("graph", labels), labels.names)


def molecules_of(
    table: CsvTable, smiles: str, on_error: OnError, *, has_descriptors: bool = False
) -> tuple[CustomGraphs, list[int]]:
    """Read the molecules of a table, without labels; tells which rows they are."""
    is_strict = on_error == "raise"
    molecules = table.filled(smiles) if is_strict else table.cells(smiles)
    rejected: list[int] = []
    columns = read_smiles(molecules, table.where, None if is_strict else rejected)
    if len(molecules) == len(rejected):
        such = f", such as {molecules[0]!r}" if molecules else ""
        raise UserError(
            f"{table.path}: {smiles} must name a molecule somewhere, got {len(rejected)} rows that "
            f"RDKit rejects{such}"
        )
    left_out = set(rejected)
    kept = [row for row in range(len(molecules)) if row not in left_out]
    features = MOLECULES
    if has_descriptors:
        texts = track([molecules[row] for row in kept], "Descriptors", len(kept))
        described = descriptors_of(texts)
        columns = replace(columns, graphs={DESCRIPTORS: described})
        features = replace(MOLECULES, graph_columns=described.shape[1])
    return CustomGraphs(
        columns=replace(columns, source=f"read from {table.path.name}"),
        features=features,
        graph_names=tuple(map(str, kept)),
        skipped=tuple(Skipped(row, table.where(row), molecules[row]) for row in rejected),
    ), kept
