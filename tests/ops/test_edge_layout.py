import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch_geometric.data import Data

from graphmamba.data.store import GraphStore
from graphmamba.errors import UserError
from graphmamba.ops.edge_layout import lay_out_edges
from tests.helpers.typecheck import typecheck_off

PAIRS = st.integers(1, 8).flatmap(
    lambda nodes: st.tuples(
        st.just(nodes),
        st.lists(st.tuples(*[st.integers(0, nodes - 1)] * 2), max_size=30),
    )
)


@given(PAIRS)
def test_every_node_finds_its_edges_in_the_order_in_which_they_came(
    drawn: tuple[int, list[tuple[int, int]]],
) -> None:
    nodes, pairs = drawn
    edge_index = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t()
    layout = lay_out_edges(edge_index, nodes)
    orders = (layout.source_order, layout.source_ptr), (layout.target_order, layout.target_ptr)
    for line, (order, ptr) in zip(edge_index, orders, strict=True):
        assert order is not None
        for node in range(nodes):
            mine = order[int(ptr[node]) : int(ptr[node + 1])]
            assert torch.equal(mine, (line == node).nonzero().flatten())


def test_batches_of_a_store_bring_their_order() -> None:
    edges = torch.tensor([[2, 0, 1, 2], [1, 2, 0, 0]])
    graphs = [Data(x=torch.ones(3, 1), edge_index=edges) for _ in range(3)]
    batch = GraphStore.from_pyg(graphs).batch(torch.tensor([2, 0]), by_source=True)
    ours = lay_out_edges(batch.edge_index, 6, batch.source_order)
    assert ours.target_order is None
    sorted_anew = lay_out_edges(batch.edge_index, 6)
    assert torch.equal(sorted_anew.target_order, torch.arange(8))
    for name in ("target_ptr", "source_ptr", "source_order"):
        assert torch.equal(getattr(ours, name), getattr(sorted_anew, name)), name


SORTED = torch.tensor([[1, 0, 0], [0, 0, 1]])


@pytest.mark.parametrize(
    ("edge_index", "source_order", "message"),
    [
        (SORTED + 1, None, r"edge_index must hold numbers of the 2 nodes, 0 to 1, got 2"),
        (SORTED - 1, None, r"edge_index must hold numbers of the 2 nodes, 0 to 1, got -1"),
        (SORTED.flip(1), torch.tensor([0, 1, 2]), r"edge_index must be sorted by target"),
        (SORTED, torch.tensor([0, 1, 2]), r"source_order must sort the edges by source"),
        (
            SORTED,
            torch.tensor([1, 2, 3]),
            r"source_order must hold numbers of the 3 edges, 0 to 2, got 3",
        ),
        (
            SORTED,
            torch.tensor([1, -1, 0]),
            r"source_order must hold numbers of the 3 edges, 0 to 2, got -1",
        ),
        (SORTED, torch.tensor([1, 1, 0]), r"source_order must hold each edge once, got 1 again"),
        (SORTED, torch.tensor([1, 2]), r"source_order must have shape \[3\], got \[2\]"),
        (SORTED, torch.tensor([1.0, 2.0, 0.0]), r"source_order must hold integers, got .*float32"),
        (SORTED.t(), None, r"edge_index must have shape \[2, edges\], got \[3, 2\]"),
        (SORTED.float(), None, r"edge_index must hold integers, got torch.float32"),
    ],
)
def test_wrong_edges_are_rejected(
    edge_index: torch.Tensor, source_order: torch.Tensor | None, message: str
) -> None:
    with typecheck_off(), pytest.raises(UserError, match=message):
        lay_out_edges(edge_index, 2, source_order)
