"""Splits of a single graph: of its nodes, by masks or by chance, and of its edges, for links."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from graphmamba.data.splits import SPLITS, SplitRatios, random_split
from graphmamba.data.tables import LINKS, NO_SPLIT, PAIR_SPLIT, GraphColumns, Pairs
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits

MASKS = ("train_mask", "val_mask", "test_mask")
"""Nodes for training, validation and test; with several columns each column is a split."""
HELD = 0.3
"""Share of the training edges that is asked for; messages pass along the others."""
ROUNDS = 20
"""Times that a wrong pair is drawn before a node is taken to be joined with all others."""


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


def split_links(columns: GraphColumns, ratios: SplitRatios, seed: int) -> GraphColumns:
    """Split the edges of a graph: those that carry messages, and those that are asked for.

    Both directions of an edge, and its repeats, go the same way. Messages pass along the training
    edges that are not asked for, whatever the split that is scored; self-loops stay among them. To
    each right pair of validation and test comes a wrong one with the same first node; training
    draws new ones at each step.
    """
    nodes, index = int(columns.node_ptr[-1]), columns.edge_index
    if len(columns.node_ptr) != 2:  # noqa: PLR2004
        raise UserError(
            f"level='link' needs labelled pairs where there are several graphs, got none for "
            f"{len(columns.node_ptr) - 1} graphs: pairs.csv, or edge_label_index"
        )
    is_loop = index[0] == index[1]
    keys = index.min(dim=0).values * nodes + index.max(dim=0).values
    known, place = keys[~is_loop].unique(return_inverse=True)
    role = random_split(len(known), ratios, seed)
    if role.unique().tolist() != list(SPLITS.values()):
        raise UserError(
            f"a graph must have edges for three splits, got {len(known)} different ones"
        )
    is_training = (role == SPLITS["train"]).nonzero().flatten()
    is_held = role != SPLITS["train"]
    is_held[is_training] = random_split(len(is_training), (1 - HELD, HELD, 0.0), ~seed) == 1
    is_message = is_loop.clone()
    is_message[~is_loop] = ~is_held[place]
    if not bool(is_message[~is_loop].any()):
        raise UserError(f"training must have edges to pass messages, and {len(known)} are too few")
    # repeats of an edge are one question
    asked = (index[:, ~is_loop][:, is_held[place]].T).unique(dim=0).T
    split = role[torch.searchsorted(known, _keys(asked, nodes))]
    is_scored = split != SPLITS["train"]
    wrong, can_serve = _draw_wrong(asked[:, is_scored], known, nodes, seed)
    pairs = torch.cat([asked, wrong[:, can_serve]], dim=1)
    label = torch.cat([torch.ones(len(split)), torch.zeros(int(can_serve.sum()))])
    splits = torch.cat([split, split[is_scored][can_serve]])
    return replace(
        columns,
        edge_ptr=torch.tensor([0, int(is_message.sum())]),
        edge_index=index[:, is_message],
        edges={name: values[is_message] for name, values in columns.edges.items()},
        pairs={
            LINKS: Pairs(
                torch.tensor([0, len(label)]), pairs, {"edge_label": label, PAIR_SPLIT: splits}
            )
        },
        source=f"{columns.source}, {int(is_message.sum()):,} of {len(is_loop):,} edges as messages",
    )


def _keys(pairs: Int[Tensor, "2 pairs"], nodes: int) -> Int[Tensor, " pairs"]:
    """One number for a pair, the same in both directions."""
    return pairs.min(dim=0).values * nodes + pairs.max(dim=0).values


def _draw_wrong(
    right: Int[Tensor, "2 pairs"], known: Int[Tensor, " known"], nodes: int, seed: int
) -> tuple[Int[Tensor, "2 pairs"], Bool[Tensor, " pairs"]]:
    """Draw a pair that is no edge for each right one; tells which of them were found."""
    head, tail = right[0], right[0].clone()
    stream, place = draw_bits(torch.tensor(seed), len(SPLITS)), torch.arange(right.shape[1])
    can_serve = torch.zeros(right.shape[1], dtype=torch.bool)
    for number in range(ROUNDS):
        drawn = draw_bits(draw_bits(stream, number), place).remainder(nodes)
        tail = torch.where(can_serve, tail, drawn)
        pairs = torch.stack([head, tail])
        can_serve = (head != tail) & ~torch.isin(_keys(pairs, nodes), known)
    return torch.stack([head, tail]), can_serve
