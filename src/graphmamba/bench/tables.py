"""Measurements as tables for people, and as JSON for machines."""

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from graphmamba.bench.agreement import Agreement
from graphmamba.bench.bound import Bound
from graphmamba.bench.measure import PADDED_LOOP, ScanTimes
from graphmamba.whole_files import write_text

WIDE = 140
"""Characters in a line where nobody says how many there may be."""


@runtime_checkable
class Timed(Protocol):
    """Whatever has the times of both passes, as `measure.Passes` has."""

    @property
    def forward_ms(self) -> float:
        """Of the forward pass."""

    @property
    def both_ms(self) -> float:
        """Of forward and backward together."""

    @property
    def peak_bytes(self) -> int | None:
        """CUDA memory of both; unknown on a CPU."""


def page() -> Console:
    """Make a console for tables; a file or a pipe has room for wide ones."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], words: int = 2
) -> Table:
    """Lay out text in columns.

    Args:
        title: What stands above them.
        columns: What they are called.
        rows: A cell for each of them.
        words: How many come first that hold words; the others hold numbers.
    """
    # Light enough for a terminal of 80 columns.
    made = Table(
        # as it stands, without markup; cells likewise
        title=Text(title, style="table.title"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
    )
    for place, column in enumerate(columns):
        # where there is no room, names go on in the next line: nothing is cut off
        is_word = place < words
        made.add_column(
            Text(column),
            justify="left" if is_word else "right",
            overflow="fold",
            no_wrap=not is_word,
        )
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def agreement_table(agreements: Iterable[Agreement]) -> Table:
    """Show how near each backend's worst tensor comes to what is allowed."""
    return table(
        "Worst error of output and gradients against float64",
        ["operation", "backend", "in", "error", "allowed", ""],
        (
            [
                one.operation,
                one.backend,
                one.worst,
                f"{one.error:.1e}",
                f"{one.allowed:.1e}",
                "ok" if one.holds else "WRONG",
            ]
            for one in agreements
        ),
    )


def cpu_table(times: Sequence[ScanTimes], device: str) -> Table:
    """Show times on a CPU, and the speed-up over the padded loop on the same batch."""
    loops = {one.batch.name: one.both_ms for one in times if one.backend == PADDED_LOOP}

    def speed_up(one: ScanTimes) -> str:
        loop = loops.get(one.batch.name)
        return f"{loop / one.both_ms:.1f}x" if loop else ""

    return table(
        f"selective_scan, float32, on {device}",
        ["batch", "backend", "tokens", "fwd ms", "fwd+bwd ms", "speed-up"],
        (
            [
                one.batch.name,
                one.backend,
                f"{one.batch.tokens:,}",
                f"{one.forward_ms:.1f}",
                f"{one.both_ms:.1f}",
                speed_up(one),
            ]
            for one in times
        ),
    )


def gpu_table(times: Iterable[ScanTimes], device: str) -> Table:
    """Show times on a GPU, and how many times the bound of an H200 they are."""
    return table(
        f"selective_scan, float32, on {device}",
        ["batch", "backend", "tokens", "fwd ms", "/ bound", "fwd+bwd ms", "/ bound", "peak GiB"],
        (
            [
                one.batch.name,
                one.backend,
                f"{one.batch.tokens:,}",
                f"{one.forward_ms:.3f}",
                f"{one.times_bound[0]:.1f}x",
                f"{one.both_ms:.3f}",
                f"{one.times_bound[1]:.1f}x",
                gibibytes(one.peak_bytes),
            ]
            for one in times
        ),
    )


def gibibytes(count: int | None) -> str:
    """Write a number of bytes in GiB; nothing where it is unknown."""
    return "" if count is None else f"{count / 2**30:.2f}"


def beside_bound(passes: Timed, bound: Bound) -> list[str]:
    """Show how many times the bound both passes take, and their memory; nothing on a CPU."""
    if passes.peak_bytes is None:
        return []
    ratios = passes.forward_ms / bound.forward_ms, passes.both_ms / bound.both_ms
    return [" / ".join(f"{ratio:.1f}x" for ratio in ratios), f"{passes.peak_bytes / 2**20:.0f}"]


def result_path(out: Path | None, folder: Path, name: str, environment: dict[str, object]) -> Path:
    """Return where measurements go: `out`, or a file of `folder` by their name and device."""
    slug = str(environment["device"]).lower().replace(" ", "-")
    path = out or folder / f"{name}-{slug}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write measurements whole; dataclasses in them become objects."""
    write_text(path, json.dumps(content, indent=2, default=_as_object) + "\n")


def _as_object(value: object) -> dict[str, Any]:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"cannot write {type(value).__name__} as JSON")
