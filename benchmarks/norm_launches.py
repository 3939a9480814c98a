"""The kernels of the batch norm on rows as training has them, with other tiles than their own."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from graphmamba.bench.bound import FLOAT_BYTES

Which = Literal["sums", "apply"]
"""The first kernel of a pass, or the second."""

GHOSTS = 0.03
"""Share of rows that do not count, as batches of a captured step have."""


@dataclass(frozen=True)
class Shape:
    """Rows that a norm of a training batch has."""

    name: str
    rows: int
    channels: int
    is_nodes: bool
    """`a + norm(b + x)`, as of nodes; else `a + relu(norm(x))`, as of edges."""

    def moved(self, which: Which, is_backward: bool) -> int:
        """Bytes that a kernel has to move."""
        read = 1 + self.is_nodes + is_backward
        # The first only reads them; the second writes rows and, forward, reads what is added.
        tensors = read if which == "sums" else read + 1 + (not is_backward)
        return tensors * self.rows * self.channels * FLOAT_BYTES


SHAPES = [
    Shape(f"{name} {'nodes' if is_nodes else 'edges'}", rows, channels, is_nodes)
    for name, channels, *sizes in (
        ("peptides", 96, 21_000, 43_000),
        ("voc", 96, 15_000, 87_000),
        ("pattern", 64, 3_800, 195_000),
        ("cluster", 48, 1_900, 69_000),
        ("cifar10", 52, 1_900, 15_000),
        ("malnet", 64, 22_000, 46_000),
    )
    for rows, is_nodes in zip(sizes, (True, False), strict=True)
]


@dataclass(frozen=True)
class Candidate:
    """What is changed: sizes of the tile of one kernel, or which kernels start early."""

    which: Which
    changed: dict[str, int]
    early: Literal["none", "second", "both"] = "second"

    @property
    def name(self) -> str:
        """As the tables have it."""
        words = [f"{name} {value}" for name, value in self.changed.items()]
        words += [] if self.early == "second" else [f"early: {self.early}"]
        return ", ".join(words) or "as it is"


CHANGES: dict[Which, list[dict[str, int]]] = {
    "sums": [
        {},
        {"rows": 16},
        {"rows": 32},
        {"rows": 128, "warps": 8},
        {"rows": 128, "warps": 8, "programs": 264},
        {"channels": 64, "warps": 8},
        {"programs": 264},
        {"unroll": 1},
        {"unroll": 2},
    ],
    "apply": [
        {},
        {"rows": 16, "programs": 792},
        {"rows": 32},
        {"rows": 32, "programs": 792},
        {"rows": 128, "warps": 8, "programs": 264},
        {"channels": 64, "warps": 8},
        {"programs": 264},
        {"programs": 792},
        {"unroll": 1},
    ],
}
CANDIDATES = [
    *(Candidate(which, changed) for which, changes in CHANGES.items() for changed in changes),
    Candidate("apply", {}, early="none"),
    Candidate("apply", {}, early="both"),
]


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel, to be repeated."""

    kernel: Any
    grid: tuple[int, int]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]

    def __call__(self) -> None:
        """Launch it again."""
        self.kernel[self.grid](*self.arguments, **self.constants)


@contextmanager
def candidate_in_place(candidate: Candidate) -> Iterator[None]:
    """Let the kernels run with it, forward and backward."""
    from graphmamba.encode.batch_norm import fused

    tiles, starts = fused.TILES, fused.starts
    names = candidate.which, f"bwd_{candidate.which}"
    changed = {name: replace(getattr(tiles, name), **candidate.changed) for name in names}
    fused.TILES = replace(tiles, **changed)
    if candidate.early != "second":
        fused.starts = {"none": _late, "both": _both_early}[candidate.early]
    try:
        yield
    finally:
        fused.TILES, fused.starts = tiles, starts


@contextmanager
def recorded_launches() -> Iterator[list[Launch]]:
    """Run kernels as ever, and note their launches."""
    from graphmamba.encode.batch_norm import fused

    launches: list[Launch] = []

    class Recorder:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
            def launch(*arguments: Any, **constants: Any) -> None:
                launches.append(Launch(self.kernel, grid, arguments, constants))
                launches[-1]()

            return launch

    names = [name for name in vars(fused) if name.startswith("batch_norm_")]
    kernels = {name: getattr(fused, name) for name in names}
    for name, kernel in kernels.items():
        setattr(fused, name, Recorder(kernel))
    try:
        yield launches
    finally:
        for name, kernel in kernels.items():
            setattr(fused, name, kernel)


def record(shape: Shape, candidate: Candidate, sets: Sequence[list[Tensor]]) -> list[list[Launch]]:
    """Run both passes on each set of rows; return the four launches of each."""
    from graphmamba.encode.batch_norm import fused

    device = sets[0][0].device
    ones, zeros = torch.ones(shape.channels, device=device), torch.zeros((), device=device)
    count = torch.tensor(shape.rows - int(GHOSTS * shape.rows), device=device)
    activation = "none" if shape.is_nodes else "relu"
    settings = activation, [0.0, 0.0], [0, 0], True
    found = []
    for x, grad, after, before in sets:
        added = before if shape.is_nodes else None
        with candidate_in_place(candidate), recorded_launches() as launches:
            _, kept = fused.forward(
                *(x, ones, ones, added, after, None, None, count, ones.clone(), ones.clone()),
                *(zeros.long(), *settings, 0.1, 1e-5),
            )
            fused.backward(grad, kept, x, ones, ones, added, None, None, count, *settings)
        found.append(launches)
    return found


def _late(device: torch.device) -> tuple[dict[str, bool], dict[str, bool]]:  # noqa: ARG001 - as it is called
    return {"PDL": False}, {"PDL": False}


def _both_early(device: torch.device) -> tuple[dict[str, bool], dict[str, bool]]:
    # The first kernel waits for whatever precedes it.
    early = {"PDL": True, "launch_pdl": True} if device.type == "cuda" else {"PDL": False}
    return early, early
