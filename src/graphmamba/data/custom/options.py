"""Options for reading custom graphs: `DataOptions` and `DataSource`."""

import math
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

from graphmamba.checks import check_least, check_seed, check_types
from graphmamba.data.catalog import Benchmark, Features, Level, Task, TaskKind
from graphmamba.data.custom.labels import LabelRule, LabelStatistics
from graphmamba.data.splits import SplitRatios
from graphmamba.errors import UserError
from graphmamba.parse import words_in

Format = Literal["folder", ".csv", ".npz", "TUDataset", "GraphML", "graphs", "benchmark"]
"""How graphs come; a benchmark needs no options."""
WORDS: dict[Format, str] = {
    "folder": "a folder of CSV files",
    ".csv": "a CSV of molecules",
    ".npz": "an .npz of arrays",
    "TUDataset": "the files of a TUDataset",
    "GraphML": "GraphML or networkx",
    "graphs": "graphs of PyG",
}
"""What a message calls formats that have options of their own."""
READ_FOR: dict[str, tuple[Format, ...]] = {
    "target": ("folder", ".csv", "TUDataset", "GraphML"),
    "undirected": ("folder",),
    "smiles": ("folder", ".csv", "GraphML", "graphs"),
    "split_index": (".npz", "graphs"),
    "split_column": ("folder", ".csv", "GraphML", "graphs"),
    "on_error": (".csv",),
    "descriptors": (".csv",),
}
"""Formats that an option is read for; one that is not listed is read for all custom graphs."""
OWN = tuple(WORDS)
ENDINGS: dict[str, Format] = {
    ".npz": ".npz",
    ".csv": ".csv",
    ".csv.gz": ".csv",
    ".parquet": ".csv",
    ".zip": "TUDataset",
    ".graphml": "GraphML",
}
"""How files are known."""
KINDS_OF_FILES = "a folder, or a .csv, .csv.gz, .parquet, .npz, .zip or .graphml file"
SplitName = Literal["random", "stratified", "scaffold", "column", "time"]
COLUMN_SPLITS: tuple[SplitName, ...] = ("column", "time")
KEYED: tuple[SplitName, ...] = ("scaffold", "column", "time")
"""Ways to split that ask something of each graph."""
OnError = Literal["skip", "raise"]


@dataclass(frozen=True)
class DataOptions:
    """How custom graphs are read; what is left out is inferred from the files."""

    target: str | tuple[str, ...] = ()
    """Target column or columns in CSV files; in an .npz the target is `y`."""
    task: TaskKind | None = None
    """Type of the target: `classes` (classification), `regression` or `multi-label` (several yes/no
    targets); null infers it from the values."""
    classes: int | tuple[str, ...] | None = None
    """Number of classes, whose targets are 0, 1, ..., or the class names in order; null infers
    them."""
    level: Level | None = None
    """Whether the target belongs to graphs, nodes or links; null infers it."""
    undirected: bool = False
    """In a folder of CSV files: add the reverse of every edge."""
    smiles: str = "smiles"
    """Column of the SMILES strings: in a table of molecules, and for the split by scaffolds."""
    split_index: int = 0
    """Which split to use, where the masks of one graph have several columns; counted from 0."""
    split_ratios: SplitRatios = (0.8, 0.1, 0.1)
    """Fractions of training, validation and test, for data without a split: of the graphs, or of
    the nodes or edges of a single graph."""
    split_seed: int = 0
    """Random seed of that split."""
    split: SplitName | None = None
    """How graphs are split: `random`; `stratified`, with the classes in the same shares; `scaffold`
    by the Bemis-Murcko scaffold of molecules; as `split_column` says; or by its `time`, the
    earliest for training. null: as files say, or else stratified for classes and random for
    others."""
    split_column: str = ""
    """Column with the split of each graph, `split` by default, or with its time."""
    folds: int = 0
    """Parts of equal size, of which one is the test set; 0 for none."""
    fold: int = 0
    """Which of the folds is the test set, from 0."""
    on_error: OnError = "skip"
    """Whether SMILES that RDKit rejects are left out and listed in a file, or raise."""
    standardize_targets: bool = True
    """Train regression on standardised targets; predictions and scores are in original units."""
    descriptors: bool | None = None
    """Predict molecules by RDKit's descriptors as well, in equal parts with their atoms; null does
    so for up to 20,000 molecules where defaults are chosen, and not beside a preset."""

    def __post_init__(self) -> None:
        check_types(self)
        # a model is trained, chosen and tested: no split may be empty
        if not min(self.split_ratios) > 0 or not math.isclose(sum(self.split_ratios), 1):
            raise UserError(
                "split_ratios must be three shares above 0, of training, validation and test, that "
                f"add up to 1, got {self.split_ratios}"
            )
        check_seed("split_seed", self.split_seed)
        check_least("split_index", self.split_index, 0)
        LabelRule(self.task, self.classes)
        if self.split == "time" and not self.split_column:
            raise UserError("split_column must name the column of times for split='time', got ''")
        if self.split_column and self.split not in COLUMN_SPLITS:
            raise UserError(
                f"split_column is read for split='column' or 'time' alone, got "
                f"{self.split_column!r} for split={self.split!r}"
            )
        if self.split_seed and self.split not in (None, "random", "stratified"):
            raise UserError(
                f"split_seed must be left out for split={self.split!r}, which draws nothing, "
                f"got {self.split_seed}"
            )
        if self.folds == 1 or not 0 <= self.fold < max(self.folds, 1):
            raise UserError(
                "folds must be 2 at least, or 0 for none, and fold one of them counted from 0, "
                f"got folds={self.folds} and fold={self.fold}"
            )
        check_least("folds", self.folds, 0)
        if self.folds and self.split in COLUMN_SPLITS:
            raise UserError(
                "split must be random, stratified or scaffold where there are folds, "
                f"got {self.split!r}"
            )

    @property
    def undrawn(self) -> "DataOptions":
        """How other graphs are read, which are not split: only a column says where they belong."""
        if self.split == "column":
            return self
        plain: dict[str, Any] = {"split": None, "split_column": "", "split_seed": 0}
        return replace(self, **plain, folds=0, fold=0)

    @property
    def targets(self) -> tuple[str, ...]:
        """The label columns."""
        return (self.target,) if isinstance(self.target, str) else self.target

    @property
    def rule(self) -> LabelRule:
        """Options for the labels."""
        return LabelRule(self.task, self.classes)


