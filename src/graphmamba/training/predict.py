"""Predictions of a trained model: batch after batch, in the units of labels, as CSV."""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Batch

from graphmamba.atomic import atomic_write
from graphmamba.checks import check_least
from graphmamba.data.batch import column
from graphmamba.data.catalog import LossName, PredictionKind
from graphmamba.data.neighbor_sampling import SEEDS, NeighbourStore
from graphmamba.data.sampler import batches_by_cost
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import LINKS
from graphmamba.errors import UserError
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.nn.heads import pair_scores
from graphmamba.nn.model import GraphMamba
from graphmamba.ops.random import draw_bits
from graphmamba.training.evaluate import evaluating
from graphmamba.training.losses import Objective

COLUMNS = ("graph", "node", "pair", "outputs", "std")
"""Those of predictions that have a row for each."""


@dataclass(frozen=True)
class Predictions:
    """One row for each graph, node or pair, in the order of the graphs."""

    kind: PredictionKind
    names: tuple[str, ...]
    """Names of the columns: classes, labels or targets."""
    graph: Int[Tensor, " rows"]
    """Index of the graph of each row."""
    node: Int[Tensor, " rows"] | None
    """Index of the node in its graph; None for predictions of graphs or pairs."""
    pair: Int[Tensor, "rows 2"] | None
    """Indices of both nodes in their graph; None for predictions of graphs or nodes."""
    outputs: Float[Tensor, "rows columns"]
    """Probabilities of classes or labels, predicted values, or scores of pairs."""
    std: Float[Tensor, "rows columns"] | None
    """Standard deviation of outputs over random node orders; None for models without them."""

    @property
    def classes(self) -> Int[Tensor, " rows"]:
        """Index of the most probable class of each row; -1 where outputs are NaN."""
        if self.kind != "classes":
            raise UserError(
                f"kind must be 'classes' for one class per row, got {self.kind!r}: see outputs"
            )
        return self.outputs.argmax(dim=1).where(~self.outputs.isnan().any(dim=1), -1)

    @property
    def labels(self) -> list[str]:
        """Name of the most probable class of each row; empty where outputs are NaN."""
        return [self.names[number] if number >= 0 else "" for number in self.classes.tolist()]

    @property
    def probabilities(self) -> Float[Tensor, "rows columns"]:
        """Probabilities of classes or labels; regression and links have none."""
        if self.kind not in ("classes", "multi-label"):
            raise UserError(
                f"kind must be 'classes' or 'multi-label', got {self.kind!r}: see outputs"
            )
        return self.outputs

    def __len__(self) -> int:
        return len(self.graph)

    def by_graph(self) -> "Predictions":
        """Return the rows in the order of the graphs."""
        order = self.graph.argsort(stable=True)
        columns: dict[str, Any] = {name: getattr(self, name) for name in COLUMNS}
        return replace(
            self, **{name: each[order] for name, each in columns.items() if each is not None}
        )

    @staticmethod
    def cat(parts: Sequence["Predictions"]) -> "Predictions":
        """Put parts end to end."""
        columns = {name: [getattr(part, name) for part in parts] for name in COLUMNS}
        joined: dict[str, Any] = {
            name: torch.cat(each) for name, each in columns.items() if each[0] is not None
        }
        return replace(parts[0], **joined)


def values_of(
    output: Float[Tensor, "rows outputs"], kind: PredictionKind, loss: LossName
) -> Float[Tensor, "rows columns"]:
    """Turn what a model gives out into what its labels are.

    Scores of pairs become probabilities where training took them for logits.
    """
    if kind == "classes" and output.shape[1] > 1:
        return output.softmax(dim=1)
    if kind == "classes":
        # one logit for two classes
        return torch.cat([(-output).sigmoid(), output.sigmoid()], dim=1)
    if kind == "multi-label" or loss == "link_cross_entropy":
        return output.sigmoid()
    return output


NODES = 512
"""Nodes of a batch where neighbours are drawn."""
BUDGET = 200_000
"""Nodes and edges of a batch: some hundred megabytes at the widths of the paper."""


