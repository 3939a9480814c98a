"""The ten benchmarks of the paper: features, tasks and sizes, as a table."""

from dataclasses import dataclass
from typing import Literal, get_args

from graphmamba.checks import check_choice, check_least, check_types
from graphmamba.errors import UserError

NodeKind = Literal["atoms", "numbers"]
"""`atoms` are the nine integer columns of OGB, `numbers` any columns of floats."""
EdgeKind = Literal["bonds", "numbers", "none"]
"""`bonds` are the three integer columns of OGB; `none` is a set without edge features."""
Level = Literal["graph", "node", "link"]
TaskKind = Literal["classes", "regression", "multi-label"]  # kinds of labels of graphs and nodes
PredictionKind = Literal["classes", "regression", "multi-label", "link"]
LossName = Literal[
    "cross_entropy", "binary_cross_entropy", "focal", "l1", "mse", "huber",
    "weighted_cross_entropy", "weighted_binary_cross_entropy", "link_cross_entropy", "link_l1",
]  # fmt: skip
MetricName = Literal[
    "accuracy", "balanced_accuracy", "accuracy_sbm", "macro_f1", "micro_f1", "weighted_f1", "mcc",
    "roc_auc", "average_precision", "log_loss",
    "mean_absolute_error", "rmse", "r2", "spearman",
    "mrr", "hits@1", "hits@3", "hits@10",
    "mrr_filtered", "hits@1_filtered", "hits@3_filtered", "hits@10_filtered",
    "mrr_extended", "hits@1_extended", "hits@3_extended", "hits@10_extended",
]  # fmt: skip
LOSSES_OF: dict[PredictionKind, tuple[LossName, ...]] = {
    "classes": ("cross_entropy", "weighted_cross_entropy", "focal"),
    "multi-label": ("binary_cross_entropy", "focal"),
    "regression": ("l1", "mse", "huber"),
    "link": ("link_cross_entropy", "link_l1"),
}
"""Losses for each kind of labels."""
SINGLE: tuple[LossName, ...] = ("weighted_binary_cross_entropy",)
"""Losses of two classes with one logit."""
METRICS_OF: dict[PredictionKind, tuple[MetricName, ...]] = {
    "classes": (
        "accuracy", "balanced_accuracy", "macro_f1", "micro_f1", "weighted_f1", "mcc", "roc_auc",
        "average_precision", "log_loss",
    ),
    "multi-label": ("average_precision", "roc_auc", "macro_f1", "micro_f1", "log_loss"),
    "regression": ("mean_absolute_error", "rmse", "r2", "spearman"),
    "link": (
        *(name for name in get_args(MetricName) if name.startswith(("mrr", "hits@"))),
        "roc_auc", "average_precision",
    ),
}  # fmt: skip
"""Metrics for each kind of labels."""
ATOM_VOCABULARY = (119, 5, 12, 12, 10, 6, 6, 2, 2)
"""Values of each atom column of OGB: number, chirality, degree, charge, hydrogens, radicals,
hybridisation, aromatic, in a ring; catch-all entries included."""
BOND_VOCABULARY = (5, 6, 2)  # values of each bond column of OGB: type, stereo, conjugated


@dataclass(frozen=True)
class Features:
    """The features of nodes, edges and graphs of a data set."""

    nodes: NodeKind = "numbers"
    node_columns: int = 1
    edges: EdgeKind = "none"
    edge_columns: int = 0
    graph_columns: int = 0
    """Number of descriptors of a graph in `graph_attr`, such as those of a molecule."""

    def __post_init__(self) -> None:
        check_types(self)
        check_least("graph_columns", self.graph_columns, 0)
        fixed = {"atoms": len(ATOM_VOCABULARY), "bonds": len(BOND_VOCABULARY), "none": 0}
        for name, kind, columns in (
            ("node_columns", self.nodes, self.node_columns),
            ("edge_columns", self.edges, self.edge_columns),
        ):
            if columns != fixed.get(kind, max(columns, 1)):
                rule = fixed.get(kind, "1 at least")
                raise UserError(f"{name} must be {rule} for {kind!r}, got {columns}")


KIND_TITLES: dict[PredictionKind, str] = {
    "classes": "classification",
    "multi-label": "multi-label classification",
    "regression": "regression",
    "link": "prediction",
}


