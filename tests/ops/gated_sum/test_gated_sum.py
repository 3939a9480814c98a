"""The gated sum through its door, by the backend that `auto` picks on each device."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from graphmamba.errors import UserError
from graphmamba.ops.edge_layout import lay_out_edges
from graphmamba.ops.gated_sum import gated_sum
from tests.helpers.agreement import assert_bit_equal, max_error, poison_allocations
from tests.helpers.gated_calls import Call, assert_gated_right, by_door, draw
from tests.helpers.typecheck import typecheck_off

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
on_each_device = pytest.mark.parametrize("device", DEVICES)
in_each_order = pytest.mark.parametrize("is_sorted", [True, False], ids=["sorted", "shuffled"])
HUBS = (2, 0, 300, 1, 1, 3, 0, 70, 2, 5)


@st.composite
def calls(draw_one: st.DrawFn) -> Call:
    degrees = st.one_of(st.integers(0, 5), st.integers(0, 90))
    return draw(
        draw_one(st.lists(degrees, min_size=1, max_size=20)),
        draw_one(st.sampled_from([1, 15, 16, 48, 52, 64, 95, 96])),
        is_sorted=draw_one(st.booleans()),
        has_scale=draw_one(st.booleans()),
        ends=draw_one(st.sampled_from([("d_x",), ("d_e",), ("d_x", "d_e")])),
        seed=draw_one(st.integers(0, 100)),
    )


@on_each_device
@settings(max_examples=40)
@given(call=calls())
def test_outputs_and_gradients_are_as_exact_as_the_reference(device: str, call: Call) -> None:
    assert_gated_right(call, device=device)


@in_each_order
@pytest.mark.parametrize("has_scale", [False, True], ids=["bare", "scale"])
def test_double_precision_is_kept(is_sorted: bool, has_scale: bool) -> None:
    call = draw(HUBS, 20, is_sorted=is_sorted, has_scale=has_scale)
    truth = by_door(call, "reference")
    for name, value in by_door(call, "cpu").items():
        assert max_error(value, truth[name]) <= 1e-11, name


@in_each_order
@pytest.mark.parametrize("has_scale", [False, True], ids=["bare", "scale"])
def test_gradients_are_those_of_small_differences(is_sorted: bool, has_scale: bool) -> None:
    call = draw((2, 0, 1, 4), 2, is_sorted=is_sorted, has_scale=has_scale)

    def run(nodes: Tensor, edges: Tensor, *scale: Tensor) -> tuple[Tensor, Tensor]:
        return gated_sum(nodes, edges, call.layout(), *scale)

    leaves = [x.requires_grad_() for x in (call.nodes, call.edges, call.scale) if x is not None]
    assert torch.autograd.gradcheck(run, leaves)


@on_each_device
@in_each_order
def test_repeats_are_bit_equal(is_sorted: bool, device: str) -> None:
    call = draw(HUBS * 8, is_sorted=is_sorted, has_scale=True).to(torch.float32)
    first = by_door(call, device=device)
    for _ in range(3):
        assert_bit_equal(first, by_door(call, device=device))


def test_bits_do_not_depend_on_threads() -> None:
    call = draw(HUBS * 8, has_scale=True).to(torch.float32)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5):
            torch.set_num_threads(count)
            results.append(by_door(call))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert_bit_equal(results[0], other)


@on_each_device
def test_shuffled_edges_give_the_rows_of_the_sorted_ones(device: str) -> None:
    call = draw(HUBS, has_scale=True).to(torch.float32)
    order = torch.randperm(call.edges.shape[0], generator=torch.Generator().manual_seed(1))
    shuffled = replace(
        call,
        edges=call.edges[order],
        scale=call.scale[order],
        edge_index=call.edge_index[:, order],
        source_order=None,
        d_e=call.d_e[order],
    )
    ours, others = (by_door(one, device=device) for one in (call, shuffled))
    assert torch.equal(ours["e_hat"][order], others["e_hat"])
    for name in ("x_hat", "d_nodes"):
        torch.testing.assert_close(ours[name], others[name], rtol=1e-4, atol=1e-4)
    for name in ("d_edges", "d_scale"):
        torch.testing.assert_close(ours[name][order], others[name], rtol=1e-4, atol=1e-5)


@on_each_device
def test_graphs_do_not_leak_into_one_another(device: str) -> None:
    halves = [draw(HUBS, has_scale=True, seed=seed).to(torch.float32) for seed in (0, 1)]
    nodes, edges = (halves[0].nodes.shape[0], halves[0].edges.shape[0])

    def joined(second: Call) -> Call:
        pairs = {
            name: torch.cat([getattr(halves[0], name), getattr(second, name)])
            for name in ("nodes", "edges", "scale", "d_x", "d_e")
        }
        edge_index = torch.cat([halves[0].edge_index, second.edge_index + nodes], dim=1)
        return Call(**pairs, edge_index=edge_index, source_order=edge_index[0].argsort(stable=True))

    dirty = replace(
        halves[1],
        nodes=torch.full_like(halves[1].nodes, torch.nan),
        edges=torch.full_like(halves[1].edges, torch.inf),
        d_x=torch.full_like(halves[1].d_x, torch.nan),
    )
    ours, others = (by_door(joined(second), device=device) for second in (halves[1], dirty))
    for name in ours:
        kept = nodes if name in {"x_hat", "d_nodes"} else edges
        assert torch.equal(ours[name][:kept], others[name][:kept]), name


@on_each_device
@in_each_order
def test_all_that_is_allocated_is_written(
    is_sorted: bool, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = draw(HUBS, is_sorted=is_sorted, has_scale=True).to(torch.float32)
    clean = by_door(call, device=device)
    poison_allocations(monkeypatch)
    assert_bit_equal(clean, by_door(call, device=device))


@on_each_device
def test_nodes_without_edges_keep_their_own_rows(device: str) -> None:
    call = draw((0, 0, 0), 5).to(torch.float32)
    results = by_door(call, device=device)
    assert torch.equal(results["x_hat"], call.nodes[:, :5])
    assert torch.equal(results["d_nodes"][:, :5], call.d_x)
    assert not results["d_nodes"][:, 5:].any()
    assert by_door(draw((), 5).to(torch.float32), device=device)["d_nodes"].shape == (0, 20)


@on_each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_halves_are_float32_with_rounded_ends(dtype: torch.dtype, device: str) -> None:
    call = draw((2, 0, 30, 1, 4), has_scale=True).to(dtype)
    wide = by_door(call.to(torch.float32), device=device)
    for name, value in by_door(call, device=device).items():
        assert value.dtype == dtype
        torch.testing.assert_close(value.float(), wide[name], rtol=2**-6, atol=2**-5)


@on_each_device
def test_views_of_wider_rows_are_as_good_as_copies(device: str) -> None:
    call = draw(HUBS, 12).to(torch.float32)
    views = replace(
        call,
        nodes=torch.cat([call.nodes, call.nodes], dim=1)[:, :48],
        edges=call.edges.t().contiguous().t(),
        d_x=call.d_x.t().contiguous().t(),
        d_e=torch.cat([call.d_e, call.d_e], dim=1)[:, 12:],
    )
    assert_bit_equal(by_door(call, device=device), by_door(views, device=device))


@in_each_order
@pytest.mark.parametrize("has_scale", [False, True], ids=["bare", "scale"])
def test_operators_keep_the_rules_of_pytorch(is_sorted: bool, has_scale: bool) -> None:
    call = draw((2, 0, 3, 1), 5, is_sorted=is_sorted, has_scale=has_scale).to(torch.float32)
    layout = call.layout()
    leaves = [
        None if x is None else x.requires_grad_() for x in (call.nodes, call.edges, call.scale)
    ]
    places = layout.edge_index, layout.target_ptr, layout.target_order
    operator = torch.ops.graphmamba.gated_sum_cpu.default
    sources = layout.source_ptr, layout.source_order
    torch.library.opcheck(operator, (*leaves, *places, *sources))


def test_it_can_be_differentiated_once() -> None:
    call = draw((2, 3), 4)
    nodes = call.nodes.requires_grad_()
    x_hat, _ = gated_sum(nodes, call.edges, call.layout(), backend="cpu")
    (gradient,) = torch.autograd.grad(x_hat.square().sum(), nodes, create_graph=True)
    with pytest.raises(NotImplementedError, match="gated_sum_cpu can be differentiated only once"):
        gradient.sum().backward()


ROWS, EDGES = torch.ones(3, 8), torch.ones(4, 2)
PAIRS = torch.tensor([[0, 1, 2, 0], [0, 1, 1, 2]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes": ROWS.long()}, r"nodes.dtype must be one of .* backend 'cpu', got torch.int64"),
        ({"edges": EDGES.double()}, r"edges.dtype must be that of nodes, torch.float32"),
        ({"edges": torch.ones(4, 3)}, r"four times the columns of edges, got shapes \(3, 8\) and"),
        ({"nodes": torch.ones(4, 8)}, r"nodes must have 3 rows.*got 4"),
        ({"edges": torch.ones(5, 2)}, r"edges must have 4 rows.*got 5"),
        ({"scale": torch.ones(3)}, r"scale must have shape \(edges 4,\), got \(3,\)"),
        ({"scale": torch.ones(4, device="meta")}, r"scale.device must be that of nodes, cpu"),
        ({"backend": "mamba"}, r"backend must be one of .* got 'mamba'"),
    ],
)
def test_wrong_arguments_are_refused(changes: dict[str, object], message: str) -> None:
    arguments = {"nodes": ROWS, "edges": EDGES, "layout": lay_out_edges(PAIRS, 3), **changes}
    with typecheck_off(), pytest.raises(ValueError, match=message):
        gated_sum(**arguments)


def test_a_layout_of_another_device_is_refused() -> None:
    layout = lay_out_edges(PAIRS.to("meta"), 3)
    with pytest.raises(UserError, match=r"layout.device must be that of nodes, cpu, got meta"):
        gated_sum(ROWS, EDGES, layout)
