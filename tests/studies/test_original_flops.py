"""Operations of the models' original code, by formula and as torch counts a plain rewrite of it."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from torch.utils.flop_counter import FlopCounterMode

from graphmamba.nn import Attention
from graphmamba.nn.base import GlobalModel
from graphmamba.nn.bigbird import BigBird
from graphmamba.nn.exphormer import ExphormerStack
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.nn.performer import Performer
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.studies.flops import BatchSize, Flops, forward_flops, layer_flops
from tests.helpers.experiments import generated_batch
from tests.helpers.graphs import random_topology
from tests.studies.test_flops import NAMES, small

SIZES = (7, 1, 19, 12)
"""Nodes of graphs of which none is as large as another."""
EQUAL = (
    "peptides-func/graph-mamba",
    "cluster/gps-transformer",
    "pcqm-contact/gps-performer",
    "peptides-func/gatedgcn",
)
"""Models that differ by padding and by those edges alone."""
D, HEADS, BLOCK, RANDOM, LAYERS = 16, 4, 3, 2, 2
TOPOLOGY = random_topology(SIZES)
SIZE = BatchSize(
    graphs=len(SIZES),
    nodes=sum(SIZES),
    edges=TOPOLOGY.edge_index.shape[1],
    longest=max(SIZES),
    expanders=TOPOLOGY.columns["expander_index"].shape[1],
)


def padded() -> tuple[Tensor, Tensor]:
    """The batch as the original code lays it out, and which of its rows are nodes."""
    rows = pad_sequence([torch.randn(size, D) for size in SIZES], batch_first=True)
    return rows, torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]


def products(step: Callable[[], object]) -> int:
    """What torch's own counter sees, without any formula of ours."""
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def maps(*widths: tuple[int, int]) -> list[nn.Linear]:
    return [nn.Linear(taken, given) for taken, given in widths]


def plain_attention() -> None:
    rows, is_node = padded()
    attend = nn.MultiheadAttention(D, HEADS, batch_first=True)
    # with weights, so that no fused form hides its products
    attend(rows, rows, rows, key_padding_mask=~is_node, need_weights=True)


def plain_performer(width: int = 8, features: int = 5) -> None:
    rows, is_node = padded()
    query, key, value, out = maps(*[(D, HEADS * width)] * 3, (HEADS * width, D))

    def heads(each: nn.Linear) -> Tensor:
        return each(rows).unflatten(-1, (HEADS, width)).transpose(1, 2)

    directions = torch.randn(features, width)
    q, k = (torch.exp(heads(each) @ directions.T) for each in (query, key))
    v = heads(value).masked_fill(~is_node[:, None, :, None], 0)
    mixed = q @ (k.transpose(-2, -1) @ v) / (q @ k.sum(dim=-2).unsqueeze(-1))
    out(mixed.transpose(1, 2).flatten(-2))


def plain_big_bird() -> None:
    rows, _ = padded()
    rows = functional.pad(rows, (0, 0, 0, -rows.shape[1] % BLOCK))
    query, key, value, out, first, second = maps(*[(D, D)] * 6)
    q, k, v = (
        each(rows).unflatten(-1, (HEADS, -1)).transpose(1, 2).unflatten(2, (-1, BLOCK))
        for each in (query, key, value)
    )
    blocks, mixed = q.shape[2], []
    for own in range(blocks):
        near = sorted({0, own - 1, own, own + 1, blocks - 1})
        # any block may be drawn, those that are listed as well
        listed = [*near, *torch.randint(blocks, (RANDOM,)).tolist()]
        if own in (0, blocks - 1):
            listed = list(range(blocks))
        keys, values = (each[:, :, listed].flatten(2, 3) for each in (k, v))
        mixed.append((q[:, :, own] @ keys.transpose(-2, -1)).softmax(-1) @ values)
    attended = torch.cat(mixed, dim=2).transpose(1, 2).flatten(-2)
    second(functional.relu(first(out(attended) + rows)))


def plain_mamba(state: int = 16, rank: int = 1) -> None:
    rows, _ = padded()
    project, select, step, out = maps((D, 2 * D), (D, rank + 2 * state), (rank, D), (D, D))
    x, gate = project(rows).chunk(2, dim=-1)
    # one tap is enough: the convolution is no product
    u = functional.silu(x)
    steps, into, from_state = select(u).split([rank, state, state], dim=-1)
    delta = functional.softplus(step(steps))[..., None]
    h = torch.zeros(len(SIZES), D, state)
    for place in range(rows.shape[1]):
        here = delta[:, place]
        h = torch.exp(-here) * h + here * into[:, place, None] * u[:, place, :, None]
    out(h.mul(from_state[:, -1:]).sum(-1)[:, None] * functional.silu(gate))


