"""Operations by formula against torch's counter: of this library, and of plain PyTorch models."""

import re
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
from graphmamba.nn.gps import GPSLayer
from graphmamba.nn.graph_mamba import GraphMambaGlobal
from graphmamba.nn.model import GraphMamba
from graphmamba.nn.norm import BatchNorm
from graphmamba.nn.performer import Performer
from graphmamba.ops import causal_conv1d, selective_scan
from graphmamba.ops.edge_attention import attend, attention_graph
from graphmamba.ordering.policy import OrderPolicy
from graphmamba.studies.flops import (
    OWN_ELEMENTWISE,
    PRODUCTS,
    SCANS,
    BatchSize,
    Flops,
    count_flops,
    forward_flops,
    layer_flops,
    run_by_modules,
)
from graphmamba.training.experiment import Experiment, load_experiment
from tests.helpers.experiments import generated_batch
from tests.helpers.graphs import random_topology

ELEMENTWISE_ERROR = 0.1
"""Relative: attention has several code paths for masks and dropout, with different scalings."""

NAMES = (
    "peptides-func/graph-mamba",
    "malnet-tiny/graph-mamba",
    "cluster/gps-transformer",
    "pcqm-contact/gps-performer",
    "peptides-func/gps-bigbird",
    "pascalvoc-sp/exphormer",
    "peptides-func/gatedgcn",
)


def small(name: str, overrides: dict[str, object] | None = None) -> tuple[Experiment, GraphMamba]:
    torch.manual_seed(0)
    experiment = load_experiment(name, {"model.layers": 2, **(overrides or {})})
    return experiment, experiment.build()


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", NAMES)
def test_formulas_agree_with_the_count(name: str, is_training: bool) -> None:
    experiment, model = small(name)
    model.train(is_training)
    batch = generated_batch(experiment, model, count=3, nodes=(5, 16))
    formula = forward_flops(model, BatchSize.of(batch))
    counted = count_flops(lambda: model(batch))
    assert (formula.products, formula.scan) == (counted.products, counted.scan)
    assert formula.elementwise == pytest.approx(counted.elementwise, rel=ELEMENTWISE_ERROR)
    assert counted.elementwise > 0


def test_pointwise_work_is_counted_and_copies_are_not() -> None:
    rows = torch.randn(3, 5)
    assert count_flops(lambda: (rows * 2).exp().clone()[:, [0, 1]]) == Flops(elementwise=30)
    assert count_flops(rows.sum) == Flops(elementwise=15)
    assert count_flops(lambda: torch.arange(9) + 1) == Flops()


def test_what_is_counted_runs_as_modules() -> None:
    model = load_experiment("peptides-func").build()
    parts = [part for part in model.modules() if isinstance(part, GPSLayer | BatchNorm)]
    with run_by_modules(model):
        assert {part.backend for part in parts} == {"reference"}
    assert {part.backend for part in parts} == {"auto"}


def test_the_scan_costs_nine_operations_per_position_channel_and_state() -> None:
    u, A, B = torch.randn(6, 4), -torch.rand(4, 16), torch.randn(6, 16)
    ends = torch.tensor([0, 2, 6])
    plain = count_flops(lambda: selective_scan(u, u, A, B, B, cu_seqlens=ends))
    assert plain == Flops(scan=6 * 4 * 9 * 16)
    gated = count_flops(lambda: selective_scan(u, u, A, B, B, A[:, 0], u, cu_seqlens=ends))
    assert gated.scan - plain.scan == 6 * 4 * 4
    taps = torch.randn(4, 3)
    assert count_flops(lambda: causal_conv1d(u, taps, cu_seqlens=ends)).scan == 6 * 4 * 7


def test_models_without_a_formula_can_be_counted() -> None:
    experiment, model = small("malnet-tiny/graph-mamba-plus")
    batch = generated_batch(experiment, model, count=3, nodes=(5, 16))
    with pytest.raises(ValueError, match="count_flops counts any"):
        forward_flops(model, BatchSize.of(batch))
    with pytest.raises(ValueError, match="Dropout has no formula"):
        layer_flops(nn.Dropout(), BatchSize(1, 1, 1, 1))
    assert count_flops(lambda: model(batch)).products > 0


