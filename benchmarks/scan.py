"""Accuracy, time and memory of the selective scan, and its time by number of tokens.

PYTHONPATH=src python benchmarks/scan.py --device auto --out FILE.json
"""

import argparse
from pathlib import Path

from rich.console import Console, Group

from graphmamba.bench import (
    BATCHES,
    BatchShape,
    ScanTimes,
    agreement_table,
    check_backends,
    fast_backends,
    measure_scan,
    times_table,
)
from graphmamba.environment import describe, resolve_device
from graphmamba.studies.report import table, write_json

MAMBA_SSM_MS = {
    "peptides": (0.270, 0.895),
    "voc": (0.083, 0.319),
    "malnet16": (0.194, 0.816),
    "malnet256": (4.305, 18.67),
    "million": (13.19, 45.64),
}
"""Forward, and forward and backward: the CUDA scan of mamba-ssm 2.3 on the same batches, padded, on
another H200."""
GROWTH = [
    BatchShape(kind, sequences, tokens, longest=tokens if sequences == 1 else 444, inner=96)
    for tokens in (10_000, 100_000, 1_000_000)
    for kind, sequences in (("one sequence", 1), ("many sequences", tokens // 163))
]
"""One long sequence, or many with the mean length of Peptides graphs."""


def main() -> None:
    """Measure, print the tables, write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--commit", help="recorded commit, where the code has no git history")
    options = parser.parse_args()

    device, console = resolve_device(options.device), Console()
    environment, backends = describe(device, options.commit), fast_backends(device)
    agreements = check_backends(device)
    console.print(agreement_table(agreements))
    times = [measure_scan(shape, one, device) for shape in BATCHES.values() for one in backends]
    console.print(times_table(times, str(environment["device"])))
    if device.type == "cuda":
        console.print(comparison_table(times))
    content = {"environment": environment, "agreement": agreements, "times": times}
    content["mamba_ssm_ms"] = MAMBA_SSM_MS
    write_json(options.out, content)
    growth = [measure_scan(shape, one, device) for one in backends for shape in GROWTH]
    console.print(growth_table(growth))
    write_json(options.out, content | {"growth": growth})
    if not all(agreement.holds for agreement in agreements):
        raise SystemExit("the error of a backend is larger than allowed")


def comparison_table(times: list[ScanTimes]) -> Group:
    """Make the table of times beside those of mamba-ssm on an H200."""
    rows = (
        [
            *(one.batch.name, one.backend, f"{one.forward_ms:.3g} / {one.both_ms:.3g}"),
            " / ".join(f"{value:.3g}" for value in MAMBA_SSM_MS[one.batch.name]),
        ]
        for one in times
    )
    title = "Forward / forward and backward, ms"
    return table(title, ["batch", "backend", "here", "mamba-ssm on an H200"], rows)


def growth_table(times: list[ScanTimes]) -> Group:
    """Make the table of times per token, which are constant where growth is linear."""
    rows = (
        [
            *(one.batch.name, one.backend, f"{one.batch.sequences:,}", f"{one.batch.tokens:,}"),
            *(f"{one.both_ms:.3f}", f"{1e6 * one.both_ms / one.batch.tokens:.1f}"),
        ]
        for one in sorted(times, key=lambda one: (one.backend, one.batch.name))
    )
    columns = ["batch", "backend", "sequences", "tokens", "ms", "ns per token"]
    return table("Growth with the number of tokens, forward and backward", columns, rows)


if __name__ == "__main__":
    main()