def stream_predictions(
    model: GraphMamba,
    store: GraphStore,
    ids: Int[Tensor, " graphs"] | None = None,
    *,
    objective: Objective | None = None,
    names: tuple[str, ...] = (),
    has_std: bool = True,
    budget: int = BUDGET,
) -> Iterator[Predictions]:
    """Predict graphs of a store where the model is, as many at once as fit the budget.

    Values are those of the model as it is evaluated, its output averaged over node orders in every
    layer. The std is that of as many passes with a single node order each.

    Args:
        model: A trained model.
        store: Graphs with the columns that it reads.
        ids: Which of them; None for all.
        objective: What it was trained by, which knows the units of its outputs; None for the
            task's own loss.
        names: Classes or label columns.
        has_std: Whether to make the further passes that the std needs.
        budget: Nodes and edges of a batch; a larger graph has a batch of its own.
    """
    check_least("budget", budget, 1)
    ids = torch.arange(len(store)) if ids is None else ids.cpu()
    if not len(ids):
        return
    task, device = model.task, next(model.parameters()).device
    kind, level = task.kind, task.level
    if level == "link":
        names = ("score",)
    names = names or tuple(map(str, range(task.classes or task.outputs)))
    objective = (objective or Objective(task.loss)).to(device)
    single = single_order(model) if has_std else None
    is_sampled = isinstance(store, NeighbourStore)

    def predict(chosen: Int[Tensor, " graphs"]) -> Predictions:
        graphs = store.batch(chosen, by_source=True).to(device)
        node, pair, joined = None, None, None
        if is_sampled:
            graph, node = torch.zeros_like(chosen), chosen
        elif level == "graph":
            graph = chosen
        else:
            batch, ptr = graphs.batch.cpu(), graphs.ptr.cpu()
            graph, node = chosen[batch], torch.arange(len(batch)) - ptr[batch]
            if level == "link":
                asked = column(graphs, LINKS)
                joined = _all_pairs(ptr) if asked is None else asked.cpu()
                owner = batch[joined[0]]
                graph, node, pair = chosen[owner], None, (joined - ptr[owner]).T.contiguous()
                joined = joined.to(device)
        outputs = []
        for output in _outputs(model, single, graphs):
            rows = output[graphs[SEEDS]] if is_sampled else output
            rows = rows if joined is None else pair_scores(rows, joined)[:, None]
            rows = values_of(objective.in_units(rows), kind, objective.loss)
            outputs.append(rows.double().cpu())
        first, *others = outputs
        std = None
        if others:
            # without rows, such as pairs of lone nodes, torch complains of too few node orders
            std = torch.stack(others).std(dim=0, correction=0) if len(first) else first
        return Predictions(kind, names, graph, node, pair, first, std)

    batches: Iterable[Int[Tensor, " graphs"]] = ids.split(NODES)
    if not is_sampled:
        nodes, edges = (
            torch.from_numpy(store.tables[each].ptr).diff() for each in ("nodes", "edges")
        )
        batches = batches_by_cost(ids, (nodes + edges)[ids], budget)
    with evaluating(model):
        for chosen in batches:
            yield from _in_pieces(predict, chosen)


def _in_pieces(
    predict: Callable[[Int[Tensor, " graphs"]], Predictions], chosen: Int[Tensor, " graphs"]
) -> Iterator[Predictions]:
    """Predict a batch; one that is more than a GPU's memory can hold goes in halves."""
    try:
        yield predict(chosen)
        return
    except torch.OutOfMemoryError as full:
        if len(chosen) == 1:
            raise UserError(
                f"graph {int(chosen[0])} must fit into the GPU's memory, and it does not; "
                "device='cpu' may have more"
            ) from full
    # only here, past the error, are the tensors of the attempt gone
    torch.cuda.empty_cache()
    for half in chosen.tensor_split(2):
        yield from _in_pieces(predict, half)


def single_order(model: GraphMamba) -> GraphMamba | None:
    """Copy a model, to visit nodes in one order a pass; None where its order is never random."""
    single = deepcopy(model).eval()
    global_models = [part for part in single.modules() if isinstance(part, GraphMambaGlobal)]
    if all(global_model.policy.samples(is_training=False) == 1 for global_model in global_models):
        return None
    for global_model in global_models:
        global_model.policy = replace(global_model.policy, eval_samples=1)
    return single


@torch.no_grad()
def _outputs(
    model: GraphMamba, single: GraphMamba | None, graphs: Batch
) -> list[Float[Tensor, "rows outputs"]]:
    """The model's own output, then one for each single node order."""
    outputs = [model(graphs, check=True)]
    if single is not None:
        seed = model.backbone.noise_seed.seed
        samples = max(
            part.policy.samples(is_training=False)
            for part in model.modules()
            if isinstance(part, GraphMambaGlobal)
        )
        for sample in range(samples):
            single.backbone.noise_seed.seed.copy_(draw_bits(seed, sample))
            outputs.append(single(graphs, check=False))
    return outputs