def test_forward_operators_have_formulas_and_backward_ones_raise() -> None:
    names = {name for name in torch._C._dispatch_get_all_op_names() if "graphmamba::" in name}
    ours = {name.removeprefix("graphmamba::") for name in names}
    known = {operator.__name__ for operator in (*SCANS, *PRODUCTS)} | OWN_ELEMENTWISE.keys()
    # operators of backward passes and losses
    others = re.compile("backward|grad|loss|column_sums|add_up|edge_norm_sums|raw_steps")
    assert {name for name in ours - known if not others.search(name)} == set()
    x = torch.randn(9, 3, requires_grad=True)
    cu_seqlens = torch.tensor([0, 9])
    out = causal_conv1d(x, torch.randn(3, 2), cu_seqlens=cu_seqlens).sum()
    with pytest.raises(NotImplementedError, match=r"conv1d_.*backward has no formula"):
        count_flops(out.backward)


def test_triton_attention_costs_what_plain_pytorch_does() -> None:
    nodes, features, feature = torch.randn(5, 12), torch.randn(3, 4), torch.tensor([0, 1, 2, 2, 2])
    graph = attention_graph(torch.randint(5, (2, 5)), feature, nodes=5, shared=1)
    call = nodes, features, graph.edge_index, feature, None, None, None, 1, 2
    counted = count_flops(lambda: attend(nodes, features, graph, 2)).elementwise
    assert OWN_ELEMENTWISE["attend_triton"](*call) == counted


SIZES = (7, 1, 19, 12)
"""Nodes of the graphs, all different."""
EQUAL = (
    "peptides-func/graph-mamba",
    "cluster/gps-transformer",
    "pcqm-contact/gps-performer",
    "peptides-func/gatedgcn",
)
"""Models whose two forms differ in padding and in the edges of the last layer only."""
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
    """The padded batch, and a mask of its nodes."""
    rows = pad_sequence([torch.randn(size, D) for size in SIZES], batch_first=True)
    return rows, torch.arange(max(SIZES)) < torch.tensor(SIZES)[:, None]


def products(step: Callable[[], object]) -> int:
    """Matrix products by torch's counter, without our formulas."""
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


def maps(*widths: tuple[int, int]) -> list[nn.Linear]:
    return [nn.Linear(taken, given) for taken, given in widths]


def plain_attention() -> None:
    rows, is_node = padded()
    attend = nn.MultiheadAttention(D, HEADS, batch_first=True)
    # returning the weights avoids fused attention, which hides its products
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
        # a random block may repeat a listed one
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
    # one tap is enough, since the convolution is not a matrix product
    u = functional.silu(x)
    steps, into, from_state = select(u).split([rank, state, state], dim=-1)
    delta = functional.softplus(step(steps))[..., None]
    h = torch.zeros(len(SIZES), D, state)
    for place in range(rows.shape[1]):
        here = delta[:, place]
        h = torch.exp(-here) * h + here * into[:, place, None] * u[:, place, :, None]
    out(h.mul(from_state[:, -1:]).sum(-1)[:, None] * functional.silu(gate))


GLOBAL_MODELS: dict[str, tuple[GlobalModel, Callable[[], None]]] = {
    "attention": (Attention(D, HEADS), plain_attention),
    "performer": (Performer(D, HEADS, head_width=8, features=5), plain_performer),
    "big bird": (BigBird(D, HEADS, block=BLOCK, random_blocks=RANDOM), plain_big_bird),
    "mamba": (GraphMambaGlobal(D), plain_mamba),
}


@pytest.mark.parametrize(("global_model", "plain"), GLOBAL_MODELS.values(), ids=GLOBAL_MODELS)
def test_original_forms_have_the_products_of_plain_pytorch(
    global_model: GlobalModel, plain: Callable[[], None]
) -> None:
    found = layer_flops(global_model, SIZE, "original")
    assert found.products == products(plain)
    assert found.products > layer_flops(global_model, SIZE).products


def test_original_mamba_scans_padding_and_projects_each_order() -> None:
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
def test_on_graphs_of_equal_size_the_original_only_adds_the_last_edges(name: str) -> None:
    experiment, model = small(name, {"model.dropout": 0.1})
    size = BatchSize.of(generated_batch(experiment, model, count=3, nodes=(9, 9)))
    # norm, activation, dropout, residual
    last = Flops(elementwise=size.edges * experiment.model.channels * (7 + 1 + 1 + 1))
    assert forward_flops(model, size, "original") == forward_flops(model, size) + last


@pytest.mark.parametrize("name", NAMES)
def test_the_original_never_costs_less(name: str) -> None:
    experiment, model = small(name)
    size = BatchSize.of(generated_batch(experiment, model, count=3, nodes=(12, 30)))
    here, there = (forward_flops(model, size, form) for form in ("here", "original"))
    assert there.products >= here.products
    assert there.scan >= here.scan
    assert there.total > here.total
