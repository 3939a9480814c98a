"""The efficiency study as files and as tables beside the paper's claims."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.text import Text

from graphmamba.bench.tables import table
from graphmamba.data.catalog import CATALOG
from graphmamba.study.cost import OUT, Cost
from graphmamba.study.csv_file import write_csv
from graphmamba.study.efficiency_findings import FILE, BatchRow, Findings, MixerRow, Row
from graphmamba.study.efficiency_plan import (
    CLAIMS,
    OURS,
    PAPER_BATCH,
    SIZINGS,
    TITLES,
    Cell,
    Claim,
    Sizing,
)
from graphmamba.study.efficiency_plots import plot_fractions, plot_mixers
from graphmamba.whole_files import write_json


def write_findings(findings: Findings, folder: Path) -> None:
    """Write CSV, JSON, PNG and SVG files of all rows that there are."""
    write_rows(findings, folder)
    if findings.fractions:
        plot_fractions(findings, folder)
    if findings.mixers:
        plot_mixers(findings, folder)


def write_rows(findings: Findings, folder: Path) -> None:
    """Write CSV and JSON files, which is quick enough to be done after each row."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FILE, {**asdict(findings), "claims": claims(findings)})
    write_csv(
        folder / "malnet.csv",
        [
            {"model": row.model, "fraction": row.fraction, **_cells(row.cost), **_origin(row)}
            for row in findings.fractions
        ],
    )
    write_csv(folder / "largest_batch.csv", [_batch_cells(row) for row in findings.batches])
    write_csv(folder / "mixers.csv", [_mixer_cells(row) for row in findings.mixers])


def claims(findings: Findings) -> list[dict[str, object]]:
    """Set what the paper says is saved beside what was measured, for each way to size models."""
    return [
        found
        for claim in CLAIMS
        for sizing in SIZINGS
        for found in _compared(findings.mixers, claim, sizing)
    ]


def _compared(
    rows: Iterable[MixerRow], claim: Claim, sizing: Sizing
) -> Iterator[dict[str, object]]:
    cost = {
        row.model: row.cost
        for row in rows
        if (row.benchmark, row.sizing) == (claim.benchmark, sizing)
    }
    if not {OURS, claim.rival} <= cost.keys():
        return
    ours, rival = cost[OURS], cost[claim.rival]
    yield {
        "benchmark": claim.benchmark,
        "rival": claim.rival,
        "sizing": sizing,
        "memory_saved": _saved(ours.bytes_per_graph, rival.bytes_per_graph),
        "memory_saved_in_the_paper": claim.memory,
        "flops_saved": _saved(ours.forward_flops, rival.forward_flops),
        # by our code of the rival's own, and by the code of the paper
        "flops_saved_of_original": _saved(ours.forward_flops, rival.original_flops),
        "flops_saved_by_original": _saved(ours.original_flops, rival.original_flops),
        "flops_saved_in_the_paper": claim.flops,
    }


def _saved(ours: float | None, rival: float | None) -> float | None:
    return None if ours is None or rival is None else 1 - ours / rival


def _cells(cost: Cost) -> dict[str, object]:
    """The columns of a cost; where memory ran out they say so."""
    cells: dict[str, object] = asdict(cost) | {"bytes_per_graph": cost.bytes_per_graph}
    return {name: OUT if value is None else value for name, value in cells.items()}


def _origin(row: Row) -> dict[str, object]:
    return {"held_bytes": row.held_bytes, "source": row.source}


def _batch_cells(row: BatchRow) -> dict[str, object]:
    return {
        "model": row.model,
        "largest_batch": row.largest.batch_size,
        "peak_bytes": OUT if row.largest.peak_bytes is None else row.largest.peak_bytes,
        "ended_by": "the search's limit" if row.largest.is_limit else OUT,
        **_origin(row),
    }


def _mixer_cells(row: MixerRow) -> dict[str, object]:
    names = {"benchmark": row.benchmark, "model": row.model, "sizing": row.sizing}
    return {**names, **_cells(row.cost), **_origin(row)}


