"""Operations by formula, and as torch counts them while the model runs."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn

from graphmamba.data.catalog import Task
from graphmamba.nn import Attention, GatedGCN, GPSLayer
from graphmamba.nn.heads import GraphHead, HeadConfig
from graphmamba.nn.message_passing import center_sums
from graphmamba.nn.model import GraphMamba, ReverseEdges, VirtualNode
from graphmamba.nn.spectral import SpectralConfig, SpectralFilter
from graphmamba.ops import causal_conv1d, selective_scan
from graphmamba.ops.edge_attention import attend, attention_graph
from graphmamba.studies.flops import (
    OWN_ELEMENTWISE,
    PRODUCTS,
    SCANS,
    BatchSize,
    Flops,
    count_flops,
    forward_flops,
    layer_flops,
)
from graphmamba.training.experiment import Experiment, load_experiment
from tests.helpers.experiments import generated_batch
from tests.helpers.graphs import random_rows, random_topology

ELEMENTWISE_SHARE = 0.1
"""How far formula and count may be apart in pointwise work: attention has a path for each kind of
mask and dropout, which scale the scores, the mask and the dropped in their own ways."""

NAMES = (
    "peptides-func/graph-mamba",
    "malnet-tiny/graph-mamba",
    "cluster/gps-transformer",
    "pcqm-contact/gps-performer",
    "peptides-func/gps-bigbird",
    "pascalvoc-sp/exphormer",
    "peptides-func/gatedgcn",
    "peptides-func/gatedgcn-tuned",
    "peptides-func/gcn-plus",
    "pcqm-contact/gine-tuned",
    "cluster/gcn",
    "mnist/gin",
    "cluster/graph-mamba-plus",
    "malnet-tiny/graph-mamba-plus",
    "peptides-func/graph-mamba-spectral",
)
OVERRIDES: dict[str, dict[str, object]] = {
    "both ways": {"model.ordering.direction": "bidirectional"},
    "normed": {"model.input_norm": "layer", "model.norm": "layer"},
    "alone": {"model.local_model": "none"},
    "standardised": {"encoder.normalize_inputs": "pascalvoc-sp", "head.dropout": 0.1},
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


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.parametrize("local_model", [GatedGCN, None], ids=["gatedgcn", "alone"])
def test_dropouts_are_counted_wherever_a_layer_drops(
    local_model: type[GatedGCN] | None, norm: str
) -> None:
    topology = random_topology((9, 4))
    x, e = random_rows(topology)
    size = BatchSize(graphs=2, nodes=13, edges=len(e), longest=9)
    found = []
    for rate in (0.0, 0.1):
        near = None if local_model is None else local_model(8, dropout=rate)
        layer = GPSLayer(8, near, Attention(8, 2), dropout=rate, norm=norm)
        counted = count_flops(lambda own=layer: own(x, e, topology))
        found.append((layer_flops(layer, size).elementwise, counted.elementwise))
    formula, counted = (after - before for before, after in zip(*found, strict=True))
    # outside of kernels the mask is scaled by an operation of its own
    assert counted == 2 * formula > 0


BY_HAND: dict[str, Callable[[BatchSize], int]] = {
    "cluster/graph-mamba-plus": lambda size: (
        size.nodes * (7 * 24 + 20 * 20)
        + 16 * size.nodes * (4 * 44**2 + 44 * 32 + 2 * (16 * 35 + 3 * 16) + 16 * 44 + 2 * 44 * 88)
        + 16 * size.edges * 44**2
        + 15 * size.graphs * 2 * 44**2
        + size.nodes * (2 * 44**2 + 44 * 6)
    ),
    "malnet-tiny/graph-mamba-plus": lambda size: (
        size.nodes * (5 * 80 + 80**2)
        + 6 * size.nodes * (4 * 80**2 + 80 * 64 + 2 * (32 * 37 + 5 * 32) + 32 * 80 + 2 * 80 * 160)
        + 6 * 2 * size.edges * 80**2
        + size.graphs * (160 * 80 + 80**2 + 80 * 5)
    ),
    "peptides-func/graph-mamba-spectral": lambda size: (
        size.nodes * (174 * 164 + 20 * 28)
        + 3 * size.nodes * (192**2 + 192 * 128 + 2 * (64 * 44 + 12 * 64) + 64 * 192 + 2 * 192 * 10)
        + 3 * size.graphs * 64 * (60 * 39 + 39 * 192 + 2 * size.longest * 192)
        + size.graphs * (384 * 192 + 192**2 + 192 * 10)
    ),
}
"""Multiply-adds by the widths of the presets: encoder, layers (of nodes, of edges or eigenvalues),
virtual node, head."""


@pytest.mark.parametrize("name", BY_HAND)
def test_presets_have_the_products_of_a_hand_count(name: str) -> None:
    experiment = load_experiment(name)
    model = experiment.build()
    batch = generated_batch(experiment, model, count=3, nodes=(5, 16))
    size = BatchSize.of(batch)
    expected = 2 * BY_HAND[name](size)
    assert forward_flops(model, size).products == expected
    assert count_flops(lambda: model(batch)).products == expected


N, G, D = 13, 2, 8
TOPOLOGY = random_topology((9, 4))
X, E = random_rows(TOPOLOGY, D)
M = len(E)
TASK = Task("graph", outputs=3, loss="cross_entropy", metric="accuracy", classes=3)
EIGEN, GAUSSIANS = SpectralConfig(num_eigenvectors=4, gaussians=6), 6
SPECTRA = replace(
    TOPOLOGY,
    columns={"laplacian_vectors": torch.randn(N, 4), "laplacian_values": torch.rand(N, 4)},
)
MODULES: dict[str, tuple[Callable[[], object], Flops]] = {
    # sums of rows and degrees, quotients and roots, then three for each number
    "centred sums": (
        lambda: center_sums(X, TOPOLOGY),
        Flops(elementwise=N * (D + 1) + G * (D + 3) + 3 * N * D),
    ),
    # two maps; the sum, norm, ReLU, and the row that nodes get
    "virtual node": (
        lambda: VirtualNode(D)(X, None, TOPOLOGY),
        Flops(products=2 * 2 * G * D * D, elementwise=2 * N * D + (7 + 1) * G * D),
    ),
    "virtual node, later": (
        lambda: VirtualNode(D)(X, torch.ones(G, D), TOPOLOGY),
        Flops(products=2 * 2 * G * D * D, elementwise=2 * N * D + (7 + 2) * G * D),
    ),
    "reverse edges": (lambda: ReverseEdges(D)(E), Flops(elementwise=M * D)),
    # sums and maxima, and one quotient
    "mean and maximum": (
        lambda: GraphHead(D, TASK, HeadConfig(pooling="mean+max"))(X, TOPOLOGY),
        Flops(products=2 * G * 2 * D * 3, elementwise=2 * N * D + G * D),
    ),
    # window and Gaussians of each eigenvalue; to the spectrum of nine slots and back, a filter of
    # width 2, a gate of width 1
    "spectral filter": (
        lambda: SpectralFilter(D, EIGEN)(X, SPECTRA),
        Flops(
            products=4 * G * 9 * 4 * D + 2 * G * 4 * (6 * 2 + 2 * D) + 2 * N * 2 * D,
            elementwise=GAUSSIANS + G * 4 * (10 + 5 * GAUSSIANS + 2 * D) + 2 * N * D,
        ),
    ),
}


@pytest.mark.parametrize(("call", "expected"), MODULES.values(), ids=MODULES)
def test_parts_of_the_newer_presets_cost_what_a_hand_count_says(
    call: Callable[[], object], expected: Flops
) -> None:
    assert count_flops(call) == expected


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


def test_every_operator_of_a_forward_pass_has_a_formula_and_others_are_rejected() -> None:
    names = {name for name in torch._C._dispatch_get_all_op_names() if "graphmamba::" in name}
    ours = {name.removeprefix("graphmamba::") for name in names}
    known = {operator.__name__ for operator in (*SCANS, *PRODUCTS)} | OWN_ELEMENTWISE.keys()
    # steps and sums that a backward pass finds again, losses with their gradients
    others = re.compile("backward|grad|loss|column_sums|add_up|edge_norm_sums|raw_steps")
    assert {name for name in ours - known if not others.search(name)} == set()
    x = torch.randn(9, 3, requires_grad=True)
    cu_seqlens = torch.tensor([0, 9])
    out = causal_conv1d(x, torch.randn(3, 2), cu_seqlens=cu_seqlens).sum()
    with pytest.raises(NotImplementedError, match=r"conv1d_.*backward has no formula"):
        count_flops(out.backward)


ROWS, NONE = torch.randn(5, 3), None


@pytest.mark.parametrize(
    ("name", "call", "expected"),
    [
        ("segment_sum_triton", (ROWS, NONE, NONE, NONE), 15),
        ("segment_take_triton", (ROWS, NONE, NONE, NONE), 0),
        ("segment_max_triton", (ROWS, NONE, NONE), 15),
    ],
)
def test_triton_operators_cost_what_their_parts_do(
    name: str, call: tuple[object, ...], expected: int
) -> None:
    assert OWN_ELEMENTWISE[name](*call) == expected


def test_triton_operators_cost_what_is_counted_of_the_plain_form() -> None:
    nodes, features, feature = torch.randn(5, 12), torch.randn(3, 4), torch.tensor([0, 1, 2, 2, 2])
    graph = attention_graph(torch.randint(5, (2, 5)), feature, nodes=5, shared=1)
    call = nodes, features, graph.edge_index, feature, None, None, None, 1, 2
    counted = count_flops(lambda: attend(nodes, features, graph, 2)).elementwise
    assert OWN_ELEMENTWISE["attend_triton"](*call) == counted
