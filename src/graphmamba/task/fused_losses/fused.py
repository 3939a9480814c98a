"""Losses and their gradients on a GPU: which kernels run, on what tiles."""

from typing import Any

import torch
import triton
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.kernel_sizes import block_of
from graphmamba.line_sums import share
from graphmamba.task.fused_losses.class_kernels import (
    class_loss_kernel,
    count_classes_kernel,
    two_class_loss_kernel,
)
from graphmamba.task.fused_losses.entry_kernels import count_entries_kernel, entry_loss_kernel
from graphmamba.task.fused_losses.sum_kernels import add_shares_kernel

MOST_ALONE = 16384
"""Numbers that one program holds, if all others can be spared by it."""
TILE = 1024
"""Numbers of a program among many."""
COUNTED = 4096
"""Numbers of a tile of a program that counts."""
MOST_LINES = 64
"""Programs that count: each of those that use the counts reads what they leave."""
SHARES = 1024
WARPS, WARPS_ALONE = 4, 32

Found = tuple[Float[Tensor, ""], Float[Tensor, "rows columns"]]


def class_loss(
    logits: Float[Tensor, "rows classes"], label: Int[Tensor, " rows"], is_weighted: bool
) -> Found:
    """Mean of the cross-entropies, and its gradient."""
    (rows, classes), block = logits.shape, block_of(logits.shape[1], least=2)
    is_alone, tile, warps = _tile(rows, block)
    lines = label if is_alone else _count_classes(label, classes)
    loss, shares, gradient = _places(logits, rows, tile)
    if rows:
        class_loss_kernel[(shares.shape[0],)](
            *(logits, label, lines, gradient, shares, rows, lines.shape[0]),
            CLASSES=classes,
            R=tile,
            C=block,
            LINES=max(TILE // block, 1),
            IS_ALONE=is_alone,
            IS_WEIGHTED=is_weighted,
            num_warps=warps,
        )
    return _total(loss, shares), gradient


def two_class_loss(logits: Float[Tensor, "rows 1"], label: Int[Tensor, " rows"]) -> Found:
    """Weighted mean of the binary cross-entropies, and its gradient."""
    rows = label.shape[0]
    is_alone, tile, warps = _tile(rows, 1)
    lines = label if is_alone else _count_classes(label, 2)
    loss, shares, gradient = _places(logits, rows, tile)
    if rows:
        two_class_loss_kernel[(shares.shape[0],)](
            *(logits, label, lines, gradient, shares, rows, lines.shape[0]),
            R=tile,
            LINES=MOST_LINES,
            IS_ALONE=is_alone,
            num_warps=warps,
        )
    return _total(loss, shares), gradient


def entry_loss(
    prediction: Float[Tensor, "rows outputs"], target: Float[Tensor, "rows outputs"], is_l1: bool
) -> Found:
    """Mean over all entries with a target, and its gradient."""
    size = prediction.numel()
    is_alone, tile, warps = _tile(size, 1)
    lines = target if is_alone else _count_entries(target)
    loss, shares, gradient = _places(prediction, size, tile)
    if size:
        entry_loss_kernel[(shares.shape[0],)](
            *(prediction, target, lines, gradient, shares, size, lines.shape[0]),
            B=tile,
            LINES=MOST_LINES,
            IS_ALONE=is_alone,
            IS_L1=is_l1,
            num_warps=warps,
        )
    return _total(loss, shares), gradient


def _tile(rows: int, block: int) -> tuple[bool, int, int]:
    """Whether one program is enough, rows of a program, and its warps."""
    alone = block_of(rows)
    if alone * block <= MOST_ALONE:
        return True, alone, WARPS if alone * block <= TILE else WARPS_ALONE
    return False, max(TILE // block, 1), WARPS


def _places(logits: Tensor, rows: int, tile: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where the loss, the shares of the programs and the gradient go; a lone share is the loss."""
    programs = triton.cdiv(rows, tile)
    loss = logits.new_empty(()) if rows else logits.new_zeros(())
    shares = logits.new_empty(programs) if programs > 1 else loss.view(1)
    return loss, shares, logits.new_empty(logits.shape)


def _count_classes(label: Int[Tensor, " rows"], classes: int) -> Int[Tensor, "lines classes"]:
    block = block_of(classes, least=2)
    tile = max(COUNTED // block, 1)
    return _count(count_classes_kernel, label, tile, classes, CLASSES=classes, R=tile, C=block)


def _count_entries(target: Float[Tensor, "rows outputs"]) -> Int[Tensor, "lines 1"]:
    return _count(count_entries_kernel, target, COUNTED, 1, B=COUNTED)


def _count(
    kernel: Any, labels: Tensor, tile: int, line: int, **sizes: int
) -> Int[Tensor, "lines line"]:
    tiles, programs = share(labels.numel(), tile, MOST_LINES, line)
    lines = torch.empty(programs, line, dtype=torch.int32, device=labels.device)
    kernel[(programs,)](labels, lines, labels.numel(), tiles, **sizes, num_warps=WARPS)
    return lines


def _total(loss: Float[Tensor, ""], shares: Float[Tensor, " programs"]) -> Float[Tensor, ""]:
    if shares.shape[0] > 1:
        add_shares_kernel[(1,)](shares, loss, shares.shape[0], B=SHARES, num_warps=WARPS)
    return loss
