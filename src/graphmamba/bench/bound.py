"""The least time that an H200 needs, whatever the kernel."""

from dataclasses import dataclass

from graphmamba.bench.shapes import BatchShape

BYTES_PER_SECOND = 4.3e12
"""What a device-to-device copy reaches, reads and writes counted."""
EXPONENTIALS_PER_SECOND = 4.2e12
"""What the special-function units reach."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Bound:
    """Milliseconds under which no float32 operation can go."""

    forward_ms: float
    both_ms: float
    """Forward and backward together."""


def chip_bound(shape: BatchShape) -> Bound:
    """Bound a scan by moving each byte once, and by its exponentials, whichever takes longer."""
    # u, delta, z and the output; B and C.
    moved = shape.tokens * (4 * shape.inner + 2 * shape.state) * FLOAT_BYTES
    # One for each state; softplus and the SiLU gate take two special functions each.
    exponentials = shape.tokens * shape.inner * (shape.state + 4)
    forward = max(moved / BYTES_PER_SECOND, exponentials / EXPONENTIALS_PER_SECOND)
    # The backward pass runs the recurrence again from its checkpoints, then once in reverse.
    return Bound(forward_ms=1e3 * forward, both_ms=3e3 * forward)


def rows_bound(forward: int, backward: int, channels: int) -> Bound:
    """Bound an operation by moving so many float32 rows in each pass."""
    row_ms = 1e3 * FLOAT_BYTES * channels / BYTES_PER_SECOND
    return Bound(forward_ms=forward * row_ms, both_ms=(forward + backward) * row_ms)
