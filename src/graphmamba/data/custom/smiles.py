"""A CSV of molecules -> columns and a task (needs the extra `molecules`)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graphmamba.data.catalog import MOLECULES
from graphmamba.data.custom.csv import Request, read_csv, read_split
from graphmamba.data.custom.labels import CustomData, LabelRule, read_labels, task_of
from graphmamba.data.datasets.molecules import read_smiles
from graphmamba.data.parallel import track


def read_smiles_csv(
    path: Path | str,
    label: str | Sequence[str],
    rule: LabelRule | None = None,
    smiles: str = "smiles",
) -> CustomData:
    """Read one molecule a row, with its labels and, in a column `split`, its split.

    Args:
        path: The file; columns that are not named here are ignored.
        label: The label column, or several of them.
        rule: What labels are, where their values should not decide.
        smiles: The column of SMILES.
    """
    table = read_csv(Path(path))
    request = Request.of(label, "graph", rule or LabelRule(), [table])
    molecules = table.filled(smiles)
    cells = {name: table.cells(name) for name in request.label}
    labels = read_labels(cells, request.rule, table.where)
    split = read_split(table)
    columns = read_smiles(
        molecules, table.where, lambda texts: track(texts, "Molecules", len(texts))
    )
    columns = replace(
        columns, graphs={"y": labels.values}, split=split, source=f"read from {table.path.name}"
    )
    return CustomData(columns, MOLECULES, task_of("graph", labels), labels.names)