@dataclass(frozen=True)
class Task:
    """What is predicted, with loss and metric."""

    level: Level
    outputs: int
    """Width of the output; 0 for links, whose output is an embedding."""
    loss: LossName
    metric: MetricName
    classes: int = 0
    """Number of classes; 0 if labels are not classes."""

    def __post_init__(self) -> None:
        check_types(self)
        if self.classes == 1 or self.classes < 0:
            raise UserError(f"classes must be 0, or 2 at least, got {self.classes}")
        kind, told = self.kind, self.in_words
        check_choice(f"loss of {told}", self.loss, self.losses)
        # the name that papers have for balanced accuracy on CLUSTER and PATTERN
        if not (kind == "classes" and self.metric == "accuracy_sbm"):
            check_choice(f"metric of {told}", self.metric, self.metrics)
        if kind == "classes":
            outputs = 1 if self.loss in SINGLE else self.classes
            check_choice(f"outputs of {self.loss}", self.outputs, (outputs,))
        else:
            check_least("outputs", self.outputs, 0 if kind == "link" else 1)

    @property
    def kind(self) -> PredictionKind:
        """Kind of the labels."""
        if self.level == "link":
            return "link"
        if self.classes:
            return "classes"
        return "multi-label" if self.loss in LOSSES_OF["multi-label"] else "regression"

    @property
    def losses(self) -> tuple[LossName, ...]:
        """Losses that fit."""
        return SINGLE if self.classes == 2 and self.outputs == 1 else LOSSES_OF[self.kind]  # noqa: PLR2004

    @property
    def metrics(self) -> tuple[MetricName, ...]:
        """Metrics that fit; average precision of classes needs two."""
        found = METRICS_OF[self.kind]
        if self.classes <= 2:  # noqa: PLR2004
            return found
        return tuple(name for name in found if name != "average_precision")

    @property
    def in_words(self) -> str:
        """Such as `node classification`."""
        return f"{self.level} {KIND_TITLES[self.kind]}"


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
    """Mean number of directed edges per graph; an undirected edge counts twice."""
    names: tuple[str, ...] = ()
    """Names of classes, labels or targets in order; empty if they are only numbered."""

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
        train=10_873, validation=2_331, test=2_331,
        mean_nodes=150.94, mean_edges=307.30,
        names=PEPTIDE_FUNCTIONS,
    ),
    "peptides-struct": Benchmark(
        title="Peptides-struct",
        features=MOLECULES,
        task=Task("graph", 11, "l1", "mean_absolute_error"),
        train=10_873, validation=2_331, test=2_331,
        mean_nodes=150.94, mean_edges=307.30,
        names=PEPTIDE_STRUCTURES,
    ),
    "pascalvoc-sp": Benchmark(
        title="PascalVOC-SP",
        features=REGIONS,
        task=Task("node", 21, "weighted_cross_entropy", "macro_f1", classes=21),
        train=8_498, validation=1_428, test=1_429,
        mean_nodes=479.40, mean_edges=2_710.48,
        names=VOC_CLASSES,
    ),
    "coco-sp": Benchmark(
        title="COCO-SP",
        features=REGIONS,
        task=Task("node", 81, "weighted_cross_entropy", "macro_f1", classes=81),
        train=113_286, validation=5_000, test=5_000,
        mean_nodes=476.88, mean_edges=2_693.67,
    ),
    "pcqm-contact": Benchmark(
        title="PCQM-Contact",
        features=MOLECULES,
        task=Task("link", 0, "link_cross_entropy", "mrr"),
        train=476_490, validation=26_472, test=26_472,
        mean_nodes=30.14, mean_edges=61.09,
    ),
    "malnet-tiny": Benchmark(
        title="MalNet-Tiny",
        # call graphs carry no features; the five columns are the local degree profile
        features=Features("numbers", 5),
        task=Task("graph", 5, "cross_entropy", "accuracy", classes=5),
        train=3_500, validation=500, test=1_000,
        mean_nodes=1_410.3, mean_edges=2_859.9,
        names=MALWARE,
    ),
    "cifar10": Benchmark(
        title="CIFAR10",
        features=Features("numbers", 5, "numbers", 1),
        task=Task("graph", 10, "cross_entropy", "accuracy", classes=10),
        train=45_000, validation=5_000, test=10_000,
        mean_nodes=117.6, mean_edges=941.2,
        names=CIFAR_CLASSES,
    ),
    "mnist": Benchmark(
        title="MNIST",
        features=Features("numbers", 3, "numbers", 1),
        task=Task("graph", 10, "cross_entropy", "accuracy", classes=10),
        train=55_000, validation=5_000, test=10_000,
        mean_nodes=70.6, mean_edges=564.5,
    ),
    "cluster": Benchmark(
        title="CLUSTER",
        features=Features("numbers", 7),
        task=Task("node", 6, "weighted_cross_entropy", "accuracy_sbm", classes=6),
        train=10_000, validation=1_000, test=1_000,
        mean_nodes=117.2, mean_edges=4_303.9,
    ),
    "pattern": Benchmark(
        title="PATTERN",
        features=Features("numbers", 3),
        # one logit for two classes: a node is in the pattern or not
        task=Task("node", 1, "weighted_binary_cross_entropy", "accuracy_sbm", classes=2),
        train=10_000, validation=2_000, test=2_000,
        mean_nodes=118.9, mean_edges=6_098.9,
        names=("host", "pattern"),
    ),
}  # fmt: skip


def features_in_words(features: Features) -> str:
    """Describe the features of nodes and edges."""
    nodes = _counted(features.node_columns, "number") + " per node"
    edges = _counted(features.edge_columns, "number") + " per edge"
    told = [
        "atoms of molecules" if features.nodes == "atoms" else nodes,
        "bonds" if features.edges == "bonds" else edges,
    ]
    if features.graph_columns:
        told.append(_counted(features.graph_columns, "number") + " per graph")
    return ", ".join(told)


def task_in_words(task: Task) -> str:
    """Describe the task and its metric."""
    if task.level == "link":
        return f"pairs of nodes by {task.metric}"
    answers = "label" if task.kind == "multi-label" else "target"
    labels = f"{task.classes} classes" if task.classes else _counted(task.outputs, answers)
    return f"{labels} of a {task.level} by {task.metric}"


def _counted(number: int, word: str) -> str:
    return f"{number or 'no'} {word}{'' if number == 1 else 's'}"
