"""Predictions of a trained model, batch after batch: memory does not grow with the set."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch_geometric.data import Batch

from graphmamba.checks import check_least
from graphmamba.data.catalog import LossName
from graphmamba.data.columns import column
from graphmamba.data.sampler import BatchSampler
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import LINKS
from graphmamba.errors import UserError
from graphmamba.nn.graph_mamba import GraphMambaMixer
from graphmamba.nn.heads import pair_scores
from graphmamba.nn.model import GraphMamba
from graphmamba.ops.random import draw_bits
from graphmamba.training.evaluate import evaluating
from graphmamba.training.predictions import Predictions, kind_of, names_of, values_of

BUDGET = 200_000
"""Nodes and edges of a batch: some hundred megabytes at the widths of the paper."""


@dataclass(frozen=True)
class Rows:
    """Where the rows of a prediction belong."""

    graph: Int[Tensor, " rows"]
    node: Int[Tensor, " rows"] | None = None
    pair: Int[Tensor, "rows 2"] | None = None
    joined: Int[Tensor, "2 rows"] | None = None
    """Pairs by the numbers of their nodes in the batch."""


def stream_predictions(
    model: GraphMamba,
    store: GraphStore,
    ids: Int[Tensor, " graphs"] | None = None,
    *,
    loss: LossName | None = None,
    names: tuple[str, ...] = (),
    has_spread: bool = True,
    budget: int = BUDGET,
) -> Iterator[Predictions]:
    """Predict graphs of a store where the model is, as many at once as fit the budget.

    Values are those of the model as it is evaluated, its output averaged over line-ups in every
    layer. The spread is that of as many passes with a single line-up each.

    Args:
        model: A trained model.
        store: Graphs with the columns that it reads.
        ids: Which of them; None for all.
        loss: What it was trained by; None for the task's own.
        names: Classes or label columns.
        has_spread: Whether to make the further passes that the spread needs.
        budget: Nodes and edges of a batch; a larger graph has a batch of its own.
    """
    check_least("budget", budget, 1)
    ids = torch.arange(len(store)) if ids is None else ids.cpu()
    if not len(ids):
        return
    task, device = model.task, next(model.parameters()).device
    kind, columns = kind_of(task), names_of(task, names)
    single = one_line_up(model) if has_spread else None

    def predict(chosen: Int[Tensor, " graphs"]) -> Predictions:
        graphs = store.batch(chosen, by_source=True).to(device)
        rows = _rows(graphs, chosen, task.level)
        first, *others = (
            values_of(output, kind, loss or task.loss).double().cpu()
            for output in _outputs(model, single, graphs, rows)
        )
        return Predictions(kind, columns, rows.graph, rows.node, rows.pair, first, _spread(others))

    with evaluating(model):
        for chosen in BatchSampler(ids, is_shuffled=False, costs=_costs(store)[ids], budget=budget):
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


def one_line_up(model: GraphMamba) -> GraphMamba | None:
    """Copy a model, to visit nodes in one order a pass; None where its order is never random."""
    single = deepcopy(model).eval()
    mixers = [part for part in single.modules() if isinstance(part, GraphMambaMixer)]
    if all(mixer.policy.samples(is_training=False) == 1 for mixer in mixers):
        return None
    for mixer in mixers:
        mixer.policy = replace(mixer.policy, eval_samples=1)
    return single


@torch.no_grad()
def _outputs(
    model: GraphMamba, single: GraphMamba | None, graphs: Batch, rows: Rows
) -> list[Float[Tensor, "rows outputs"]]:
    """The model's own output, then one for each single line-up."""
    outputs = [model(graphs, check=True)]
    if single is not None:
        seed = model.backbone.noise_seed.seed
        samples = max(
            part.policy.samples(is_training=False)
            for part in model.modules()
            if isinstance(part, GraphMambaMixer)
        )
        for sample in range(samples):
            single.backbone.noise_seed.seed.copy_(draw_bits(seed, sample))
            outputs.append(single(graphs, check=False))
    if rows.joined is None:
        return outputs
    return [pair_scores(output, rows.joined)[:, None] for output in outputs]


def _spread(
    values: list[Float[Tensor, "rows columns"]],
) -> Float[Tensor, "rows columns"] | None:
    """Standard deviation over the line-ups; None where there are none."""
    if not values:
        return None
    # without rows, such as pairs of lone nodes, torch complains of too few line-ups
    return torch.stack(values).std(dim=0, correction=0) if len(values[0]) else values[0]


def _costs(store: GraphStore) -> Int[Tensor, " graphs"]:
    """Nodes and edges of each graph: rows of both go through every layer."""
    nodes, edges = (torch.from_numpy(store.tables[kind].ptr).diff() for kind in ("nodes", "edges"))
    return nodes + edges


def _rows(graphs: Batch, chosen: Int[Tensor, " graphs"], level: str) -> Rows:
    if level == "graph":
        return Rows(chosen)
    batch, ptr = graphs.batch.cpu(), graphs.ptr.cpu()
    if level == "node":
        return Rows(chosen[batch], node=torch.arange(len(batch)) - ptr[batch])
    asked = column(graphs, LINKS)
    joined = _all_pairs(ptr) if asked is None else asked.cpu()
    owner = batch[joined[0]]
    return Rows(
        chosen[owner], pair=(joined - ptr[owner]).T.contiguous(), joined=joined.to(graphs.x.device)
    )


def _all_pairs(ptr: Int[Tensor, " boundaries"]) -> Int[Tensor, "2 pairs"]:
    """Each two nodes of each graph once, where nobody says which pairs matter."""
    parts = [
        torch.triu_indices(end - begin, end - begin, offset=1) + begin
        for begin, end in zip(ptr[:-1].tolist(), ptr[1:].tolist(), strict=True)
    ]
    return torch.cat([torch.empty(2, 0, dtype=torch.int64), *parts], dim=1)
