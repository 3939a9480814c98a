"""The ten benchmarks of the paper: their columns, their tasks and their sizes, as a plain table."""

from dataclasses import dataclass
from typing import Literal

from graphmamba.checks import check_choice, check_least, check_types
from graphmamba.errors import UserError

NodeKind = Literal["atoms", "numbers"]
"""`atoms` are the nine integer columns of OGB, `numbers` any columns of floats."""
EdgeKind = Literal["bonds", "numbers", "none"]
"""`bonds` are the three integer columns of OGB; `none` is a set without edge features."""
Level = Literal["graph", "node", "link"]
LossName = Literal[
    "binary_cross_entropy",
    "l1",
    "cross_entropy",
    "weighted_cross_entropy",
    "weighted_binary_cross_entropy",
    "link_cross_entropy",
    "link_l1",
]
MetricName = Literal[
    "average_precision", "mean_absolute_error", "macro_f1", "accuracy", "accuracy_sbm", "mrr"
]
CLASS_METRICS: tuple[MetricName, ...] = ("accuracy", "accuracy_sbm", "macro_f1")
MEASURES: dict[LossName, tuple[MetricName, ...]] = {
    "binary_cross_entropy": ("average_precision",),
    "l1": ("mean_absolute_error",),
    "cross_entropy": CLASS_METRICS,
    "weighted_cross_entropy": CLASS_METRICS,
    "weighted_binary_cross_entropy": CLASS_METRICS,
    "link_cross_entropy": ("mrr",),
    "link_l1": ("mrr",),
}
"""Metrics that read the predictions that a loss trains."""
ATOM_VOCABULARY = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""Values of each atom column of OGB: number, chirality, degree, charge, hydrogens, radicals,
hybridisation, aromatic, in a ring; catch-all entries included."""
BOND_VOCABULARY = (5, 6, 2)
"""Values of each bond column of OGB: type, stereo, conjugated."""


@dataclass(frozen=True)
class Features:
    """The raw columns of a set's nodes and edges."""

    nodes: NodeKind = "numbers"
    node_columns: int = 1
    edges: EdgeKind = "none"
    edge_columns: int = 0

    def __post_init__(self) -> None:
        check_types(self)
        fixed = {"atoms": len(ATOM_VOCABULARY), "bonds": len(BOND_VOCABULARY), "none": 0}
        for name, kind, columns in (
            ("node_columns", self.nodes, self.node_columns),
            ("edge_columns", self.edges, self.edge_columns),
        ):
            if columns != fixed.get(kind, max(columns, 1)):
                rule = fixed.get(kind, "1 at least")
                raise UserError(f"{name} must be {rule} for {kind!r}, got {columns}")


@dataclass(frozen=True)
class Task:
    """What is predicted, and how right and wrong are measured."""

    level: Level
    outputs: int
    """Width of the prediction; for links the embedding width decides and this is 0."""
    loss: LossName
    metric: MetricName
    classes: int = 0
    """Classes that a label can name; 0 where labels are not classes."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.classes == 1 or self.classes < 0:
            raise UserError(f"classes must be 0, or 2 at least, got {self.classes}")
        check_choice(f"metric of {self.loss}", self.metric, MEASURES[self.loss])
        if (self.level == "link") != (self.metric == "mrr"):
            raise UserError(f"level must be 'link' with 'mrr' alone, got {self.level!r}")
        has_classes = self.metric in CLASS_METRICS
        if has_classes != bool(self.classes):
            rule = "given" if has_classes else "0"
            raise UserError(f"classes must be {rule} for {self.metric!r}, got {self.classes}")
        # one logit tells two classes apart
        is_single = self.loss == "weighted_binary_cross_entropy"
        if is_single:
            check_choice(f"classes of {self.loss}", self.classes, (2,))
        if has_classes:
            check_choice(
                f"outputs of {self.loss}", self.outputs, (1 if is_single else self.classes,)
            )
        else:
            check_least("outputs", self.outputs, 0 if self.level == "link" else 1)


@dataclass(frozen=True)
class Benchmark:
    """One data set of the paper."""

    title: str
    features: Features
    task: Task
    train: int
    validation: int
    test: int
    mean_nodes: float
    mean_edges: float
    """Directed edges of an average graph; a bond or a boundary counts twice."""
    names: tuple[str, ...] = ()
    """Classes, labels or targets in order; empty where numbers are all the names they have."""

    @property
    def graphs(self) -> int:
        """Graphs of all three splits."""
        return self.train + self.validation + self.test


MOLECULES = Features("atoms", len(ATOM_VOCABULARY), "bonds", len(BOND_VOCABULARY))


REGIONS = Features("numbers", 14, "numbers", 2)


PEPTIDE_FUNCTIONS = (
    "antifungal", "cell-cell communication", "anticancer", "drug delivery vehicle",
    "antimicrobial", "antiviral", "antihypertensive", "antibacterial", "antiparasitic", "toxic",
)  # fmt: skip
"""Labels of Peptides-func."""


PEPTIDE_STRUCTURES = (
    "Inertia_mass_a", "Inertia_mass_b", "Inertia_mass_c", "Inertia_valence_a",
    "Inertia_valence_b", "Inertia_valence_c", "length_a", "length_b", "length_c", "Spherocity",
    "Plane_best_fit",
)  # fmt: skip
"""Targets of Peptides-struct, as its file names them."""


VOC_CLASSES = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair",
    "cow", "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa",
    "train", "tvmonitor",
)  # fmt: skip


MALWARE = ("addisplay", "adware", "benign", "downloader", "trojan")
"""Kinds of MalNet-Tiny, in the order of its folders' names."""


