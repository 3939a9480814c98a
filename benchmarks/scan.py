"""The full study of the selective scan: exactness, times, growth with length, memory.

    PYTHONPATH=src python benchmarks/scan.py --device auto --out FILE.json

The H200's `must` and `goal` are the times that this project set itself; `mamba-ssm` is that
package's CUDA scan on the same batches, padded, version 2.3, measured on the same kind of GPU.
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
    measure_scan,
    times_table,
)
from graphmamba.environment import describe, resolve_device
from graphmamba.ops import available_backends
from graphmamba.studies.report import table, write_json

# Milliseconds on an H200 for each batch: forward, forward and backward.
H200_TARGETS = {
    "peptides": {"mamba-ssm": (0.270, 0.895), "must": (0.06, 0.20), "goal": (0.02, 0.06)},
    "voc": {"mamba-ssm": (0.083, 0.319), "must": (0.04, 0.13), "goal": (0.014, 0.045)},
    "malnet16": {"mamba-ssm": (0.194, 0.816), "must": (0.05, 0.18), "goal": (0.018, 0.055)},
    "malnet256": {"mamba-ssm": (4.305, 18.67), "must": (0.43, 1.9), "goal": (0.2, 0.62)},
    "million": {"mamba-ssm": (13.19, 45.64), "must": (1.6, 5.0), "goal": (0.9, 2.9)},
}
# Once as one long sequence, once as many of the length that Peptides graphs have.
GROWTH = [
    BatchShape(kind, sequences, tokens, longest=tokens if sequences == 1 else 444, inner=96)
    for tokens in (10_000, 100_000, 1_000_000)
    for kind, sequences in (("one sequence", 1), ("many sequences", tokens // 163))
]


def main() -> None:
    """Measure, print the tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--out", type=Path, required=True, help="JSON file")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device = resolve_device(options.device)
    environment = describe(device, options.commit)
    name = str(environment["device"])
    backends = [backend for backend in available_backends(device) if backend != "reference"]
    console = Console()

    agreements = check_backends(device)
    console.print(agreement_table(agreements))
    times = [measure_scan(shape, one, device) for shape in BATCHES.values() for one in backends]
    console.print(times_table(times, name))
    if device.type == "cuda":
        console.print(targets_table(times))
    content = {
        "environment": environment,
        "agreement": agreements,
        "times": times,
        "h200_targets_ms": H200_TARGETS,
    }
    # What is measured is kept, whatever becomes of the rest.
    write_json(options.out, content)
    growth = [measure_scan(shape, one, device) for one in backends for shape in GROWTH]
    console.print(growth_table(growth))
    write_json(options.out, content | {"growth": growth})
    if not all(agreement.holds for agreement in agreements):
        raise SystemExit("a backend is less exact than it has to be")


def targets_table(times: list[ScanTimes]) -> Group:
    """Set the measured times beside those to reach on an H200."""

    def pair(values: tuple[float, float]) -> str:
        return " / ".join(f"{value:.3g}" for value in values)

    return table(
        "Forward / forward and backward in ms, and what to reach on an H200",
        ["batch", "backend", "measured", "must", "goal", "mamba-ssm"],
        (
            [
                one.batch.name,
                one.backend,
                pair((one.forward_ms, one.both_ms)),
                *(
                    pair(H200_TARGETS[one.batch.name][kind])
                    for kind in ("must", "goal", "mamba-ssm")
                ),
            ]
            for one in times
        ),
    )


def growth_table(times: list[ScanTimes]) -> Group:
    """Show the time of a token, which stays the same where growth is linear."""
    return table(
        "Growth with the number of tokens, forward and backward",
        ["batch", "backend", "sequences", "tokens", "ms", "ns a token"],
        (
            [
                one.batch.name,
                one.backend,
                f"{one.batch.sequences:,}",
                f"{one.batch.tokens:,}",
                f"{one.both_ms:.3f}",
                f"{1e6 * one.both_ms / one.batch.tokens:.1f}",
            ]
            for one in sorted(times, key=lambda one: (one.backend, one.batch.name))
        ),
    )


if __name__ == "__main__":
    main()
