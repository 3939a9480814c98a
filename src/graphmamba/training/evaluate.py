"""Scores of whole splits, to the last bit the same whatever the number of processes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

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
from graphmamba.training.distributed import ProcessGroup, rounded_products
from graphmamba.training.experiment import Experiment, Precision
from graphmamba.training.losses import Links, Objective, Target, check_fits, target_of
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
    """Score a model on a split: `loss`, then the task's metrics, the one to choose by first.

    The model is put into evaluation mode for the time, so that random node orders are averaged over
    as its order asks, and draws nothing from torch's generators.

    Args:
        model: On the store's device.
        store: Graphs with the columns that the model reads.
        split: `train`, `validation` or `test`, or the graphs themselves.
        batch_size: Graphs at a time.
        loss: Which of the losses that fit the task to report, or the objective that the model was
            trained by, which knows the units of its outputs; None takes the task's own loss.
        metrics: What to report beside the metric of the task.
        precision: `bf16-mixed` computes in bfloat16 what bears it.
        team: All processes; each takes every so many of the batches, the same ones as a single
            process would make.
        on_batch: Called with how many batches are done, and of how many.
        predict: What predicts a batch in the model's place, and gives its labels, such as
            `CapturedForward.predict`.
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
    """Put a model into evaluation mode for the time, whatever happens."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@dataclass
class Scorer:
    """Scores splits of a store: same weights, same device and same batches give the same bits.

    Node orders follow the seed in the model's weights and the number of each graph, and batches the
    order of the split, so that nothing is drawn from torch's generators.
    """

    model: GraphMamba
    """On the store's device."""
    store: GraphStore
    """Graphs with the columns that the model reads."""
    experiment: Experiment
    """Loss and batch size."""
    precision: Precision = "32-true"
    is_captured: bool = False
    """Whether batches run as CUDA graphs, whose padded shapes round otherwise."""
    team: ProcessGroup | None = None
    """All processes; None for this one."""
    tf32: bool | None = None
    """Whether products on a GPU round to TF32; None as they do wherever it is asked to score."""
    _forwards: dict[str, CapturedForward] = field(default_factory=dict, init=False, repr=False)
    _stream: torch.cuda.Stream | None = field(default=None, init=False, repr=False)

    def score(
        self, split: str | Ids, on_batch: Callable[[int, int], None] | None = None
    ) -> dict[str, float]:
        """Return `loss`, then the task's metrics, the one to choose by first.

        Args:
            split: `train`, `validation` or `test`, or the graphs themselves.
            on_batch: Called with how many batches are done, and of how many.
        """
        with rounded_products(self.store.device, self.tf32):
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

    def try_all(self, splits: Sequence[str]) -> None:
        """Go through these splits' captured batches once for each size, without scoring them."""
        with rounded_products(self.store.device, self.tf32), evaluating(self.model):
            for split in splits:
                self._forward(split).try_all()

    def _forward(self, split: str | Ids) -> CapturedForward:
        """Capture a split once; graphs that have no name are captured again."""
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
"""Where a store has the labels of each level."""
Counter = int | Int[Tensor, ""]


ROWS = "labelled_rows"
"""Column of a batch with the nodes that count, where others of its graphs are in other splits."""
ROW_SPLITS: dict[Level, str] = {"node": NODE_SPLIT, "link": PAIR_SPLIT}
"""Columns that say which split each labelled row is in, where splits share graphs."""


def labelled_batch(
    store: GraphStore,
    ids: Ids,
    level: Level,
    counters: Sequence[Counter],
    split: str | None = None,
) -> tuple[Batch, Target]:
    """Graphs of a store, and what is right about them.

    Args:
        store: All graphs.
        ids: Those of the batch.
        level: What is labelled.
        counters: What wrong pairs are drawn from, where the store knows right ones only.
        split: Whose nodes or pairs count, where splits share graphs; None for all of them.
    """
    graphs = store.batch(ids, by_source=True)
    return graphs, labels_of(graphs, level, counters, split)


