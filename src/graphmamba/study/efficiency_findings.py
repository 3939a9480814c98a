"""What the efficiency study has found so far, and how a study that was cut off finds it again."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TypeVar

from graphmamba.errors import UserError
from graphmamba.parse import parse
from graphmamba.study.cost import Cost, LargestBatch
from graphmamba.study.efficiency_plan import FIRST_SET, Cell, Plan, Sizing, cells

FILE = "efficiency.json"
"""Holds all rows; from it a study goes on."""
MAY_DIFFER = {"date", "platform", "cores"}
"""What of the environment no number of the study follows from."""


@dataclass(frozen=True)
class FractionRow:
    """One point of the first figure."""

    model: str
    fraction: float
    source: str
    cost: Cost
    held_bytes: int = 0
    """On a GPU before the cell was begun; in no peak."""

    @property
    def cell(self) -> Cell:
        """What was measured."""
        return Cell("fractions", FIRST_SET, self.model, fraction=self.fraction)


@dataclass(frozen=True)
class BatchRow:
    """The largest batch of whole graphs."""

    model: str
    source: str
    largest: LargestBatch
    held_bytes: int = 0
    """On a GPU before the cell was begun; in no peak."""

    @property
    def cell(self) -> Cell:
        """What was measured."""
        return Cell("batches", FIRST_SET, self.model)


@dataclass(frozen=True)
class MixerRow:
    """One point of the second figure."""

    benchmark: str
    model: str
    sizing: Sizing
    source: str
    cost: Cost
    held_bytes: int = 0
    """On a GPU before the cell was begun; in no peak."""

    @property
    def cell(self) -> Cell:
        """What was measured."""
        return Cell("mixers", self.benchmark, self.model, self.sizing)


Row = FractionRow | BatchRow | MixerRow
AnyRow = TypeVar("AnyRow", FractionRow, BatchRow, MixerRow)


@dataclass(frozen=True)
class Findings:
    """All that was measured, in the order of the plan."""

    plan: Plan
    memory_cap: int
    environment: dict[str, object]
    fractions: tuple[FractionRow, ...] = ()
    batches: tuple[BatchRow, ...] = ()
    mixers: tuple[MixerRow, ...] = ()
    seed: int = 0

    @property
    def rows(self) -> dict[Cell, Row]:
        """All rows by what they measure."""
        rows: list[Row] = [*self.fractions, *self.batches, *self.mixers]
        return {row.cell: row for row in rows}

    def with_row(self, row: Row) -> "Findings":
        """Add a row at its place."""
        rows = self.rows | {row.cell: row}
        placed = [rows[cell] for cell in cells(self.plan) if cell in rows]
        return replace(
            self,
            fractions=tuple(each for each in placed if isinstance(each, FractionRow)),
            batches=tuple(each for each in placed if isinstance(each, BatchRow)),
            mixers=tuple(each for each in placed if isinstance(each, MixerRow)),
        )


def read_findings(folder: Path, begun: Findings) -> Findings:
    """Read what a folder holds of this study; nothing where it was not begun there.

    Args:
        folder: Where the study is written to.
        begun: The study without rows; one that measured something else is refused.
    """
    path = folder / FILE
    if not path.exists():
        return begun
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found = Findings(
            plan=parse(Plan, content["plan"], f"'{path}': plan"),
            memory_cap=content["memory_cap"],
            environment=dict(content["environment"]),
            fractions=_read(FractionRow, content["fractions"], path),
            batches=_read(BatchRow, content["batches"], path),
            mixers=_read(MixerRow, content["mixers"], path),
            seed=content.get("seed", 0),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as mistake:
        raise UserError(f"'{path}' must be a file of this study: {mistake}") from mistake
    _check_same(found, begun, folder)
    return found


def _read(
    kind: type[AnyRow], rows: Sequence[Mapping[str, object]], path: Path
) -> tuple[AnyRow, ...]:
    return tuple(parse(kind, row, f"'{path}'") for row in rows)


def _check_same(found: Findings, begun: Findings, folder: Path) -> None:
    """Refuse to mix what was measured in different ways."""
    for name, there, here in _compared(found, begun):
        if there != here:
            raise UserError(
                f"folder must hold a study with {name} {here!r}, and '{folder}' holds one with "
                f"{there!r}: name another folder"
            )


def _compared(found: Findings, begun: Findings) -> Iterator[tuple[str, object, object]]:
    for name, there in asdict(found.plan).items():
        yield f"plan.{name}", there, getattr(begun.plan, name)
    yield "memory_cap", found.memory_cap, begun.memory_cap
    yield "seed", found.seed, begun.seed
    for name, here in begun.environment.items():
        if name not in MAY_DIFFER:
            yield name, found.environment.get(name), here
