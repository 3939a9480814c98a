"""Splits of the nodes of a graph: masks as PyG and published files have them -> one column."""

from collections.abc import Mapping

import torch
from jaxtyping import Int
from torch import Tensor

from graphmamba.data.splits import SPLITS, SplitRatios, random_split
from graphmamba.data.tables import NO_SPLIT
from graphmamba.errors import UserError

MASKS = ("train_mask", "val_mask", "test_mask")
"""Nodes for training, validation and test; with several columns each column is a split."""


def read_masks(
    masks: Mapping[str, Tensor], nodes: int, split_index: int, source: str
) -> tuple[Int[Tensor, " nodes"], int]:
    """Number the split of each node: 0 training, 1 validation, 2 test, 3 none of them.

    Args:
        masks: All three of `MASKS`, each with a value for each node: [nodes], [nodes, splits] or
            [splits, nodes].
        nodes: How many there are.
        split_index: Which of several splits is meant.
        source: What a message calls the graphs.

    Returns:
        The numbers, and how many splits there are to choose from.
    """
    if missing := [name for name in MASKS if name not in masks]:
        raise UserError(f"{source}: {', '.join(MASKS)} must be given together, got no {missing[0]}")
    upright = {name: _upright(name, masks[name], nodes, source) for name in MASKS}
    counts = {name: mask.shape[1] for name, mask in upright.items()}
    splits = max(counts.values())
    if any(count not in (1, splits) for count in counts.values()):
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise UserError(f"{source}: masks must have as many splits as one another, got {told}")
    if split_index >= splits:
        raise UserError(
            f"{source}: split_index must be in 0 to {splits - 1}, one of the splits of its masks, "
            f"got {split_index}"
        )
    chosen = {name: mask[:, min(split_index, mask.shape[1] - 1)] for name, mask in upright.items()}
    found = torch.full((nodes,), NO_SPLIT)
    for number, (name, mask) in enumerate(chosen.items()):
        if not bool(mask.any()):
            raise UserError(f"{source}: {name} must hold a node, got none of {nodes}")
        if bool((twice := mask & (found != NO_SPLIT)).any()):
            node = int(twice.nonzero()[0])
            raise UserError(
                f"{source}: each node must be in one mask at most, got node {node} in "
                f"{MASKS[int(found[node])]} and {name} ({int(twice.sum())} nodes in both)"
            )
        found[mask] = number
    return found, splits


def _upright(name: str, mask: Tensor, nodes: int, source: str) -> Tensor:
    """One row for each node, one column for each split."""
    is_mask = mask.dtype == torch.bool or bool(((mask == 0) | (mask == 1)).all())
    if mask.dim() == 1 and len(mask) == nodes and is_mask:
        return mask.bool()[:, None]
    if mask.dim() == 2 and nodes in mask.shape and is_mask:  # noqa: PLR2004
        return (mask if mask.shape[0] == nodes else mask.T).bool()
    raise UserError(
        f"{source}: {name} must be true or false for each of {nodes} nodes, with a column for each "
        f"split where there are several, got {mask.dtype} of shape {list(mask.shape)}"
    )


def draw_node_split(y: Tensor, ratios: SplitRatios, seed: int) -> Int[Tensor, " nodes"]:
    """Draw the split of each labelled node, with the same shares of every class."""
    if y.is_floating_point():
        known = ~y.reshape(len(y), -1).isnan().all(dim=1)
        strata = torch.zeros(len(y), dtype=torch.int64)
    else:
        known, strata = y >= 0, y
    found = torch.full((len(y),), NO_SPLIT)
    for each in strata[known].unique().tolist():
        members = (known & (strata == each)).nonzero().flatten()
        found[members] = random_split(len(members), ratios, seed)
    if empty := [name for name, number in SPLITS.items() if not bool((found == number).any())]:
        raise UserError(
            f"{empty[0]} must hold nodes, and {int(known.sum())} labelled nodes are too few for "
            f"split_ratios {ratios}"
        )
    return found
