"""`graphmamba bench scan`: are the backends right on this machine, and how fast are they?"""

from pathlib import Path

import torch
from rich.console import Console

from graphmamba.bench.agreement import check_backends
from graphmamba.bench.measure import ScanTimes, measure_padded_loop, measure_scan
from graphmamba.bench.shapes import BATCHES
from graphmamba.bench.tables import agreement_table, cpu_table, gpu_table, write_json
from graphmamba.environment import describe, resolve_device
from graphmamba.errors import UserError
from graphmamba.parse import words_among
from graphmamba.scan import available_backends

# What a CPU can do while somebody waits, and what a GPU can.
_USUAL_SIZES = {"cpu": ["peptides"], "cuda": [*BATCHES]}
# Rows, padding included, beyond which the padded loop would fill the memory.
_PADDED_LIMIT = 100_000


def bench_scan(device: str = "auto", sizes: str = "auto", json: Path | None = None) -> None:
    """Check the scan's backends on this machine against their definition, and time them.

    Args:
        device: auto, cpu or cuda.
        sizes: Batches to time, with commas between: peptides, voc, malnet16, malnet256, million;
            auto is peptides on a CPU and all of them on a GPU.
        json: File to write the measurements to.
    """
    where = resolve_device(device)
    batches = _USUAL_SIZES[where.type] if sizes == "auto" else words_among(sizes, BATCHES, "sizes")
    if json is not None and not json.parent.is_dir():
        raise UserError(f"json must be a file in a folder that exists, got {str(json)!r}")

    environment = describe(where)
    stdout, stderr = Console(), Console(stderr=True)
    with stderr.status("checking the backends against the reference"):
        agreements = check_backends(where)
    stdout.print(agreement_table(agreements))

    times = []
    for name in batches:
        with stderr.status(f"timing {name}"):
            times += _time_batch(name, where)
    tabulate = gpu_table if where.type == "cuda" else cpu_table
    stdout.print(tabulate(times, str(environment["device"])))
    if json is not None:
        write_json(json, {"environment": environment, "agreement": agreements, "times": times})
    if not all(agreement.holds for agreement in agreements):
        raise SystemExit(1)


def _time_batch(name: str, device: torch.device) -> list[ScanTimes]:
    """Time all backends but the reference, whose place the padded loop takes on a CPU."""
    shape = BATCHES[name]
    fast = [backend for backend in available_backends(device) if backend != "reference"]
    times = [measure_scan(shape, backend, device) for backend in fast]
    if device.type == "cpu" and shape.sequences * shape.longest < _PADDED_LIMIT:
        times.append(measure_padded_loop(shape))
    return times