def plain_exphormer(virtual: int) -> None:
    hubs, nodes = virtual * len(SIZES), sum(SIZES)
    rows, edges = torch.randn(nodes + hubs, D), torch.randn(SIZE.edges, D)
    # each virtual node has an edge from and an edge to every node of its graph
    others = torch.randn(SIZE.expanders + 2 * virtual * nodes, D)
    for _ in range(LAYERS):
        *of_nodes, of_edges = maps(*[(D, D)] * 4)
        for each in of_nodes:
            each(rows)
        of_edges(torch.cat([edges, others]))
        *of_nodes, of_edges, wide, narrow = maps(*[(D, D)] * 5, (D, 2 * D), (2 * D, D))
        for each in of_nodes:
            each(rows[:nodes])
        of_edges(edges)
        narrow(wide(rows[:nodes]))


GLOBAL_MODELS: dict[str, tuple[GlobalModel, Callable[[], None]]] = {
    "attention": (Attention(D, HEADS), plain_attention),
    "performer": (Performer(D, HEADS, head_width=8, features=5), plain_performer),
    "big bird": (BigBird(D, HEADS, block=BLOCK, random_blocks=RANDOM), plain_big_bird),
    "mamba": (GraphMambaGlobal(D), plain_mamba),
}


@pytest.mark.parametrize(("global_model", "plain"), GLOBAL_MODELS.values(), ids=GLOBAL_MODELS)
def test_original_global_models_have_the_products_of_a_plain_rewrite(
    global_model: GlobalModel, plain: Callable[[], None]
) -> None:
    found = layer_flops(global_model, SIZE, "original")
    assert found.products == products(plain)
    assert found.products > layer_flops(global_model, SIZE).products


@pytest.mark.parametrize("virtual", [0, 2])
def test_original_exphormer_maps_a_row_for_every_edge(virtual: int) -> None:
    stack = ExphormerStack(D, LAYERS, HEADS, virtual_nodes=virtual)
    found = layer_flops(stack, SIZE, "original")
    assert found.products == products(lambda: plain_exphormer(virtual))
    # one row for each kind there is
    fewer = SIZE.expanders + 2 * virtual * SIZE.nodes - (1 + 2 * virtual)
    here = layer_flops(stack, SIZE)
    assert found.products - here.products == LAYERS * fewer * 2 * D * D
    assert found.elementwise == here.elementwise


def test_original_mamba_scans_padding_and_projects_every_node_order() -> None:
    global_model = GraphMambaGlobal(D, OrderPolicy(eval_samples=5))
    training, evaluation = (
        layer_flops(global_model.train(is_training), SIZE, "original")
        for is_training in (True, False)
    )
    # 16 states, skip and gate; four taps and SiLU
    assert training.scan == len(SIZES) * max(SIZES) * D * (9 * 16 + 4 + 2 * 4 + 1)
    assert (evaluation.scan, evaluation.products) == (5 * training.scan, 5 * training.products)
    assert evaluation.elementwise == 5 * (training.elementwise + sum(SIZES) * D)


@pytest.mark.parametrize("name", EQUAL)
def test_on_graphs_of_one_size_the_original_only_finishes_the_last_edges(name: str) -> None:
    experiment, model = small(name, {"model.dropout": 0.1})
    size = BatchSize.of(generated_batch(experiment, model, count=3, nodes=(9, 9)))
    # norm, activation, dropout, residual
    last = Flops(elementwise=size.edges * experiment.model.channels * (7 + 1 + 1 + 1))
    assert forward_flops(model, size, "original") == forward_flops(model, size) + last


@pytest.mark.parametrize("name", NAMES[:8])
def test_the_original_never_does_less(name: str) -> None:
    experiment, model = small(name)
    size = BatchSize.of(generated_batch(experiment, model, count=3, nodes=(12, 30)))
    here, there = (forward_flops(model, size, form) for form in ("here", "original"))
    assert there.products >= here.products
    assert there.scan >= here.scan
    assert there.total > here.total