def labels_of(
    graphs: Batch, level: Level, counters: Sequence[Counter], split: str | None = None
) -> Target:
    """Read off what is right about the graphs of a batch; wrong pairs are added to the batch."""
    rows, number = column(graphs, SEEDS), column(graphs, ROW_SPLITS.get(level, ""))
    if rows is None and number is not None and split is not None:
        rows = (number == SPLITS[split]).nonzero().squeeze(1)
    if level == "link":
        if rows is not None:
            graphs[LINKS], graphs.edge_label = graphs[LINKS][:, rows], graphs.edge_label[rows]
        # pairs to learn are right ones where splits share a graph, and meet new wrong ones
        if column(graphs, "edge_label") is None or (number is not None and split == "train"):
            stream = torch.zeros((), dtype=torch.int64, device=graphs.ptr.device)
            for counter in counters:
                stream = draw_bits(stream, counter)
            real = column(graphs, "num_real_nodes")
            pairs, label = with_negatives(graphs[LINKS], graphs.ptr, stream, real)
            if number is not None:
                label = _without_edges(graphs.edge_index, pairs, label, graphs.num_nodes)
            graphs[LINKS], graphs.edge_label = pairs, label
    topology = topology_of(graphs)
    target = target_of(graphs, level, topology.batch, topology.num_graphs)
    if isinstance(target, Links) and number is not None:
        return replace(target, known=graphs.edge_index)
    if level != "node" or rows is None:
        return target
    graphs[ROWS] = rows
    assert isinstance(target, Tensor)
    return target[rows]


def _without_edges(
    edges: Int[Tensor, "2 edges"],
    pairs: Int[Tensor, "2 pairs"],
    label: Float[Tensor, " pairs"],
    nodes: int,
) -> Float[Tensor, " pairs"]:
    """Leave wrong pairs out of account that are edges of the graph after all, or no pairs."""
    is_edge = torch.isin(pairs[0] * nodes + pairs[1], edges[0] * nodes + edges[1])
    return label.masked_fill((label == 0) & (is_edge | (pairs[0] == pairs[1])), torch.nan)


def labelled_rows(prediction: Float[Tensor, "_ _"], graphs: Batch) -> Float[Tensor, "_ _"]:
    """Predictions of the rows that count in a batch, as `labels_of` left them."""
    rows = column(graphs, ROWS)
    return prediction if rows is None else prediction[rows]


def labels_per_graph(store: GraphStore, level: Level, split: str | None = None) -> Ids:
    """Labels of each graph, on the CPU: what losses divide by, and so what batches are weighed by.

    A class is one label, a row of targets as many as are known. Wrong pairs that are drawn do not
    count: each right one has as many, but for a few in graphs that have hardly any.

    Args:
        store: All graphs.
        level: What is labelled.
        split: Whose nodes or pairs count, where splits share graphs; None for all of them.
    """
    if TABLES[level] not in store.tables:
        raise UserError(f"graphs must have pairs '{LINKS}' to score links, got none")
    table, name = store.tables[TABLES[level]], "edge_label" if level == "link" else "y"
    ptr = store.item_ptr(TABLES[level])
    rows = ptr.diff()
    if name not in table.columns:
        if level == "link":
            return rows
        raise UserError(f"graphs must have labels '{name}' for each {level}, got none")
    kept, row_split = table.columns[name], ROW_SPLITS.get(level)
    is_split = split is not None and row_split in table.columns
    if len(rows) != len(table.ptr) - 1 and kept.is_constant:
        kept = replace(kept, values=table.given(name), is_constant=False)
    values = table.given(name) if is_split else kept.values
    is_known = ~values.isnan() if values.is_floating_point() else values >= 0
    counts = is_known.long() if is_known.dim() == 1 else is_known.flatten(1).sum(dim=1)
    if is_split:
        assert split is not None
        assert row_split is not None
        counts = counts * (table.given(row_split) == SPLITS[split])
    elif kept.is_constant:
        return counts.cpu() * rows
    # On the device but for the result: rows are many, graphs are few.
    ends = boundaries(counts)
    return ends[ptr.to(ends.device)].diff().cpu()
