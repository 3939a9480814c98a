"""Operations by formula, and as torch counts them while the model runs."""

import pytest
import torch
from graphmamba.encode.unit_rows import unit_rows
from torch import nn

from graphmamba.config import Experiment, load_experiment
from graphmamba.scan import causal_conv1d, selective_scan
from graphmamba.stack import Attention, GatedGCN, GPSLayer
from graphmamba.stack.edge_attention import attend, wire
from graphmamba.study.batch_size import BatchSize
from graphmamba.study.flops import Flops, count_flops
from graphmamba.study.model_flops import forward_flops
from graphmamba.study.operator_flops.own_elementwise import OWN_ELEMENTWISE
from graphmamba.study.operator_flops.products import PRODUCTS
from graphmamba.study.operator_flops.scan import SCAN_OPERATORS
from graphmamba.study.stack_flops import layer_flops
from graphmamba.task.model import GraphMamba
from tests.helpers.experiments import generated_batch, loss_of
from tests.helpers.graphs import random_rows, random_topology

ELEMENTWISE_SHARE = 0.1
"""How far formula and count may be apart in pointwise work: attention has a path for each kind of
mask and dropout, which scale the scores, the mask and the dropped in their own ways."""
TRAINING_SHARE = 0.2
"""The backward pass of Performer has fewer products: its random features have no gradient."""

SETS = {
    "graph-mamba": ("peptides-func", "pascalvoc-sp", "malnet-tiny", "cluster"),
    "gps-transformer": ("peptides-func", "malnet-tiny", "cluster"),
    "gps-performer": ("pcqm-contact",),
    "gps-bigbird": ("peptides-func", "cluster"),
    "exphormer": ("peptides-func", "cluster", "pascalvoc-sp"),
    "gatedgcn": ("peptides-func", "pcqm-contact"),
    "gatedgcn-tuned": ("peptides-func",),
}
NAMES = [f"{benchmark}/{model}" for model, sets in SETS.items() for benchmark in sets]
LOSS_KINDS = "class", "two_class", "entry"
OVERRIDES: dict[str, dict[str, object]] = {
    "both ways": {"model.order.direction": "bidirectional"},
    "normed": {"model.input_norm": "layer", "model.norm": "layer"},
    "alone": {"model.local": "none"},
    "standardised": {"encoder.standardization": "pascalvoc-sp", "head.dropout": 0.1},
}


def small(name: str, overrides: dict[str, object] | None = None) -> tuple[Experiment, GraphMamba]:
    torch.manual_seed(0)
    experiment = load_experiment(name, {"model.layers": 2, **(overrides or {})})
    return experiment, experiment.build()


def check_agreement(experiment: Experiment, model: GraphMamba) -> None:
    batch = generated_batch(experiment, model, count=3, nodes=(5, 16))
    formula = forward_flops(model, BatchSize.of(batch))
    counted = count_flops(lambda: model(batch))
    assert (formula.products, formula.scan) == (counted.products, counted.scan)
    assert formula.elementwise == pytest.approx(counted.elementwise, rel=ELEMENTWISE_SHARE)
    assert counted.elementwise > 0


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("name", NAMES)
def test_formulas_agree_with_the_count(name: str, is_training: bool) -> None:
    experiment, model = small(name)
    check_agreement(experiment, model.train(is_training))


@pytest.mark.parametrize("overrides", OVERRIDES.values(), ids=OVERRIDES)
def test_formulas_know_the_options(overrides: dict[str, object]) -> None:
    check_agreement(*small("pascalvoc-sp/graph-mamba", overrides))


@pytest.mark.parametrize("name", ["graph-mamba", "gps-transformer", "gps-performer", "exphormer"])
def test_a_training_step_is_about_three_forward_passes_and_a_scan(name: str) -> None:
    experiment, model = small(f"peptides-func/{name}")
    batch = generated_batch(experiment, model, count=3, nodes=(5, 16))
    counted = count_flops(lambda: loss_of(experiment, model(batch), batch).backward())
    forward = forward_flops(model, BatchSize.of(batch))
    # products have two gradients of their size; the scan runs once more before its own
    estimate = sum([forward] * 3, start=Flops(scan=forward.scan))
    assert estimate.total == pytest.approx(counted.total, rel=TRAINING_SHARE)
    assert estimate.scan == counted.scan


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("local", [GatedGCN, None], ids=["gatedgcn", "alone"])
def test_dropouts_are_counted_wherever_a_layer_drops(
    local: type[GatedGCN] | None, norm: str
) -> None:
    topology = random_topology((9, 4))
    x, e = random_rows(topology)
    size = BatchSize(graphs=2, nodes=13, edges=len(e), longest=9)
    found = []
    for rate in (0.0, 0.1):
        near = None if local is None else local(8, dropout=rate)
        layer = GPSLayer(8, near, Attention(8, 2), dropout=rate, norm=norm)
        counted = count_flops(lambda own=layer: own(x, e, topology))
        found.append((layer_flops(layer, size).elementwise, counted.elementwise))
    formula, counted = (after - before for before, after in zip(*found, strict=True))
    # outside of kernels the mask is scaled by an operation of its own
    assert counted == 2 * formula > 0