def print_findings(
    findings: Findings, folder: Path, console: Console, missing: Sequence[Cell] = ()
) -> None:
    """Print what was measured beside what the paper says, and what is missing."""
    device, cap = findings.environment["device"], f"{findings.memory_cap / 1e9:.3g} GB"
    if findings.fractions:
        rows = (
            [f"{row.fraction:g}", TITLES[row.model], *_shown(row.cost)]
            for row in findings.fractions
        )
        title = f"MalNet-Tiny, share of the nodes, on {device}, at most {cap}"
        console.print(table(title, ["share", "model", *COLUMNS], rows))
    if findings.batches:
        console.print(_batch_table(findings, cap))
    for sizing, means in SIZINGS.items():
        rows = (
            [CATALOG[row.benchmark].title, TITLES[row.model], *_shown(row.cost)]
            for row in findings.mixers
            if row.sizing == sizing
        )
        if findings.mixers:
            console.print(table(f"Models {means}, on {device}", ["set", "model", *COLUMNS], rows))
    if findings.mixers:
        console.print(_claim_table(findings))
    _print_notes(findings, console)
    # a path may well look like markup
    console.print(Text(f"Files: {folder}"))
    if missing:
        listed = "; ".join(str(cell) for cell in missing)
        console.print(f"{len(missing)} cells are missing, the same command goes on: {listed}")


def _print_notes(findings: Findings, console: Console) -> None:
    sources = {row.source for row in findings.rows.values()}
    console.print("Graphs: " + ("; ".join(sorted(sources)) or "none was measured"))
    costs = [row.cost for row in findings.fractions] + [row.cost for row in findings.mixers]
    if costs:
        console.print(
            "Operations: original is what the code of a model's authors does, padding included; "
            "'of original' is saved of a rival's by our Graph-Mamba, 'by original' by its authors'"
        )
        console.print("Memory: " + ", ".join(sorted({cost.memory_measure for cost in costs})))
        held = max(row.held_bytes for row in findings.rows.values())
        if held:
            console.print(f"Held before a cell, and in no peak: at most {held / 1e6:.1f} MB")
        console.print("Time: of steps launched one by one; of small batches it is that of launches")


COLUMNS = ("parameters", "batch", "nodes", "MFLOP", "counted", "original", "MB", "ms")
"""The last five are for one graph; counted operations are those seen while the model ran, original
ones those of its authors' code."""


def _shown(cost: Cost) -> list[str]:
    measured = (
        (cost.counted_flops, 1e6, ",.1f"),
        (cost.original_flops, 1e6, ",.1f"),
        (cost.bytes_per_graph, 1e6, ",.2f"),
        (cost.ms, 1, ",.3f"),
    )
    return [
        f"{cost.parameters:,}",
        f"{cost.batch_size}",
        f"{cost.nodes:,.0f}",
        f"{cost.forward_flops / 1e6:,.1f}",
        *(OUT if value is None else f"{value / unit:{form}}" for value, unit, form in measured),
    ]


def _batch_table(findings: Findings, cap: str) -> object:
    return table(
        f"Largest batch of whole MalNet-Tiny graphs in {cap} (paper: Graph-Mamba {PAPER_BATCH})",
        ["model", "ended by", "batch", "peak GB"],
        (
            [
                TITLES[row.model],
                "limit" if row.largest.is_limit else OUT,
                f"{row.largest.batch_size}",
                "" if row.largest.peak_bytes is None else f"{row.largest.peak_bytes / 1e9:.2f}",
            ]
            for row in findings.batches
        ),
    )


def _claim_table(findings: Findings) -> object:
    def share(value: object) -> str:
        return f"{100 * value:.0f} %" if isinstance(value, float) else OUT

    return table(
        "What Graph-Mamba saves of a rival's memory and operations, here and in the paper",
        ["set and rival", "sizing", *(heading for heading, _ in CLAIM_COLUMNS)],
        (
            [
                f"{CATALOG[str(row['benchmark'])].title}, {TITLES[str(row['rival'])]}",
                str(row["sizing"]),
                *(share(row[name]) for _, name in CLAIM_COLUMNS),
            ]
            for row in claims(findings)
        ),
    )


CLAIM_COLUMNS = (
    ("memory", "memory_saved"),
    ("paper", "memory_saved_in_the_paper"),
    ("FLOPs", "flops_saved"),
    ("of original", "flops_saved_of_original"),
    ("by original", "flops_saved_by_original"),
    ("paper", "flops_saved_in_the_paper"),
)
"""Headings of the claims, and what stands below them."""
