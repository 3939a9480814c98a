"""What chunks of the packed axis pass on to one another, before each is walked in full."""

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from graphmamba.ops.kernel_sizes import starts_early
from graphmamba.ops.selective_scan.cut import Cut, start_words
from graphmamba.ops.selective_scan.link_kernels import carry_kernel, prepare_kernel, segment_kernel

SEGMENT = 32
"""Chunks that are walked one after another where sequences have very many."""
MANY = 256
"""Chunks of an average sequence from which on segments of them are walked side by side."""
AHEAD = 8
"""Links that are loaded at a time."""
MOST_WALKS = 2048
"""Programs that walk over chunks; where there are more sequences, each takes several."""
WORDS = 8
"""Words of 32 start bits that one program writes."""

Links = tuple[Tensor, Tensor, Tensor]
"""For each chunk: the state it passes on, its sum of dt, and whether anything passes through it."""


class Prepared(NamedTuple):
    """What all kernels of both passes read beside the inputs."""

    starts: Tensor
    """A bit for each step that starts a sequence, then zeros."""
    A2: Tensor
    """log2(e) A as the tiles read it."""


def prepared_in(tiles: Tensor, steps: int) -> Prepared:
    """Find them in the last tiles of what the backward pass starts from, as `states_shape` says."""
    count = -(-start_words(steps) // tiles[0].numel())
    starts = tiles[len(tiles) - count :].view(-1).view(torch.int32)
    return Prepared(starts, tiles[len(tiles) - count - 1])


def empty_prepared(steps: int, plan: Cut, device: torch.device) -> Prepared:
    """Return room for them alone, where no backward pass will follow."""
    starts = torch.empty(start_words(steps), dtype=torch.int32, device=device)
    shape = plan.states, plan.width
    return Prepared(starts, torch.empty(shape, dtype=torch.float32, device=device))


def prepare(
    cu_seqlens: Tensor, A: Tensor, steps: int, plan: Cut, room: Prepared, *, log_A: bool,
    reverse: bool,
) -> None:  # fmt: skip
    """Mark the starts and lay out A, or -exp(A) if `log_A`, in `room`."""
    starts, A2 = room
    blocks = triton.cdiv(starts.shape[0], WORDS)
    prepare_kernel[(blocks + triton.cdiv(A2.numel(), 32 * WORDS),)](
        cu_seqlens, A, starts, A2, cu_seqlens.shape[0], steps, A.shape[0], A.shape[1], A.stride(0),
        blocks, starts.shape[0], WIDTH=plan.width, N=plan.states, WORDS=WORDS, LOG_A=log_A,
        REVERSE=reverse, num_warps=4, PDL=early(A.device)["PDL"],
    )  # fmt: skip


def early(device: torch.device) -> dict[str, bool]:
    """Return the options of a kernel that is launched while the one before it is ending.

    Such a kernel has to `follow`; only the first of a row, which others may precede, starts late.
    """
    return {"PDL": True, "launch_pdl": True} if starts_early(device) else {"PDL": False}


def late(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of the first kernel of a row, of which nobody knows what precedes it."""
    return {name: value for name, value in options.items() if name != "launch_pdl"}


def empty_links(chunks: int, plan: Cut, device: torch.device) -> Links:
    """Return room for the links of `chunks` chunks."""
    ends = torch.empty((chunks, plan.states, plan.width), dtype=torch.float32, device=device)
    sums = torch.empty((chunks, plan.width), dtype=torch.float32, device=device)
    return ends, sums, torch.empty(chunks, dtype=torch.int8, device=device)


def carry(
    A2: Tensor, links: Links, enter: Tensor, cu_seqlens: Tensor, steps: int, plan: Cut,
    stride: int, *, reverse: bool, backward: bool,
) -> None:  # fmt: skip
    """Pass states on from chunk to chunk.

    Args:
        A2: log2(e) A as `prepare` gives it.
        links: What each chunk passes on by itself.
        enter: Where the state that each chunk is entered with goes, `stride` tiles apart.
        cu_seqlens: Where sequences begin; where they have very many chunks each, segments of chunks
            are walked side by side.
        steps: Length of the packed axis.
        plan: The cut.
        stride: Tiles from one chunk's entry in `enter` to the next.
        reverse: Walk each sequence from its end.
        backward: Pass adjoints against time instead of states with it.
    """
    chunks, sequences = links[2].shape[0], cu_seqlens.shape[0] - 1
    tile: dict[str, Any] = {
        "WIDTH": plan.width, "N": plan.states, "C": plan.block, "BACKWARD": backward,
        "num_warps": 4, **early(A2.device),
    }  # fmt: skip
    along = tile | {"CHUNK": plan.chunk, "REVERSE": reverse, "AHEAD": AHEAD}
    step = plan.states * plan.width
    if chunks <= MANY * sequences:
        carry_kernel[(min(sequences, MOST_WALKS), plan.blocks)](
            A2, *links, enter, cu_seqlens, sequences, steps, chunks, stride * step,
            BY_SEQUENCE=True, **along,
        )  # fmt: skip
        return
    segments = triton.cdiv(chunks, SEGMENT)
    folded = empty_links(segments, plan, A2.device)
    segment_enter = torch.empty_like(folded[0])
    walk = segment_kernel[(segments, plan.blocks)]
    arguments = (A2, *links, enter, stride * step, *folded, segment_enter, chunks)
    shape: dict[str, Any] = tile | {"SEGMENT": SEGMENT, "AHEAD": min(AHEAD, SEGMENT)}
    if segments > 1:
        walk(*arguments, FOLDS=True, **shape)
        carry_kernel[(1, plan.blocks)](
            A2, *folded, segment_enter, cu_seqlens, 1, steps, segments, step, BY_SEQUENCE=False,
            **along,
        )  # fmt: skip
    walk(*arguments, FOLDS=False, **shape)
