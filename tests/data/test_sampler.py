"""Which graphs go into which batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmamba.data.sampler import BatchSampler
from graphmamba.errors import UserError


def ids_of(count: int) -> torch.Tensor:
    """Graphs whose numbers are not their places."""
    return torch.arange(count) * 7 + 3


def epoch_of(sampler: BatchSampler) -> list[list[int]]:
    return [batch.tolist() for batch in sampler]


@st.composite
def settings(draw: st.DrawFn) -> dict[str, object]:
    world = draw(st.integers(1, 4))
    count = draw(st.integers(world, 60))
    chosen: dict[str, object] = {
        "ids": ids_of(count),
        "size": draw(st.integers(1, 20)),
        "seed": draw(st.integers(0, 5)),
        "is_shuffled": draw(st.booleans()),
        "world": world,
    }
    if draw(st.booleans()):
        costs = st.lists(st.integers(0, 40), min_size=count, max_size=count)
        chosen |= {"costs": torch.tensor(draw(costs)), "budget": draw(st.integers(1, 60))}
    return chosen


@given(chosen=settings(), epoch=st.integers(0, 3))
def test_each_graph_is_in_one_batch_and_all_ranks_step_alike(
    chosen: dict[str, object], epoch: int
) -> None:
    ranks = []
    for rank in range(chosen["world"]):
        sampler = BatchSampler(**chosen, rank=rank)
        sampler.set_epoch(epoch)
        steps = len(sampler)
        ranks.append(epoch_of(sampler))
        assert len(ranks[-1]) == steps
    assert len({len(batches) for batches in ranks}) == 1
    assert all(batch for batches in ranks for batch in batches)
    assigned = [number for batches in ranks for batch in batches for number in batch]
    assert sorted(assigned) == chosen["ids"].tolist()


@given(chosen=settings(), data=st.data())
def test_it_goes_on_anywhere(chosen: dict[str, object], data: st.DataObject) -> None:
    straight = BatchSampler(**chosen)
    expected = epoch_of(straight) + epoch_of(straight)
    stop = data.draw(st.integers(0, len(expected) - 1))
    first = BatchSampler(**chosen)
    found = []
    while len(found) < stop:
        for batch in first:
            found.append(batch.tolist())
            if len(found) == stop:
                break
    second = BatchSampler(**chosen)
    second.load_state_dict(first.state_dict())
    while len(found) < len(expected):
        found += epoch_of(second)
    assert found == expected


@given(chosen=settings())
def test_batches_keep_to_their_size_or_budget(chosen: dict[str, object]) -> None:
    sampler = BatchSampler(**chosen)
    batches = epoch_of(sampler)
    if "budget" not in chosen:
        # Where each batch has one graph, the last few have to share so that no rank runs dry.
        most = chosen["size"] if chosen["world"] == 1 else max(chosen["size"], 2)
        assert all(len(batch) <= most for batch in batches)
    elif chosen["world"] == 1:
        cost = dict(zip(chosen["ids"].tolist(), chosen["costs"].tolist(), strict=True))
        spent = [sum(cost[number] for number in batch) for batch in batches]
        assert all(
            total <= chosen["budget"] or len(batch) == 1
            for total, batch in zip(spent, batches, strict=True)
        )


def test_a_single_process_keeps_the_last_partial_batch() -> None:
    assert [len(batch) for batch in BatchSampler(ids_of(10), size=4)] == [4, 4, 2]


def test_several_processes_have_batches_of_nearly_one_size() -> None:
    sizes = [
        [len(batch) for batch in BatchSampler(ids_of(33), size=8, rank=rank, world=2)]
        for rank in range(2)
    ]
    assert sizes == [[6, 6, 5], [6, 5, 5]]


def test_every_epoch_and_seed_has_an_order_of_its_own() -> None:
    one, other = BatchSampler(ids_of(50)), BatchSampler(ids_of(50), seed=1)
    epochs = [tuple(epoch_of(one)[0]) for _ in range(3)] + [tuple(epoch_of(other)[0])]
    assert len(set(epochs)) == 4
    again = BatchSampler(ids_of(50))
    again.set_epoch(2)
    assert tuple(epoch_of(again)[0]) == epochs[2]


def test_without_shuffling_graphs_come_in_order() -> None:
    sampler = BatchSampler(ids_of(5), size=2, is_shuffled=False)
    assert epoch_of(sampler) == epoch_of(sampler) == [[3, 10], [17, 24], [31]]


def test_a_budget_makes_batches_cost_alike() -> None:
    generator = torch.Generator().manual_seed(0)
    costs = torch.randint(10, 1000, (2_000,), generator=generator)
    for world in (1, 4):
        sampler = BatchSampler(torch.arange(2_000), costs=costs, budget=20_000, world=world)
        spent = torch.tensor([int(costs[batch].sum()) for batch in sampler])
        assert int(spent.max()) <= 20_000
        assert float(spent.float().quantile(0.1)) > 17_000


def test_a_batch_may_cost_all_of_its_budget() -> None:
    costs = torch.full((6,), 5)
    sampler = BatchSampler(torch.arange(6), costs=costs, budget=10, is_shuffled=False)
    assert epoch_of(sampler) == [[0, 1], [2, 3], [4, 5]]


def test_batches_of_one_step_cost_alike_over_the_processes() -> None:
    costs = torch.randint(10, 1000, (2_000,), generator=torch.Generator().manual_seed(0))
    settings = {"ids": torch.arange(2_000), "costs": costs, "budget": 3_000, "world": 4}
    spent = torch.tensor(
        [
            [int(costs[batch].sum()) for batch in BatchSampler(**settings, rank=rank)]
            for rank in range(4)
        ]
    )
    apart = (spent.amax(dim=0) - spent.amin(dim=0)).double().mean()
    assert apart < 0.1 * spent.double().std()


def test_the_dearest_batch_is_split_in_its_middle() -> None:
    costs = torch.ones(40, dtype=torch.int64)
    ranks = [
        epoch_of(BatchSampler(ids_of(40), costs=costs, budget=40, rank=rank, world=2))
        for rank in range(2)
    ]
    assert [[len(batch) for batch in batches] for batches in ranks] == [[20], [20]]


def test_graphs_over_the_budget_are_alone_and_still_even() -> None:
    costs = torch.full((5,), 100)
    ranks = [
        epoch_of(BatchSampler(ids_of(5), costs=costs, budget=10, rank=rank, world=2))
        for rank in range(2)
    ]
    assert [len(batches) for batches in ranks] == [2, 2]


def test_a_state_of_other_settings_is_rejected() -> None:
    state = BatchSampler(ids_of(10), size=4).state_dict()
    with pytest.raises(UserError, match="size must be the same as in the saved state, 4, got 5"):
        BatchSampler(ids_of(10), size=5).load_state_dict(state)
    with pytest.raises(UserError, match="step must be one of"):
        BatchSampler(ids_of(10), size=4).load_state_dict({**state, "step": 3})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"world": 0}, "world must be at least 1, got 0"),
        ({"rank": 2, "world": 2}, "rank must be one of 0, 1, got 2"),
        ({"world": 11}, "graphs must be at least 11, got 10"),
        ({"budget": 5}, "costs and budget must be given together"),
    ],
)
def test_bad_settings_are_rejected(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BatchSampler(ids_of(10), **change)
