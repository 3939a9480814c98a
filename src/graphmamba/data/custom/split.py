"""Splits of custom graphs: random, by scaffold, column or time; of one graph, nodes or edges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from graphmamba.data.catalog import Task
from graphmamba.data.custom.labels import Where
from graphmamba.data.custom.options import KEYED, DataOptions, SplitName
from graphmamba.data.datasets.molecules import import_rdkit
from graphmamba.data.splits import SPLITS, SplitRatios, random_split, split_of_words, split_sizes
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.data.tables import LINKS, NO_SPLIT, NODE_SPLIT, PAIR_SPLIT, GraphColumns, Pairs
from graphmamba.errors import UserError
from graphmamba.ops.random import draw_bits

MASKS = ("train_mask", "val_mask", "test_mask")
"""Nodes for training, validation and test; with several columns each column is a split."""
HELD = 0.3  # share of the training edges held out as positive pairs; messages pass along the others
ROUNDS = 20  # attempts to sample a negative pair before a node counts as adjacent to all others
TEST = 2
Key = Shaped[np.ndarray, " graphs"]
"""What graphs are split by: numbers of scaffolds or of splits, or times."""


def with_split(
    store: GraphStore,
    task: Task,
    options: DataOptions,
    read_key: Callable[[], Key],
    where: str,
) -> GraphStore:
    """Split graphs, or the nodes or edges of one: by the options, the files, or at random."""
    is_alone = len(store) == 1 and task.level == "node" and store.split is None
    draws_links = task.level == "link" and PAIRS + LINKS not in store.tables
    if (store.is_transductive or is_alone or draws_links) and (options.split or options.folds):
        name = "split" if options.split else "folds"
        raise UserError(
            f"{name} must be left out where the {task.level}s of a graph are split, by masks or by "
            f"split_ratios and split_seed, got {getattr(options, name)!r} for {where}"
        )
    if store.is_transductive:
        return store
    if options.split_index:
        raise UserError(
            f"split_index needs graphs with {', '.join(MASKS)}, got {options.split_index}"
        )
    if is_alone:
        y = store.tables["nodes"].given("y")
        drawn = draw_node_split(y, options.split_ratios, options.split_seed)
        return store.with_columns(nodes={NODE_SPLIT: drawn})
    if draws_links:
        return GraphStore(split_links(store.columns(), options.split_ratios, options.split_seed))
    if store.split is not None and options.split is None:
        if options.folds:
            raise UserError(
                f"{where} defines a split in `split`: for folds, data.split must be stratified, "
                "random or scaffold"
            )
        return store
    classes = None
    if task.level == "graph" and task.classes:
        classes = store.tables["graphs"].given("y").reshape(-1)
    key = read_key() if options.split in KEYED else None
    split = split_graphs(options, len(store), classes, key)
    return GraphStore.from_tables(store.tables, split, store.source)


def split_graphs(
    options: DataOptions,
    graphs: int,
    classes: Int[Tensor, " graphs"] | None = None,
    key: Key | None = None,
) -> Int[Tensor, " graphs"]:
    """Assign graphs to training (0), validation (1) and test (2).

    With folds, one of them is the test set, and the others are divided into training and
    validation.
    """
    if options.split == "stratified" and classes is None:
        raise UserError(
            "split='stratified' needs one class for each graph; split='random' does not"
        )
    kinds = None if classes is None or options.split == "random" else classes.numpy()
    ratios, rows, split = options.split_ratios, np.arange(graphs), np.full(graphs, TEST)
    if options.folds:
        if graphs < options.folds:
            raise UserError(f"folds must be at most the {graphs} graphs, got {options.folds}")
        rows = (_folds(options, graphs, kinds, key) != options.fold).nonzero()[0]
        train, validation, _ = ratios
        ratios = (train / (train + validation), validation / (train + validation), 0.0)
    sizes = split_sizes(len(rows), ratios).numpy()
    if key is not None and options.split == "column":
        split = key
    elif key is not None and options.split == "time":
        split[key.argsort(kind="stable")] = np.repeat(np.arange(len(sizes)), sizes)
    elif key is not None:
        split[rows] = _by_scaffold(key[rows], sizes)
    else:
        drawn = None if kinds is None else _stratified(options, kinds[rows], sizes)
        if drawn is None:
            drawn = random_split(len(rows), ratios, options.split_seed).numpy()
        split[rows] = drawn
    return torch.from_numpy(split)


def _stratified(
    options: DataOptions, classes: Int[np.ndarray, " graphs"], sizes: Int[np.ndarray, " splits"]
) -> Int[np.ndarray, " graphs"] | None:
    """Stratified split; None if there are too few graphs, unless requested."""
    from sklearn.model_selection import train_test_split

    random = np.random.RandomState(np.random.MT19937(options.split_seed))
    rest, split = np.arange(len(classes)), np.zeros(len(classes), dtype=np.int64)
    strata = _strata(options, classes, len(sizes))
    try:
        for number in (TEST, 1):
            if sizes[number]:
                rest, taken = train_test_split(
                    rest, test_size=int(sizes[number]), stratify=strata[rest], random_state=random
                )
                split[taken] = number
    except ValueError as error:
        if options.split != "stratified":
            return None
        raise UserError(
            f"split='stratified' needs more graphs of each class than there are: {error}"
        ) from error
    return split


def _strata(
    options: DataOptions, classes: Int[np.ndarray, " graphs"], least: int
) -> Int[np.ndarray, " graphs"]:
    """Merge rare classes with the most frequent one, unless stratification is requested."""
    if options.split == "stratified":
        return classes
    found, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
    return np.where(counts[place] < least, found[counts.argmax()], classes)


def _by_scaffold(
    scaffold: Int[np.ndarray, " graphs"], sizes: Int[np.ndarray, " splits"]
) -> Int[np.ndarray, " graphs"]:
    """Assign whole scaffolds to training, validation and test, the most frequent ones first."""
    split = np.full(len(scaffold), len(sizes) - 1 if sizes[-1] else len(sizes) - 2)
    number, first, counts = np.unique(scaffold, return_index=True, return_counts=True)
    room = sizes[:-1].copy()
    for place in np.lexsort((first, -counts)):
        fits = (room >= counts[place]).nonzero()[0]
        if len(fits):
            room[fits[0]] -= counts[place]
            split[scaffold == number[place]] = fits[0]
    return split


def _folds(
    options: DataOptions,
    graphs: int,
    classes: Int[np.ndarray, " graphs"] | None,
    key: Key | None,
) -> Int[np.ndarray, " graphs"]:
    """Fold of each graph."""
    from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

    rows, count = np.arange(graphs), options.folds
    random = np.random.RandomState(np.random.MT19937(options.split_seed))
    try:
        if key is not None:
            parts = GroupKFold(count).split(rows, groups=key)
        elif classes is not None:
            drawn = StratifiedKFold(count, shuffle=True, random_state=random)
            parts = drawn.split(rows, _strata(options, classes, count))
        else:
            parts = KFold(count, shuffle=True, random_state=random).split(rows)
        fold = np.empty(graphs, dtype=np.int64)
        for number, (_, test) in enumerate(parts):
            fold[test] = number
    except ValueError as error:
        raise UserError(f"folds must be fewer, got {count} for {graphs} graphs: {error}") from error
    return fold


def split_key(name: SplitName | None, cells: Sequence[str], where: Where) -> Key:
    """Read scaffolds, times or the split column."""
    if name == "scaffold":
        found = _scaffolds(tuple(cells))
        if (found < 0).any():
            row = int((found < 0).argmax())
            raise UserError(f"{where(row)}: smiles must name a molecule, got {cells[row]!r}")
        return found
    return _times(cells, where) if name == "time" else split_of_words(cells, where).numpy()


def _times(cells: Sequence[str], where: Where) -> Key:
    """Numbers, such as years, or dates in any form that pandas knows."""
    import pandas as pd

    column = pd.Series(cells, dtype=str)
    times = pd.to_numeric(column, errors="coerce")
    if times.isna().all():
        times = pd.to_datetime(column, errors="coerce", utc=True)
    if times.isna().any():
        row = int(times.isna().to_numpy().argmax())
        raise UserError(
            f"{where(row)}: a time must be a number or a date, as in the other rows, "
            f"got {cells[row]!r}"
        )
    return times.rank(method="dense").to_numpy(dtype=np.int64)


@lru_cache(maxsize=1)
def _scaffolds(smiles: tuple[str, ...]) -> Int[np.ndarray, " graphs"]:
    """Number the Bemis-Murcko scaffolds; molecules without a ring share the empty one.

    -1 for SMILES that RDKit rejects. Cached, since all folds need the same.
    """
    chem = import_rdkit()
    from rdkit.Chem.Scaffolds import MurckoScaffold

    quiet = chem.rdBase.BlockLogs()
    found: dict[str, int] = {}
    numbers = []
    for text in smiles:
        molecule = chem.MolFromSmiles(text)
        if molecule is None:
            numbers.append(-1)
            continue
        scaffold: str = MurckoScaffold.MurckoScaffoldSmiles(mol=molecule)  # type: ignore[no-untyped-call]
        numbers.append(found.setdefault(scaffold, len(found)))
    del quiet
    return np.array(numbers, dtype=np.int64)


def read_masks(
    masks: Mapping[str, Tensor], nodes: int, split_index: int, source: str
) -> tuple[Int[Tensor, " nodes"], int]:
    """Number the split of each node: 0 training, 1 validation, 2 test, 3 none of them.

    All three of `MASKS` have a value for each node: [nodes], or [nodes, splits] or [splits, nodes]
    for several splits. Also returns how many splits there are to choose from.
    """
    if missing := [name for name in MASKS if name not in masks]:
        raise UserError(f"{source}: {', '.join(MASKS)} must be given together, got no {missing[0]}")
    upright = {}
    for name in MASKS:
        mask = masks[name] if masks[name].dim() != 1 else masks[name][:, None]
        is_mask = mask.dtype == torch.bool or bool(((mask == 0) | (mask == 1)).all())
        if mask.dim() != 2 or nodes not in mask.shape or not is_mask:  # noqa: PLR2004
            raise UserError(
                f"{source}: {name} must be true or false for each of {nodes} nodes, with a column "
                f"for each split where there are several, got {masks[name].dtype} of shape "
                f"{list(masks[name].shape)}"
            )
        upright[name] = (mask if mask.shape[0] == nodes else mask.T).bool()  # [nodes, splits]
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
    found = torch.full((nodes,), NO_SPLIT)
    for number, (name, columns) in enumerate(upright.items()):
        mask = columns[:, min(split_index, counts[name] - 1)]
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


def draw_node_split(y: Tensor, ratios: SplitRatios, seed: int) -> Int[Tensor, " nodes"]:
    """Stratified random split of the labelled nodes."""
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
    """Split the edges of a graph into message passing edges and positive pairs.

    Both directions of an edge, and its repeats, stay together. Messages pass along the training
    edges that are not held out, and along self-loops, in all splits. Each positive pair of
    validation and test gets a negative one with the same first node; training samples new ones at
    each step.
    """
    nodes, index = int(columns.node_ptr[-1]), columns.edge_index
    if len(columns.node_ptr) != 2:  # noqa: PLR2004
        raise UserError(
            f"level='link' needs labelled pairs where there are several graphs, got none for "
            f"{len(columns.node_ptr) - 1} graphs: pairs.csv, or edge_label_index"
        )
    is_loop = index[0] == index[1]
    known, place = _keys(index[:, ~is_loop], nodes).unique(return_inverse=True)
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
    # a negative pair for each positive one, where one can be found
    head = asked[0, is_scored]
    tail, can_serve = head.clone(), torch.zeros(len(head), dtype=torch.bool)
    stream = draw_bits(torch.tensor(seed), len(SPLITS))
    for number in range(ROUNDS):
        bits = draw_bits(draw_bits(stream, number), torch.arange(len(head)))
        tail = torch.where(can_serve, tail, bits.remainder(nodes))
        wrong = torch.stack([head, tail])
        can_serve = (head != tail) & ~torch.isin(_keys(wrong, nodes), known)
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