def test_a_linear_layer_counts_a_multiply_add_as_two() -> None:
    layer, rows = nn.Linear(5, 7), torch.randn(3, 5)
    assert count_flops(lambda: layer(rows)) == Flops(products=2 * 3 * 5 * 7)


def test_pointwise_work_is_counted_and_copies_are_not() -> None:
    rows = torch.randn(3, 5)
    assert count_flops(lambda: (rows * 2).exp().clone()[:, [0, 1]]) == Flops(elementwise=30)
    assert count_flops(rows.sum) == Flops(elementwise=15)
    assert count_flops(lambda: torch.arange(9) + 1) == Flops()


def test_the_scan_is_counted_by_steps_channels_and_states() -> None:
    u, A, B = torch.randn(6, 4), -torch.rand(4, 16), torch.randn(6, 16)
    ends = torch.tensor([0, 2, 6])
    plain = count_flops(lambda: selective_scan(u, u, A, B, B, cu_seqlens=ends))
    assert plain == Flops(scan=6 * 4 * 9 * 16)
    gated = count_flops(lambda: selective_scan(u, u, A, B, B, A[:, 0], u, cu_seqlens=ends))
    assert gated.scan - plain.scan == 6 * 4 * 4
    taps = torch.randn(4, 3)
    assert count_flops(lambda: causal_conv1d(u, taps, cu_seqlens=ends)).scan == 6 * 4 * 7


def test_full_attention_grows_with_the_square_and_the_scan_with_the_length() -> None:
    once, twice = (BatchSize(2, 2 * n, 4 * n, n) for n in (50, 100))
    for name, low, high in (("graph-mamba", 1.99, 2), ("gps-transformer", 2.05, 4)):
        _, model = small(f"malnet-tiny/{name}")
        growth = forward_flops(model, twice).total / forward_flops(model, once).total
        assert low <= growth <= high


def test_a_layer_without_a_formula_is_named() -> None:
    with pytest.raises(ValueError, match="got Dropout"):
        layer_flops(nn.Dropout(), BatchSize(1, 1, 1, 1))


def test_every_operator_of_ours_has_a_formula() -> None:
    names = torch._C._dispatch_get_all_op_names()
    ours = {name for name in names if name.startswith("graphmamba::")}
    known = {f"graphmamba::{operator.__name__}" for operator in (*SCAN_OPERATORS, *PRODUCTS)}
    assert ours == known | OWN_ELEMENTWISE.keys()


def test_fused_norms_cost_what_their_parts_do() -> None:
    rows, channels = torch.randn(5, 3), torch.ones(3)
    settings = ("relu", [0.5, 0.0], [0, 0], True)
    call = (rows, channels, channels, rows, None, *[None] * 3, *[None] * 3, *settings)
    forward = OWN_ELEMENTWISE["graphmamba::batch_norm_act_fused"](*call, 0.1, 1e-5)
    # the norm, what is added before it, the activation, one dropout
    assert forward == 15 * (7 + 1 + 1 + 1)
    back = OWN_ELEMENTWISE["graphmamba::batch_norm_act_fused_backward"]
    assert back(rows, rows, *call[:4], *[None] * 3, *settings) == 2 * forward
    drop = OWN_ELEMENTWISE["graphmamba::activate_drop_fused"]
    assert drop(rows, None, None, "gelu", 0.1, 0) == 30
    assert OWN_ELEMENTWISE["graphmamba::segment_sum_fused"](rows, None, None, None) == 15
    assert OWN_ELEMENTWISE["graphmamba::segment_take_fused"](rows, None, None, None) == 0
    assert OWN_ELEMENTWISE["graphmamba::segment_max_fused"](rows, None, None) == 15
    assert OWN_ELEMENTWISE["graphmamba::segment_max_fused_backward"](None, rows, None) == 15
    assert OWN_ELEMENTWISE["graphmamba::add_up_fused"]([rows] * 4) == 45


