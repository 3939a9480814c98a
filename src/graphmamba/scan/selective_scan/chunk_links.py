"""What chunks of the packed axis pass on to one another, before each is walked in full."""

from typing import Any

import torch
import triton
from torch import Tensor

from graphmamba.scan.selective_scan.cut import Cut
from graphmamba.scan.selective_scan.link_kernels import (
    carry_kernel,
    prepare_kernel,
    segment_kernel,
)

SEGMENT = 32
"""Chunks that are walked one after another where sequences have many."""
WORDS = 8
"""Words of 32 start bits that one program writes."""

Links = tuple[Tensor, Tensor, Tensor]
"""For each chunk: the state it passes on, its sum of dt, and whether anything passes through it."""


def prepare(
    cu_seqlens: Tensor, A: Tensor, steps: int, plan: Cut, *, reverse: bool
) -> tuple[Tensor, Tensor]:
    """Return a bit for each step that starts a sequence, and log2(e) A as the tiles read it."""
    starts = torch.empty(-(-steps // 32), dtype=torch.int32, device=A.device)
    A2 = torch.empty((plan.states, plan.width), dtype=torch.float32, device=A.device)
    blocks = triton.cdiv(starts.shape[0], WORDS)
    prepare_kernel[(blocks + triton.cdiv(A2.numel(), 32 * WORDS),)](
        cu_seqlens, A, starts, A2, cu_seqlens.shape[0], steps, A.shape[0], A.shape[1], A.stride(0),
        blocks, WIDTH=plan.width, N=plan.states, WORDS=WORDS, REVERSE=reverse, num_warps=4,
    )  # fmt: skip
    return starts, A2


def empty_links(chunks: int, plan: Cut, device: torch.device) -> Links:
    """Return room for the links of `chunks` chunks."""
    ends = torch.empty((chunks, plan.states, plan.width), dtype=torch.float32, device=device)
    sums = torch.empty((chunks, plan.width), dtype=torch.float32, device=device)
    return ends, sums, torch.empty(chunks, dtype=torch.int8, device=device)


def carry(
    A2: Tensor, links: Links, enter: Tensor, sequences: int, plan: Cut, stride: int, *,
    backward: bool,
) -> None:  # fmt: skip
    """Pass states on from chunk to chunk.

    Args:
        A2: log2(e) A as `prepare` gives it.
        links: what each chunk passes on by itself.
        enter: where the state that each chunk is entered with goes, `stride` tiles apart.
        sequences: number of sequences; where they have many chunks each, segments of chunks are
            walked side by side.
        plan: the cut.
        stride: tiles from one chunk's entry in `enter` to the next.
        backward: pass adjoints against time instead of states with it.
    """
    chunks = links[2].shape[0]
    tile: dict[str, Any] = {
        "WIDTH": plan.width, "N": plan.states, "C": plan.block, "BACKWARD": backward,
    }  # fmt: skip
    step = plan.states * plan.width
    if chunks <= SEGMENT * sequences:
        _hop(A2, links, enter, plan, stride * step, tile)
        return
    segments = triton.cdiv(chunks, SEGMENT)
    folded = empty_links(segments, plan, A2.device)
    segment_enter = torch.empty_like(folded[0])
    walk = segment_kernel[(segments, plan.blocks)]
    arguments = (A2, *links, enter, stride * step, *folded, segment_enter, chunks)
    shape: dict[str, Any] = {"SEGMENT": SEGMENT, "AHEAD": min(8, SEGMENT), "num_warps": 4, **tile}
    if segments > 1:
        walk(*arguments, FOLDS=True, **shape)
        _hop(A2, folded, segment_enter, plan, step, tile)
    walk(*arguments, FOLDS=False, **shape)


def _hop(
    A2: Tensor, links: Links, enter: Tensor, plan: Cut, stride: int, tile: dict[str, Any]
) -> None:
    chunks = links[2].shape[0]
    carry_kernel[(chunks - 1, plan.blocks)](
        A2, *links, enter, chunks, stride, AHEAD=8, num_warps=4, **tile
    )
