"""Work on many graphs side by side: a quiet bar, threads as they were, spans that cover all."""

from collections.abc import Iterator

import pytest
import torch
from threadpoolctl import threadpool_info
from torch import Tensor

from graphmamba.data import parallel
from graphmamba.data.edges import source_order, target_order
from graphmamba.data.parallel import Span, for_each_span, run_all
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import GraphColumns
from graphmamba.errors import UserError

COUNTS = [3, 0, 1, 5, 40, 2, 0, 0, 7, 4, 0]


@pytest.fixture
def two_threads() -> Iterator[None]:
    """As many as a worker does not have by itself."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_an_error_in_a_worker_is_raised_and_the_threads_are_as_before() -> None:
    def work(item: int) -> None:
        raise ZeroDivisionError(item)

    with pytest.raises(ZeroDivisionError):
        run_all(work, range(3), "Working")
    assert torch.get_num_threads() == 2


def _blas_threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_workers_share_the_cores_and_leave_the_threads_as_they_were() -> None:
    before, seen = (_blas_threads(), torch.get_num_threads()), []

    def look(_: int) -> None:
        seen.append((_blas_threads(), torch.get_num_threads()))

    run_all(look, range(4), "looking")
    assert before[0]
    assert seen == [({1}, 1)] * 4
    assert (_blas_threads(), torch.get_num_threads()) == before


def graphs_of(edge_counts: list[int], seed: int = 0) -> GraphColumns:
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randint(1, 6, (len(edge_counts),), generator=generator)
    ptrs = [
        torch.nn.functional.pad(each.cumsum(0), (1, 0))
        for each in (nodes, torch.tensor(edge_counts))
    ]
    sizes = nodes.repeat_interleave(torch.tensor(edge_counts))
    index = (torch.rand(2, len(sizes), generator=generator) * sizes).long()
    return GraphColumns(ptrs[0], ptrs[1], index, edges={"edge_attr": torch.arange(len(sizes))})


@pytest.mark.parametrize("rows", [1, 4, 1000])
@pytest.mark.parametrize("counts", [COUNTS, [0, 0], [9], []], ids=str)
def test_every_row_is_in_one_span_with_its_graph(
    monkeypatch: pytest.MonkeyPatch, rows: int, counts: list[int]
) -> None:
    monkeypatch.setattr(parallel, "ROWS", rows)
    total = sum(counts)
    ptr = torch.tensor([0, *counts]).cumsum(0)
    seen, owner = torch.zeros(total), torch.full((total,), -1)

    def work(span: Span) -> None:
        seen[span.rows] += 1
        owner[span.rows] = span.owner + span.graphs.start
        assert len(range(len(counts))[span.graphs]) >= 1

    for_each_span(ptr, work, "Counting")
    assert seen.eq(1).all()
    assert torch.equal(
        owner, torch.arange(len(counts)).repeat_interleave(torch.tensor(counts).long())
    )


def by_graph(columns: GraphColumns, end: int) -> Tensor:
    """Places that sort one end of the edges, for the whole set at once."""
    owner = torch.arange(len(columns.edge_ptr) - 1).repeat_interleave(columns.edge_ptr.diff())
    return (columns.edge_index[end] + columns.node_ptr[owner]).argsort(stable=True)


@pytest.mark.parametrize("rows", [1, 6, 1000])
def test_edges_are_sorted_as_at_once(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(parallel, "ROWS", rows)
    columns = graphs_of(COUNTS)
    given = columns.edge_index, columns.node_ptr, columns.edge_ptr
    places = target_order(*given)
    assert torch.equal(places, by_graph(columns, 1))
    first = columns.edge_ptr[:-1].repeat_interleave(columns.edge_ptr.diff())
    assert torch.equal(source_order(*given), by_graph(columns, 0) - first)
    assert target_order(columns.edge_index[:, places], *given[1:]) is None


@pytest.mark.parametrize("rows", [1, 6, 1000])
def test_a_store_gives_its_edges_back_as_they_came(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(parallel, "ROWS", rows)
    columns = graphs_of(COUNTS)
    back = GraphStore(columns).columns()
    assert torch.equal(back.edge_index, columns.edge_index)
    assert torch.equal(back.edges["edge_attr"], columns.edges["edge_attr"])
    assert back.edges.keys() == columns.edges.keys()


@pytest.mark.parametrize("rows", [1, 6, 1000])
def test_the_first_wrong_edge_is_named_in_whichever_span_it_is(
    monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    monkeypatch.setattr(parallel, "ROWS", rows)
    columns = graphs_of(COUNTS)
    columns.edge_index[1, -1] = 77
    columns.edge_index[0, int(columns.edge_ptr[4]) + 2] = -3
    size = int(columns.node_ptr.diff()[4])
    with pytest.raises(UserError, match=rf"nodes 0 to {size - 1} in graph 4, got \[-3, "):
        GraphStore(columns)
