"""Evaluation of a split; scores do not depend on the number of processes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Batch

from graphmamba.checks import check_least
from graphmamba.data.batch import column, topology_of
from graphmamba.data.catalog import Level, LossName, MetricName
from graphmamba.data.datasets.pcqm_contact import with_negatives
from graphmamba.data.neighbor_sampling import SEEDS
from graphmamba.data.sampler import Ids
from graphmamba.data.splits import SPLITS
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.data.tables import LINKS, NODE_SPLIT, PAIR_SPLIT, boundaries
from graphmamba.errors import UserError
from graphmamba.nn.model import GraphMamba
from graphmamba.ops.random import draw_bits
from graphmamba.training.cuda_graph import CapturedForward
from graphmamba.training.distributed import ProcessGroup, allow_tf32
from graphmamba.training.experiment import Experiment, Precision
from graphmamba.training.losses import Links, Objective, Target, check_fits
from graphmamba.training.metrics import make_metrics, mean_loss


def evaluate(
    model: GraphMamba,
    store: GraphStore,
    split: str | Ids,
    *,
    batch_size: int = 128,
    loss: LossName | Objective | None = None,
    metrics: Sequence[MetricName] = (),
    precision: Precision = "32-true",
    team: ProcessGroup | None = None,
    on_batch: Callable[[int, int], None] | None = None,
    predict: Callable[[Ids], tuple[Float[Tensor, "_ _"], Target]] | None = None,
) -> dict[str, float]:
    """Score a model on a split: `loss`, then metrics, beginning with the one that selects models.

    The model runs in evaluation mode, in which outputs are averaged over `eval_samples` node orders
    and no random numbers of torch's generators are used.

    Args:
        model: On the store's device.
        store: Graphs with the columns that the model reads.
        split: `train`, `validation` or `test`, or the indices of the graphs.
        batch_size: Graphs per batch.
        loss: Name of the loss, or the `Objective` of the training, which also has the units of the
            outputs; None takes the loss of the task.
        metrics: What to report beside the metric of the task.
        precision: `bf16-mixed` for autocast to bfloat16.
        team: All processes, which share the batches.
        on_batch: Called with the number of finished batches, and of all.
        predict: Returns predictions and labels of a batch, instead of the model.
    """
    check_least("batch_size", batch_size, 1)
    team = team or ProcessGroup(device=store.device)
    ids = store.split_ids(split) if isinstance(split, str) else split
    if not len(ids):
        raise UserError(f"split must hold graphs, got none in '{split}'")
    task = model.task
    objective = loss if isinstance(loss, Objective) else Objective(loss or task.loss)
    check_fits("loss", objective.loss, task)
    objective = objective.to(store.device)
    names = tuple(dict.fromkeys([task.metric, *metrics]))
    collected, losses = make_metrics(task, names), mean_loss()
    name_of_split = split if isinstance(split, str) else None
    counts = labels_per_graph(store, task.level, name_of_split)
    batches = list(enumerate(ids.cpu().split(batch_size)))[team.rank :: team.world]
    is_mixed = precision == "bf16-mixed"
    with torch.no_grad(), evaluating(model):
        for done, (number, chosen) in enumerate(batches, start=1):
            if predict is not None:
                prediction, target = predict(chosen)
            else:
                counters = number, int(chosen[0])
                graphs, target = labelled_batch(store, chosen, task.level, counters, name_of_split)
                # as a step has it, for which compiled parts are made
                with torch.autocast(
                    store.device.type, torch.bfloat16, is_mixed, cache_enabled=False
                ):
                    prediction = labelled_rows(model(graphs).float(), graphs)
            for metric in collected:
                metric.update(objective.in_units(prediction), target)
            losses.update(objective.reported(prediction, target), int(counts[chosen].sum()))
            if on_batch:
                on_batch(done, len(batches))
    found: dict[str, float] = {}
    for metric in (*collected, losses):
        metric.merge(team.gather(metric.state()))
        found |= metric.compute()
    return {name: found[name] for name in dict.fromkeys(["loss", *names, *found])}


@contextmanager
def evaluating(model: GraphMamba) -> Iterator[None]:
    """Evaluation mode inside; the earlier mode is restored on exit."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@dataclass
class Scorer:
    """Scores splits of a store; deterministic for given weights, device and batches.

    Node orders follow the seed in the model's buffers and the index of each graph; torch's random
    generators are not used.
    """

    model: GraphMamba
    """On the store's device."""
    store: GraphStore
    """Graphs with the columns that the model reads."""
    experiment: Experiment
    """Loss and batch size."""
    precision: Precision = "32-true"
    is_captured: bool = False
    """Whether batches run as CUDA graphs, whose padded shapes are rounded differently."""
    team: ProcessGroup | None = None
    """All processes; None for this one."""
    tf32: bool | None = None
    """Whether matrix products on a GPU use TF32; None for the current setting."""
    _forwards: dict[str, CapturedForward] = field(default_factory=dict, init=False, repr=False)
    _stream: torch.cuda.Stream | None = field(default=None, init=False, repr=False)

    def score(
        self, split: str | Ids, on_batch: Callable[[int, int], None] | None = None
    ) -> dict[str, float]:
        """Return `loss`, then metrics, beginning with the one that selects models."""
        with allow_tf32(self.store.device, self.tf32):
            forward = self._forward(split) if self.is_captured else None
            return evaluate(
                self.model,
                self.store.scored,
                split,
                batch_size=self.experiment.train.batch_size,
                loss=self.experiment.objective(),
                metrics=self.experiment.metrics,
                precision=self.precision,
                team=self.team,
                on_batch=on_batch,
                predict=forward.predict if forward else None,
            )

    def dry_run(self, splits: Sequence[str]) -> None:
        """Run the captured batches of these splits once per size, for `collected_kernels`."""
        with allow_tf32(self.store.device, self.tf32), evaluating(self.model):
            for split in splits:
                self._forward(split).dry_run()

    def _forward(self, split: str | Ids) -> CapturedForward:
        """Forward pass of a split, captured once; other graphs are captured each time."""
        if isinstance(split, str) and split in self._forwards:
            return self._forwards[split]
        ids = self.store.split_ids(split) if isinstance(split, str) else split
        size = self.experiment.train.batch_size
        self._stream = self._stream or torch.cuda.Stream(self.store.device)
        forward = CapturedForward(self.model, self.store, ids, size, self.precision, self._stream)
        if isinstance(split, str):
            self._forwards[split] = forward
        return forward


