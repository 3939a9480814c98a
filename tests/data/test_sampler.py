"""Which graphs go into which batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmamba.data.sampler import BatchSampler, batches_by_cost
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
    return {
        "ids": ids_of(count),
        "size": draw(st.integers(1, 20)),
        "seed": draw(st.integers(0, 5)),
        "is_shuffled": draw(st.booleans()),
        "world": world,
    }


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


@given(costs=st.lists(st.integers(0, 40), min_size=1, max_size=60), budget=st.integers(1, 60))
def test_batches_are_closed_where_the_next_graph_does_not_fit(
    costs: list[int], budget: int
) -> None:
    ids = ids_of(len(costs))
    batches = batches_by_cost(ids, torch.tensor(costs), budget)
    assert torch.equal(torch.cat(batches), ids)
    cost = dict(zip(ids.tolist(), costs, strict=True))
    spent = [sum(cost[number] for number in batch.tolist()) for batch in batches]
    for place, (total, batch) in enumerate(zip(spent, batches, strict=True)):
        assert total <= budget or len(batch) == 1
        if place + 1 < len(batches):
            assert total + cost[int(batches[place + 1][0])] > budget


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
    ],
)
def test_bad_settings_are_rejected(change: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        BatchSampler(ids_of(10), **change)
