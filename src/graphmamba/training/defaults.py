"""Defaults for custom graphs: model, optimizer and training chosen by the data.

`default_entries` holds all rules. Options given by the user override them; the resulting experiment
is stored with the run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor

from graphmamba.checks import check_choice
from graphmamba.data.catalog import Features, Level, Task
from graphmamba.data.custom.options import DataSource
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import PAIR_SPLIT
from graphmamba.errors import UserError
from graphmamba.training.experiment import Experiment, experiment_of

Size = Literal["auto", "tiny", "small", "base", "500k"]
SIZES: dict[Size, tuple[int, int]] = {"tiny": (32, 2), "small": (64, 3), "base": (128, 4)}
"""Width and depth."""
MANY_LABELS = 20_000
"""Training labels from which on `auto` is the base size."""
MOST_PARAMETERS = 500_000
"""Of `--size 500k`."""
BATCH_SIZES = ((20_000, 128), (2_000, 64), (0, 32))
"""Least number of training graphs, and the batch size from there on."""
HOMOPHILOUS = 0.4
"""Adjusted homophily above which GCN is chosen, which averages a node with its neighbours."""
LEAST_EDGES = 100
"""Least number of edges between labelled nodes for an estimate of homophily."""
WORD_COLUMNS, WORD_SHARE = 100, 0.1
"""Least number of columns of a bag of words, and largest share of non-zero entries."""


@dataclass(frozen=True)
class DataFacts:
    """The facts about the data that the defaults depend on."""

    level: Level
    """What is predicted: graphs, nodes or links."""
    features: Features
    """Columns of nodes and edges."""
    graphs: int
    """Training graphs."""
    labels: int
    """Labelled training rows."""
    is_regression: bool
    """Whether the task is regression."""
    is_single: bool
    """Whether there is a single graph, split by nodes or edges."""
    is_bag_of_words: bool = False
    """Whether node features are sparse counts of many words."""
    is_featureless: bool = False
    """Whether all nodes have the same features."""
    homophily: float | None = None
    """Adjusted homophily of labelled edges of a single graph; None where too few are labelled."""


def facts_of(store: GraphStore, features: Features, task: Task) -> DataFacts:
    """Collect the facts from the training split."""
    ids = store.split_ids("train")
    nodes, level = store.tables["nodes"].columns, task.level
    node_split = nodes["node_split"].values if "node_split" in nodes else None
    is_single = len(store) == 1 or node_split is not None
    batch = store.batch(ids[:1] if is_single else ids)
    labels = batch.get("y", batch.get("edge_label"))
    homophily = None
    known = torch.ones(len(batch.x) if labels is None else len(labels), dtype=torch.bool)
    if labels is not None:
        known = _is_known(labels)
    if level == "node" and node_split is not None and labels is not None:
        split = batch.node_split
        if task.classes and is_single:
            for last in ("train", "validation"):  # labels of validation where others are too few
                seen = known & (split <= SPLITS[last])
                if _labelled_edges(batch.edge_index, seen).shape[1] >= LEAST_EDGES:
                    homophily = adjusted_homophily(batch.edge_index, labels.masked_fill(~seen, -1))
                    break
        known = known & (split == SPLITS["train"])
    if level == "link" and PAIR_SPLIT in batch:
        known = known & (batch[PAIR_SPLIT] == SPLITS["train"])
    return DataFacts(
        level=level,
        features=features,
        graphs=len(ids),
        labels=int(known.sum()),
        is_regression=task.kind == "regression",
        is_single=is_single,
        is_bag_of_words=features.nodes == "numbers" and is_bag_of_words(batch.x),
        is_featureless=features.nodes == "numbers" and bool((batch.x == batch.x[:1]).all()),
        homophily=homophily,
    )


def _is_known(labels: Tensor) -> Tensor:
    is_known = ~labels.isnan() if labels.is_floating_point() else labels >= 0
    return is_known if is_known.dim() == 1 else is_known.any(dim=1)


def _labelled_edges(edge_index: Int[Tensor, "2 edges"], seen: Tensor) -> Int[Tensor, "2 labelled"]:
    return edge_index[:, seen[edge_index].all(dim=0)]


def is_bag_of_words(x: Float[Tensor, "nodes columns"]) -> bool:
    """Whether features look like bags of words: many columns, sparse, not negative."""
    if x.shape[1] < WORD_COLUMNS or not x.numel():
        return False
    return bool((x >= 0).all()) and float((x != 0).float().mean()) < WORD_SHARE


def adjusted_homophily(edge_index: Int[Tensor, "2 edges"], labels: Int[Tensor, " nodes"]) -> float:
    r"""Share of edges within a class, corrected for that of random edges of the same degrees.

    .. math:: h = \frac{h_{edge} - \sum_k p_k^2}{1 - \sum_k p_k^2}

    with :math:`p_k` the share of edge ends in class k: https://arxiv.org/abs/2209.06177. 1 if all
    edges are within a class, 0 for random edges, below 0 if edges prefer other classes.

    Args:
        edge_index: Edges; those without a label at both ends do not count.
        labels: Class of each node, below 0 where it has none.
    """
    ends = labels[_labelled_edges(edge_index, labels >= 0)]  # [2, edges]
    share = ends.flatten().bincount().double() / max(ends.numel(), 1)
    by_chance = float(share.square().sum())
    if not ends.numel() or by_chance == 1.0:
        return 0.0
    return (float((ends[0] == ends[1]).double().mean()) - by_chance) / (1.0 - by_chance)


def default_entries(facts: DataFacts, size: Size = "auto") -> tuple[dict[str, object], str]:
    """Choose model, optimizer and training by the data.

    Args:
        facts: About the data.
        size: Width and depth; `500k` gives those of the base size.

    Returns:
        Entries of an experiment by dotted key, and the reason in a few words.
    """
    if size == "auto":
        size = "base" if facts.labels >= MANY_LABELS else "small"
    channels, layers = SIZES.get(size, SIZES["base"])
    entries: dict[str, object] = {
        "model.input_norm": "layer",  # without it the scan answers large inputs with larger ones
        "encoder.normalize_inputs": "bag_of_words" if facts.is_bag_of_words else "train",
        "optim.max_grad_norm": 1.0,
    }
    if facts.is_regression:
        entries["train.loss"] = "mse"
    told_nodes = ""
    if facts.is_featureless:
        entries |= {
            "encoder.normalize_inputs": "train",
            "encoder.has_degree": True,
            "encoder.random_walk.channels": channels // 4,
        }
        told_nodes = "; degree and random walks for nodes without features"
    if not facts.is_single:
        described = facts.features.graph_columns
        told_graphs = f", averaged with {described} descriptors of each graph" if described else ""
        batch = next(size for least, size in BATCH_SIZES if facts.graphs >= least)
        steps = -(-facts.graphs // batch)
        epochs = min(max(3_000 // steps, 20), 100)
        return entries | {
            "model.layer": "gps",
            "model.local_model": "gatedgcn",
            "model.channels": channels,
            "model.layers": layers,
            "model.norm": "batch",
            "model.dropout": 0.1,
            "model.mamba.out_scale": 0.1,
            "optim.lr": 1e-3,
            "optim.weight_decay": 1e-2,
            "optim.warmup_steps": max(steps * epochs // 20, 1),
            "train.batch_size": batch,
            "train.epochs": epochs,
            "train.early_stopping": max(epochs // 4, 10),
        }, f"separate graphs: GatedGCN beside Mamba{told_nodes}{told_graphs}"
    single: dict[str, object] = {
        "encoder.has_edges": False,
        "model.layer": "residual",
        "model.mamba.out_scale": 0.0,
        "model.ordering.eval_samples": 1,
        "optim.warmup_steps": 10,
    }
    if facts.homophily is not None and facts.homophily > HOMOPHILOUS:
        return entries | single | {
            "encoder.input_dropout": 0.6,
            "model.local_model": "gcn",
            "model.channels": 2 * channels,
            "model.layers": 2,
            "model.dropout": 0.6,
            "model.residual.norm": "none",
            "model.residual.has_residual": False,
            "optim.optimizer": "adam",
            "optim.lr": 3e-3,
            "optim.weight_decay": 1e-2,
            "train.epochs": 80,
            "train.early_stopping": 30,
        }, (
            f"one graph, adjusted homophily {facts.homophily:.2f}: GCN beside Mamba, no residual"
            f"{told_nodes}"
        )
    told = "unknown"
    if facts.homophily is not None:
        told = f"{facts.homophily:.2f}"
    return entries | single | {
        "encoder.has_degree": facts.features.nodes == "numbers" and not facts.is_bag_of_words,
        "model.local_model": "sage",
        "model.channels": channels,
        "model.layers": layers + 1,
        "model.dropout": 0.2,
        "model.residual.norm": "batch",
        "model.residual.has_residual": True,
        "optim.lr": 3e-3,
        "optim.weight_decay": 1e-2,
        "train.epochs": 100,
        "train.early_stopping": 30,
    }, f"one graph, adjusted homophily {told}: SAGE beside Mamba, residuals{told_nodes}"


def default_experiment(
    data: DataSource,
    store: GraphStore,
    size: Size = "auto",
    given: Mapping[str, object] | None = None,
) -> Experiment:
    """Make the experiment for custom graphs; its `chosen` says what was chosen and why.

    Args:
        data: Source of the graphs, with their features and labels.
        store: The graphs, with their splits.
        size: As in `default_entries`.
        given: Options of the user by dotted key, which override the defaults.
    """
    check_choice("size", size, get_args(Size))
    if data.features is None or data.labels is None:
        raise UserError("data must have been read before defaults are chosen, got none of it")
    facts = facts_of(store, data.features, data.labels)
    entries, why = default_entries(facts, size)
    experiment = replace(experiment_of(entries | dict(given or {})), data=data)
    if size == "500k" and "model.channels" not in (given or {}):
        experiment = _widest(experiment)
    chosen = _in_words(experiment, facts, why)
    if replaced := [key for key in given or {} if key in entries]:
        chosen += f"\n          given instead of the defaults: {', '.join(replaced)}"
    return replace(experiment, chosen=chosen)


def _widest(experiment: Experiment) -> Experiment:
    """Take the largest width, a multiple of 8, with at most 500,000 parameters."""
    narrow = experiment.encoder.position_channels + 8
    fitting = replace(experiment, model=replace(experiment.model, channels=narrow))
    for channels in range(narrow, 1025, 8):
        wider = replace(experiment, model=replace(experiment.model, channels=channels))
        if _parameters(wider) > MOST_PARAMETERS:
            break
        fitting = wider
    if (found := _parameters(fitting)) > MOST_PARAMETERS:
        raise UserError(
            f"size must be another than '500k' for these graphs: their features alone take "
            f"{found:,} parameters"
        )
    return fitting


def _parameters(experiment: Experiment) -> int:
    return sum(each.numel() for each in experiment.outline().parameters())


def _in_words(experiment: Experiment, facts: DataFacts, why: str) -> str:
    model, optim, train = experiment.model, experiment.optim, experiment.train
    inputs: dict[Any, str] = {"train": "standardised", "bag_of_words": "bags of words, scaled"}
    scaled = inputs.get(experiment.encoder.normalize_inputs, "as they are")
    if facts.features.edges != "none" and not experiment.encoder.has_edges:
        scaled += ", those of edges unused"
    return (
        f"defaults: {why}; {model.channels} channels x {model.layers} layers, "
        f"{_parameters(experiment):,} parameters for {facts.labels:,} training labels\n"
        f"          inputs {scaled}; dropout {model.dropout}, {optim.optimizer} lr {optim.lr:g}, "
        f"weight decay {optim.weight_decay:g}; at most {train.epochs} epochs, "
        f"patience {train.early_stopping}"
    )