def names_given(given: list[str] | str, option: str) -> tuple[str, ...]:
    """Split a typed list of names: `a,b` or `[a, b]`."""
    return tuple(words_in(given, option) if isinstance(given, str) else given)


def format_of(path: Path) -> Format | None:
    """Format of a path; None if it cannot be read."""
    if path.is_dir():
        if any(path.glob("*_A.txt")):
            return "TUDataset"
        return "GraphML" if any(path.glob("*.graphml")) else "folder"
    return next((ENDINGS[end] for end in ENDINGS if path.name.lower().endswith(end)), None)


def check_read(options: DataOptions, kind: Format, where: str) -> None:
    """Reject options that the format does not use."""
    if options.split in KEYED and kind in OWN and kind not in READ_FOR["split_column"]:
        raise UserError(
            f"split must be 'random' or 'stratified' for {where}, got {options.split!r}"
        )
    for name in _unread(options, kind):
        value = getattr(options, name)
        shown = ", ".join(value) if isinstance(value, tuple) else repr(value)
        read = READ_FOR.get(name, ())
        told = " or ".join(WORDS[each] for each in read) or "custom graphs"
        raise UserError(f"{name} is read for {told} alone, got {shown} for {where}")


def only_read(options: DataOptions, kind: Format) -> DataOptions:
    """Reset options that the format does not use."""
    defaults = DataOptions()
    if kind not in READ_FOR["split_column"] and options.split in KEYED:
        options = replace(options, split=None, split_column="")
    return replace(options, **{name: getattr(defaults, name) for name in _unread(options, kind)})


def _unread(options: DataOptions, kind: Format) -> list[str]:
    """Options that are set but not used by the format."""
    return [
        field.name
        for field in fields(DataOptions)
        if kind not in READ_FOR.get(field.name, OWN)
        and getattr(options, field.name) != field.default
    ]


@dataclass(frozen=True)
class DataSource(DataOptions):
    """Custom graphs of an experiment: path, reading options, and what was inferred."""

    path: str = ""
    """Your graphs: a folder of tables, an .npz of arrays, a table of molecules, a TUDataset or
    GraphML."""
    features: Features | None = None
    """Columns of nodes and edges; filled in when the graphs are read."""
    labels: Task | None = None
    """The task; filled in when the graphs are read."""
    class_names: tuple[str, ...] = ()
    """Names of classes or target columns; filled in when the graphs are read."""
    columns: tuple[str, ...] = ()
    """Names of the features in order; filled in when the graphs are read."""
    statistics: LabelStatistics | None = None
    """Statistics of the training labels; filled in when the graphs are read."""

    @classmethod
    def of(cls, options: DataOptions, path: str = "") -> "DataSource":
        """Make a source from options, and a path for files."""
        return cls(**_shared(options), path=path)

    @property
    def options(self) -> DataOptions:
        """How the files are read."""
        options = DataOptions(**_shared(self))
        if self.features is not None and format_of(Path(self.path)) == ".csv":
            # as they were read
            return replace(options, descriptors=self.features.graph_columns > 0)
        return options

    def described(
        self,
        features: Features,
        task: Task,
        names: tuple[str, ...],
        columns: tuple[str, ...] = (),
    ) -> "DataSource":
        """Return the source with features, task and names of its graphs."""
        return replace(
            self, features=features, labels=task, class_names=names, columns=columns,
            statistics=None,
        )  # fmt: skip

    def as_benchmark(self) -> Benchmark:
        """The equivalent of an entry of the catalogue."""
        if self.features is None or self.labels is None:
            raise UserError(f"custom graphs of '{self.path}' must be read before a model is built")
        title = self.path or "custom graphs"
        return Benchmark(title, self.features, self.labels, 0, 0, 0, 0.0, 0.0, self.class_names)


def _shared(options: DataOptions) -> dict[str, Any]:
    """Entries that options and a source have in common."""
    return {field.name: getattr(options, field.name) for field in fields(DataOptions)}