TABLES: dict[Level, str] = {"graph": "graphs", "node": "nodes", "link": PAIRS + LINKS}
"""Table with the labels of each level."""
Counter = int | Int[Tensor, ""]


ROWS = "labelled_rows"
"""Column of a batch with the nodes of the split, where splits share graphs."""
ROW_SPLITS: dict[Level, str] = {"node": NODE_SPLIT, "link": PAIR_SPLIT}
"""Columns with the split of each labelled row, where splits share graphs."""


def labelled_batch(
    store: GraphStore,
    ids: Ids,
    level: Level,
    counters: Sequence[Counter],
    split: str | None = None,
) -> tuple[Batch, Target]:
    """Return a batch of graphs and its labels.

    Negative pairs are sampled by the counters. Where splits share graphs, only rows of `split` are
    labelled.
    """
    graphs = store.batch(ids, by_source=True)
    return graphs, labels_of(graphs, level, counters, split)


def labels_of(
    graphs: Batch, level: Level, counters: Sequence[Counter], split: str | None = None
) -> Target:
    """Return the labels of a batch; for links, sampled negative pairs are added to the batch."""
    rows, number = column(graphs, SEEDS), column(graphs, ROW_SPLITS.get(level, ""))
    if rows is None and number is not None and split is not None:
        rows = (number == SPLITS[split]).nonzero().squeeze(1)
    if level != "link":
        if level == "graph" or rows is None:
            return graphs.y
        graphs[ROWS] = rows
        return graphs.y[rows]
    if rows is not None:
        graphs[LINKS], graphs.edge_label = graphs[LINKS][:, rows], graphs.edge_label[rows]
    topology = topology_of(graphs)
    # pairs to learn are right ones where splits share a graph, and meet new wrong ones
    if column(graphs, "edge_label") is None or (number is not None and split == "train"):
        stream = torch.zeros((), dtype=torch.int64, device=graphs.ptr.device)
        for counter in counters:
            stream = draw_bits(stream, counter)
        real = column(graphs, "num_real_nodes")
        pairs, label = with_negatives(graphs[LINKS], graphs.ptr, stream, real)
        if number is not None:
            # a wrong pair that happens to be an edge or a self-loop has no label
            edges, nodes = graphs.edge_index, graphs.num_nodes
            is_edge = torch.isin(pairs[0] * nodes + pairs[1], edges[0] * nodes + edges[1])
            is_none = (label == 0) & (is_edge | (pairs[0] == pairs[1]))
            label = label.masked_fill(is_none, torch.nan)
        graphs[LINKS], graphs.edge_label = pairs, label
    known = None if number is None else graphs.edge_index
    label = graphs.edge_label.float()
    return Links(graphs[LINKS], label, topology.batch, topology.num_graphs, known)


def labelled_rows(prediction: Float[Tensor, "_ _"], graphs: Batch) -> Float[Tensor, "_ _"]:
    """Predictions of the labelled rows of a batch, as `labels_of` chose them."""
    rows = column(graphs, ROWS)
    return prediction if rows is None else prediction[rows]


def labels_per_graph(store: GraphStore, level: Level, split: str | None = None) -> Ids:
    """Number of labels per graph, on the CPU: what losses are divided by.

    A class is one label, a row of targets as many as are known. Sampled negative pairs do not
    count, since each positive one has the same number, except in very small graphs.

    Where splits share graphs, rows of `split` count; all rows if None.
    """
    if TABLES[level] not in store.tables:
        raise UserError(f"graphs must have pairs '{LINKS}' to score links, got none")
    table, name = store.tables[TABLES[level]], "edge_label" if level == "link" else "y"
    ptr = store.item_ptr(TABLES[level])
    if name not in table.columns:
        if level == "link":
            return ptr.diff()
        raise UserError(f"graphs must have labels '{name}' for each {level}, got none")
    values, row_split = table.given(name), ROW_SPLITS.get(level, "")
    is_known = ~values.isnan() if values.is_floating_point() else values >= 0
    counts = is_known.long() if is_known.dim() == 1 else is_known.flatten(1).sum(dim=1)
    if split is not None and row_split in table.columns:
        counts = counts * (table.given(row_split) == SPLITS[split])
    # On the device but for the result: rows are many, graphs are few.
    ends = boundaries(counts)
    return ends[ptr.to(ends.device)].diff().cpu()