CIFAR_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip


CATALOG: dict[str, Benchmark] = {
    "peptides-func": Benchmark(
        title="Peptides-func",
        features=MOLECULES,
        task=Task("graph", 10, "binary_cross_entropy", "average_precision"),
        train=10_873,
        validation=2_331,
        test=2_331,
        mean_nodes=150.94,
        mean_edges=307.30,
        names=PEPTIDE_FUNCTIONS,
    ),
    "peptides-struct": Benchmark(
        title="Peptides-struct",
        features=MOLECULES,
        task=Task("graph", 11, "l1", "mean_absolute_error"),
        train=10_873,
        validation=2_331,
        test=2_331,
        mean_nodes=150.94,
        mean_edges=307.30,
        names=PEPTIDE_STRUCTURES,
    ),
    "pascalvoc-sp": Benchmark(
        title="PascalVOC-SP",
        features=REGIONS,
        task=Task("node", 21, "weighted_cross_entropy", "macro_f1", classes=21),
        train=8_498,
        validation=1_428,
        test=1_429,
        mean_nodes=479.40,
        mean_edges=2_710.48,
        names=VOC_CLASSES,
    ),
    "coco-sp": Benchmark(
        title="COCO-SP",
        features=REGIONS,
        task=Task("node", 81, "weighted_cross_entropy", "macro_f1", classes=81),
        train=113_286,
        validation=5_000,
        test=5_000,
        mean_nodes=476.88,
        mean_edges=2_693.67,
    ),
    "pcqm-contact": Benchmark(
        title="PCQM-Contact",
        features=MOLECULES,
        task=Task("link", 0, "link_cross_entropy", "mrr"),
        train=476_490,
        validation=26_472,
        test=26_472,
        mean_nodes=30.14,
        mean_edges=61.09,
    ),
    "malnet-tiny": Benchmark(
        title="MalNet-Tiny",
        # call graphs carry no features; the five columns are the local degree profile
        features=Features("numbers", 5),
        task=Task("graph", 5, "cross_entropy", "accuracy", classes=5),
        train=3_500,
        validation=500,
        test=1_000,
        mean_nodes=1_410.3,
        mean_edges=2_859.9,
        names=MALWARE,
    ),
    "cifar10": Benchmark(
        title="CIFAR10",
        features=Features("numbers", 5, "numbers", 1),
        task=Task("graph", 10, "cross_entropy", "accuracy", classes=10),
        train=45_000,
        validation=5_000,
        test=10_000,
        mean_nodes=117.6,
        mean_edges=941.2,
        names=CIFAR_CLASSES,
    ),
    "mnist": Benchmark(
        title="MNIST",
        features=Features("numbers", 3, "numbers", 1),
        task=Task("graph", 10, "cross_entropy", "accuracy", classes=10),
        train=55_000,
        validation=5_000,
        test=10_000,
        mean_nodes=70.6,
        mean_edges=564.5,
    ),
    "cluster": Benchmark(
        title="CLUSTER",
        features=Features("numbers", 7),
        task=Task("node", 6, "weighted_cross_entropy", "accuracy_sbm", classes=6),
        train=10_000,
        validation=1_000,
        test=1_000,
        mean_nodes=117.2,
        mean_edges=4_303.9,
    ),
    "pattern": Benchmark(
        title="PATTERN",
        features=Features("numbers", 3),
        # one logit for two classes: a node is in the pattern or not
        task=Task("node", 1, "weighted_binary_cross_entropy", "accuracy_sbm", classes=2),
        train=10_000,
        validation=2_000,
        test=2_000,
        mean_nodes=118.9,
        mean_edges=6_098.9,
        names=("host", "pattern"),
    ),
}


def features_in_words(features: Features) -> str:
    """Say what nodes and edges carry."""
    nodes = _counted(features.node_columns, "number") + " per node"
    edges = _counted(features.edge_columns, "number") + " per edge"
    return ", ".join(
        [
            "atoms of molecules" if features.nodes == "atoms" else nodes,
            "bonds" if features.edges == "bonds" else edges,
        ]
    )


def task_in_words(task: Task) -> str:
    """Say what is predicted of what, and how it is scored."""
    if task.level == "link":
        return f"pairs of nodes by {task.metric}"
    answers = "label" if task.metric == "average_precision" else "target"
    labels = f"{task.classes} classes" if task.classes else _counted(task.outputs, answers)
    return f"{labels} of a {task.level} by {task.metric}"


def _counted(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