MOST_PAIRS = 20_000_000
"""Pairs that are scored where nobody names them: those of some 6,000 nodes."""


def _all_pairs(ptr: Int[Tensor, " boundaries"]) -> Int[Tensor, "2 pairs"]:
    """Each two nodes of each graph once, where nobody says which pairs matter."""
    sizes = ptr.diff()
    if int((sizes * (sizes - 1) // 2).sum()) > MOST_PAIRS:
        raise UserError(
            f"graphs must name the pairs to score where there are more than {MOST_PAIRS:,} (by "
            f"{LINKS} or pairs.csv), got none for a graph of {int(sizes.max()):,} nodes"
        )
    parts = [
        torch.triu_indices(end - begin, end - begin, offset=1) + begin
        for begin, end in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)
    ]
    return torch.cat([torch.empty(2, 0, dtype=torch.int64), *parts], dim=1)


Namer = Callable[[int, int], str]
"""Name of a node, by the numbers of its graph and of itself."""


def write_predictions(
    path: Path,
    parts: Iterable[Predictions],
    graph_name: Callable[[int], str] = str,
    node_name: Namer = lambda _graph, node: str(node),
    skipped: Sequence[int] = (),
    folds: Int[Tensor, " graphs"] | None = None,
) -> int:
    """Write one line for each row; returns how many there are.

    Args:
        path: The file.
        parts: Predictions, batch after batch; only one is held at a time.
        graph_name: What a graph is called, by its number.
        node_name: What a node is called.
        skipped: Rows of a table of graphs that are no graphs, which get a line without values: the
            lines are then those of the table.
        folds: Fold of each graph, for a column of its own.
    """
    rows, left = 0, list(skipped)[::-1]

    def write(partial: Path) -> None:
        nonlocal rows
        with partial.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            for number, part in enumerate(parts):
                # the first part may have no rows: graphs without pairs
                header = header_of(part)
                if not number:
                    own = [] if folds is None else ["fold"]
                    writer.writerow([as_text(name) for name in [*header, *own]])
                for graph, line in zip(
                    part.graph.tolist(), _lines(part, graph_name, node_name), strict=True
                ):
                    while left and left[-1] <= graph + len(skipped) - len(left):
                        writer.writerow([left.pop(), *[""] * (len(header) - 1)])
                    writer.writerow(line if folds is None else [*line, int(folds[graph])])
                rows += len(part)
            writer.writerows([row, *[""] * (len(header) - 1)] for row in left[::-1])

    atomic_write(path, write)
    return rows + len(skipped)


def as_text(name: str) -> str:
    """Put an apostrophe before a name that a spreadsheet would take for a formula."""
    if not name.startswith(("=", "+", "-", "@", "\t", "\r")):
        return name
    try:
        float(name)
    except ValueError:
        return f"'{name}"
    return name


def header_of(part: Predictions) -> list[str]:
    """Names of the columns of the file."""
    place = ["node"] if part.node is not None else []
    place = ["source", "target"] if part.pair is not None else place
    is_classes = part.kind == "classes"
    prefix = "p_" if is_classes or part.kind == "multi-label" else ""
    values = [*(["class"] if is_classes else []), *(f"{prefix}{name}" for name in part.names)]
    stds = ["std"] if is_classes or len(part.names) == 1 else [f"std_{n}" for n in part.names]
    return ["graph", *place, *values, *(stds if part.std is not None else [])]


def _lines(
    part: Predictions, graph_name: Callable[[int], str], node_name: Namer
) -> Iterator[list[str]]:
    values = part.outputs.tolist()
    stds = None if part.std is None else part.std.tolist()
    nodes: list[list[int]] = [[]] * len(part)
    if part.pair is not None:
        nodes = part.pair.tolist()
    elif part.node is not None:
        nodes = part.node[:, None].tolist()
    is_classes = part.kind == "classes"
    classes, labels = (part.classes.tolist(), part.labels) if is_classes else ([], [])
    for row, graph in enumerate(part.graph.tolist()):
        line = [graph_name(graph), *(node_name(graph, node) for node in nodes[row])]
        line = [as_text(name) for name in line]
        std = [] if stds is None else stds[row]
        if is_classes:
            line.append(as_text(labels[row]))
            # of all classes, the doubt about the one that is named; where none is, all are alike
            best = max(classes[row], 0)
            std = std[best : best + 1]
        yield [*line, *(f"{value:.6g}" for value in [*values[row], *std])]
