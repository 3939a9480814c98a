"""What others report, as data: a score of each data set for each model that has a config.

The tables are those of the papers, row for row; a missing deviation means one run, or a paper
that gives none.
"""

from dataclasses import dataclass

from graphmamba.training.experiment import PRESETS, Experiment, load_experiment

SETS = (
    "peptides-func", "peptides-struct", "pascalvoc-sp", "coco-sp", "malnet-tiny",
    "cifar10", "mnist", "cluster", "pattern", "pcqm-contact",
)  # fmt: skip
"""Columns of the tables below: the paper's long-range table, then its second one."""

GRAPH_MAMBA = "Graph-Mamba paper"
TUNED = '"Where did the gap go?"'
GNN_PLUS = '"Can classic GNNs be strong baselines for graph-level tasks?"'
EXPHORMER = "Exphormer paper"
GRAPH_GPS = "GraphGPS paper"


@dataclass(frozen=True)
class Score:
    """A reported test score, in the metric of its data set."""

    mean: float
    std: float | None
    source: str
    """The paper."""

    def __str__(self) -> str:
        spread = "" if self.std is None else f" ± {self.std:.4f}"
        return f"{self.mean:.4f}{spread}"


Cells = tuple[tuple[float, float] | float | None, ...]

PAPER_ROWS: dict[str, Cells] = {
    "gcn": (
        (0.5930, 0.0023), (0.3496, 0.0013), (0.1268, 0.0060), (0.0841, 0.0010), 0.8100,
        (0.5571, 0.0038), (0.9071, 0.0021), (0.6850, 0.0097), (0.7189, 0.0033), (0.3234, 0.0006),
    ),
    "gin": (
        (0.5498, 0.0079), (0.3547, 0.0045), (0.1265, 0.0076), (0.1339, 0.0044), (0.8898, 0.0055),
        (0.5526, 0.0152), (0.9649, 0.0025), (0.6472, 0.0155), (0.8539, 0.0013), (0.3180, 0.0027),
    ),
    "gatedgcn": (
        (0.5864, 0.0077), (0.3420, 0.0013), (0.2873, 0.0219), (0.2641, 0.0045), (0.9223, 0.0065),
        (0.6731, 0.0031), (0.9734, 0.0014), (0.7384, 0.0032), (0.8557, 0.0008), (0.3218, 0.0011),
    ),
    # it ran out of memory on MalNet-Tiny
    "gps-transformer": (
        (0.6575, 0.0049), (0.2510, 0.0015), (0.3689, 0.0131), (0.3774, 0.0150), None,
        (0.7226, 0.0031), (0.9811, 0.0011), (0.7799, 0.0017), (0.8664, 0.0011), (0.3442, 0.0009),
    ),
    "gps-performer": (
        (0.6475, 0.0056), (0.2558, 0.0012), (0.3724, 0.0131), (0.3761, 0.0101), (0.9264, 0.0078),
        (0.7067, 0.0033), (0.9834, 0.0003), (0.7829, 0.0004), (0.8334, 0.0029), (0.3437, 0.0005),
    ),
    "gps-bigbird": (
        (0.5854, 0.0079), (0.2842, 0.0130), (0.2762, 0.0069), (0.2622, 0.0008), (0.9234, 0.0034),
        (0.7048, 0.0010), (0.9817, 0.0001), (0.7746, 0.0002), (0.8600, 0.0014), (0.3391, 0.0002),
    ),
    "exphormer": (
        (0.6258, 0.0092), (0.2512, 0.0025), (0.3446, 0.0064), (0.3430, 0.0108), (0.9422, 0.0024),
        (0.7413, 0.0050), (0.9843, 0.0004), (0.7802, 0.0011), (0.8670, 0.0003), (0.3587, 0.0025),
    ),
    "graph-mamba": (
        (0.6739, 0.0087), (0.2478, 0.0016), (0.4191, 0.0126), (0.3960, 0.0175), (0.9340, 0.0027),
        (0.7370, 0.0034), (0.9842, 0.0008), (0.7680, 0.0036), (0.8671, 0.0005), (0.3395, 0.0013),
    ),
}  # fmt: skip
TUNED_ROWS: dict[str, Cells] = {
    "gcn-tuned": (
        (0.6860, 0.0050), (0.2460, 0.0007), (0.2078, 0.0031), (0.1338, 0.0007), None,
        None, None, None, None, None,
    ),
    "gine-tuned": (
        (0.6621, 0.0067), (0.2473, 0.0017), (0.2718, 0.0054), (0.2125, 0.0009), None,
        None, None, None, None, None,
    ),
    "gatedgcn-tuned": (
        (0.6765, 0.0047), (0.2477, 0.0009), (0.3880, 0.0040), (0.2922, 0.0018), None,
        None, None, None, None, None,
    ),
    "gps-transformer-tuned": (
        (0.6534, 0.0091), (0.2509, 0.0014), (0.4440, 0.0065), (0.3884, 0.0055), None,
        None, None, None, None, (0.3498, 0.0005),
    ),
}  # fmt: skip
TABLES: tuple[tuple[dict[str, Cells], str], ...] = (
    (PAPER_ROWS, GRAPH_MAMBA),
    (TUNED_ROWS, TUNED),
    ({"gcn-plus": (
        (0.7261, 0.0067), None, None, None, None,
        None, None, None, None, None,
    )}, GNN_PLUS),
    ({"exphormer-upstream": (
        0.6527, 0.2481, 0.3975, 0.3455, None,
        None, None, None, None, 0.3637,
    )}, EXPHORMER),
    ({"gps-transformer-upstream": (
        0.6535, 0.2500, 0.3748, 0.3412, None,
        None, None, None, None, 0.3337,
    )}, GRAPH_GPS),
)  # fmt: skip
SAME_ROW = {"gine": "gin"}
"""The GIN of the long-range sets reads edges; its config is named after that."""


def _score(cell: tuple[float, float] | float, source: str) -> Score:
    return Score(*cell, source) if isinstance(cell, tuple) else Score(cell, None, source)


PUBLISHED: dict[str, Score] = {
    f"{benchmark}/{model}": _score(cell, source)
    for rows, source in TABLES
    for model, cells in rows.items()
    for benchmark, cell in zip(SETS, cells, strict=True)
    if cell is not None
}
"""Scores by `BENCHMARK/MODEL`."""


def published(benchmark: str, model: str) -> Score | None:
    """Find what is reported for a model on a data set; None where nothing is."""
    return PUBLISHED.get(f"{benchmark}/{SAME_ROW.get(model, model)}")


def reported_for(experiment: Experiment) -> Score | None:
    """Find what is reported for this model on this set; None for other models and other data."""
    if experiment.data is not None or experiment.split_sizes is not None:
        return None
    for file in sorted((PRESETS / experiment.dataset).glob("*.yaml")):
        listed = load_experiment(file)
        score = published(experiment.dataset, file.stem)
        same = all(
            getattr(listed, part) == getattr(experiment, part)
            for part in ("encoder", "model", "head")
        )
        if same and score is not None:
            return score
    return None
