"""Which custom graphs are for training, validation and test: by chance, scaffold, column, time."""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor

from graphmamba.data.custom.labels import Where
from graphmamba.data.custom.options import KEYED, DataOptions, SplitName
from graphmamba.data.datasets.molecules import import_rdkit
from graphmamba.data.splits import SplitRatios, random_split, split_of_words, split_sizes
from graphmamba.errors import UserError

TEST = 2
Key = Shaped[np.ndarray, " graphs"]
"""What graphs are split by: numbers of scaffolds or of splits, or times."""


def choose_split(
    options: DataOptions,
    given: Int[Tensor, " graphs"] | None,
    graphs: int,
    classes: Int[Tensor, " graphs"] | None,
    read_key: Callable[[], Key],
    where: str,
) -> Int[Tensor, " graphs"]:
    """Split graphs as the options say, or else as they say themselves, or else by chance."""
    if given is None or options.split is not None:
        key = read_key() if options.split in KEYED else None
        return split_graphs(options, graphs, classes, key)
    if options.folds:
        raise UserError(
            f"{where} says in `split` which split each graph is in: for folds over all of them "
            "data.split must be stratified, random or scaffold"
        )
    return given


def split_graphs(
    options: DataOptions,
    graphs: int,
    classes: Int[Tensor, " graphs"] | None = None,
    key: Key | None = None,
) -> Int[Tensor, " graphs"]:
    """Assign graphs to training (0), validation (1) and test (2).

    With folds, one of them is the test set, and the others are shared out between training and
    validation.
    """
    if options.split == "stratified" and classes is None:
        raise UserError(
            "split='stratified' needs one class for each graph; split='random' does not"
        )
    if not options.folds:
        return torch.from_numpy(_assigned(options, options.split_ratios, graphs, classes, key))
    if graphs < options.folds:
        raise UserError(f"folds must be at most the {graphs} graphs, got {options.folds}")
    rest = (_folds(options, graphs, classes, key) != options.fold).nonzero()[0]
    train, validation, _ = options.split_ratios
    shares = (train / (train + validation), validation / (train + validation), 0.0)
    split = np.full(graphs, TEST)
    split[rest] = _assigned(
        options,
        shares,
        len(rest),
        None if classes is None else classes[torch.from_numpy(rest)],
        None if key is None else key[rest],
    )
    return torch.from_numpy(split)


def _assigned(
    options: DataOptions,
    ratios: SplitRatios,
    graphs: int,
    classes: Int[Tensor, " graphs"] | None,
    key: Key | None,
) -> Int[np.ndarray, " graphs"]:
    sizes = split_sizes(graphs, ratios).numpy()
    if key is not None and options.split == "column":
        return key
    if key is not None and options.split == "time":
        split = np.empty(graphs, dtype=np.int64)
        split[key.argsort(kind="stable")] = np.repeat(np.arange(len(sizes)), sizes)
        return split
    if key is not None:
        return _by_scaffold(key, sizes)
    if classes is not None and options.split != "random":
        try:
            strata = _strata(options, classes.numpy(), len(sizes))
            return _stratified(strata, sizes, options.split_seed)
        except ValueError as error:
            # where nobody asked for it, too few graphs are split at random
            if options.split == "stratified":
                raise UserError(
                    f"split='stratified' needs more graphs of each class than there are: {error}"
                ) from error
    return random_split(graphs, ratios, options.split_seed).numpy()


def _stratified(
    strata: Int[np.ndarray, " graphs"], sizes: Int[np.ndarray, " splits"], seed: int
) -> Int[np.ndarray, " graphs"]:
    from sklearn.model_selection import train_test_split

    random = np.random.RandomState(np.random.MT19937(seed))
    rest, split = np.arange(len(strata)), np.zeros(len(strata), dtype=np.int64)
    for number in (TEST, 1):
        if sizes[number]:
            rest, taken = train_test_split(
                rest, test_size=int(sizes[number]), stratify=strata[rest], random_state=random
            )
            split[taken] = number
    return split


def _strata(
    options: DataOptions, classes: Int[np.ndarray, " graphs"], least: int
) -> Int[np.ndarray, " graphs"]:
    """Join rare classes with the most frequent one, unless each is to have its share."""
    if options.split == "stratified":
        return classes
    found, place, counts = np.unique(classes, return_inverse=True, return_counts=True)
    return np.where(counts[place] < least, found[counts.argmax()], classes)


def _by_scaffold(
    scaffold: Int[np.ndarray, " graphs"], sizes: Int[np.ndarray, " splits"]
) -> Int[np.ndarray, " graphs"]:
    """Fill training, validation and test with whole scaffolds, the most frequent ones first."""
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
    classes: Int[Tensor, " graphs"] | None,
    key: Key | None,
) -> Int[np.ndarray, " graphs"]:
    """Number the fold of each graph."""
    from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

    drawn = {
        "shuffle": True,
        "random_state": np.random.RandomState(np.random.MT19937(options.split_seed)),
    }
    rows, count = np.arange(graphs), options.folds
    try:
        if key is not None:
            parts = GroupKFold(count).split(rows, groups=key)
        elif classes is not None and options.split != "random":
            parts = StratifiedKFold(count, **drawn).split(
                rows, _strata(options, classes.numpy(), count)
            )
        else:
            parts = KFold(count, **drawn).split(rows)
        fold = np.empty(graphs, dtype=np.int64)
        for number, (_, test) in enumerate(parts):
            fold[test] = number
    except ValueError as error:
        raise UserError(f"folds must be fewer, got {count} for {graphs} graphs: {error}") from error
    return fold


def split_key(name: SplitName, cells: Sequence[str], where: Where) -> Key:
    """Read what graphs are split by."""
    if name == "scaffold":
        return _scaffolds(cells, where)
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


def _scaffolds(smiles: Sequence[str], where: Where) -> Int[np.ndarray, " graphs"]:
    """Number the Bemis-Murcko scaffolds; molecules without a ring share the empty one."""
    chem = import_rdkit()
    from rdkit.Chem.Scaffolds import MurckoScaffold

    quiet = chem.rdBase.BlockLogs()
    scaffold_of: Callable[..., str] = MurckoScaffold.MurckoScaffoldSmiles
    found: dict[str, int] = {}
    numbers = []
    for row, text in enumerate(smiles):
        molecule = chem.MolFromSmiles(text)
        if molecule is None:
            raise UserError(f"{where(row)}: smiles must name a molecule, got {text!r}")
        scaffold = scaffold_of(mol=molecule)
        numbers.append(found.setdefault(scaffold, len(found)))
    del quiet
    return np.array(numbers, dtype=np.int64)