@pytest.mark.parametrize("has_relu", [True, False])
def test_fused_rows_of_length_1_cost_their_parts(has_relu: bool) -> None:
    x = torch.randn(5, 3)
    counted = count_flops(lambda: unit_rows(x, has_relu=has_relu))
    # but for the comparison of each length
    formula = OWN_ELEMENTWISE["graphmamba::unit_rows_fused"]
    assert formula(x, has_relu) == counted.elementwise - 5
    assert OWN_ELEMENTWISE["graphmamba::unit_rows_fused_backward"](x, x, has_relu) == 15 * 6


def test_fused_losses_cost_more_the_more_they_compute() -> None:
    x = torch.randn(5, 3)
    table = {name: OWN_ELEMENTWISE[f"graphmamba::{name}_loss_fused"] for name in LOSS_KINDS}
    assert table["class"](x, None, True) == 15 * 7
    assert table["two_class"](x[:, :1], None) == 5 * 7
    assert (table["entry"](x, x, False), table["entry"](x, x, True)) == (15 * 7, 15 * 4)


def test_fused_attention_along_edges_costs_its_parts() -> None:
    nodes, features, feature = torch.randn(5, 12), torch.randn(3, 4), torch.tensor([0, 1, 2, 2, 2])
    wires = wire(torch.randint(5, (2, 5)), feature, nodes=5, shared=1)
    call = nodes, features, wires.edge_index, feature, None, None, None, 1, 2
    forward = OWN_ELEMENTWISE["graphmamba::attend_fused"](*call)
    assert forward == count_flops(lambda: attend(nodes, features, wires, 2)).elementwise
    back = OWN_ELEMENTWISE["graphmamba::attend_fused_backward"]
    assert back(*[None] * 4, *call) == 2 * forward


def test_gradients_of_a_sum_and_its_norm_cost_what_both_do() -> None:
    nodes, edges, one = torch.randn(5, 12), torch.randn(7, 3), torch.ones(3)
    ends, settings = [None] * 5, ("relu", 0.5, 0)
    table = {
        name.removeprefix("graphmamba::"): formula for name, formula in OWN_ELEMENTWISE.items()
    }
    sums = None, None, edges, one, one, None, None, *settings
    norm = [one] * 5
    back = None, None, edges, None, nodes[:, :3], None, *ends, *norm, None, None, *settings
    # the gated sum, the norm, the activation, the dropout
    whole = 2 * (table["gated_sum_fused"](nodes, edges, None) + 21 * (7 + 1 + 1))
    found = table["edge_norm_sums_fused"](*sums) + table["edge_update_fused_backward"](*back)
    assert found == whole


def test_a_pair_of_fused_norms_costs_what_both_do() -> None:
    rows, settings = torch.randn(5, 3), ("none", [0.5, 0.0], [0, 0], True)
    names = "batch_norm_act_fused", "batch_norm_pair_fused"
    single, pair = (OWN_ELEMENTWISE[f"graphmamba::{name}"] for name in names)
    first = single(rows, *[None] * 10, "none", [0.0, 0.0], [0, 0], True)
    second = single(rows, None, None, rows, rows, *[None] * 6, *settings)
    assert pair(rows, rows, rows, *[None] * 12, 0.5, 0, True) == first + second
    single, pair = (OWN_ELEMENTWISE[f"graphmamba::{name}_backward"] for name in names)
    first = single(rows, rows, rows, *[None] * 6, "none", [0.0, 0.0], [0, 0], True)
    second = single(rows, rows, rows, None, None, rows, *[None] * 3, *settings)
    assert pair(rows, rows, rows, rows, rows, *[None] * 4, 0.5, 0, True) == first + second


def test_the_fused_network_over_frequencies_costs_its_products() -> None:
    call = (5, 4), (5, 4), None, (6, 2), (6,), (3, 6), (3,)
    # twenty pairs, two numbers to six to three
    assert PRODUCTS[torch.ops.graphmamba.deep_set_fused](*call) == 2 * 20 * (2 * 6 + 6 * 3)
    back = PRODUCTS[torch.ops.graphmamba.deep_set_fused_backward]((5, 3), *call)
    assert back == 2 * 20 * (2 * 6 + 2 * 6 * 3)
