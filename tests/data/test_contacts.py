"""Wrong pairs for link prediction."""

import torch

from graphmamba.data.contacts import draw_negatives, with_negatives

NODE_PTR = torch.tensor([0, 30, 31, 60])
POSITIVES = torch.tensor([[0, 5, 31, 40, 7, 9], [5, 0, 40, 31, 9, 7]])


def pairs_of(index: torch.Tensor) -> list[tuple[int, int]]:
    return [(int(i), int(j)) for i, j in index.T]


def test_two_wrong_pairs_for_each_true_one_in_the_same_graph() -> None:
    drawn, can_serve = draw_negatives(POSITIVES, NODE_PTR, torch.tensor(0))
    assert can_serve.all()
    graph = torch.searchsorted(NODE_PTR, drawn, right=True)
    assert torch.equal(graph[0], graph[1])
    assert drawn[0].bincount(minlength=60)[POSITIVES[0]].tolist() == [2] * 6
    assert not set(pairs_of(drawn)) & set(pairs_of(POSITIVES))
    assert len(set(pairs_of(drawn))) == drawn.shape[1]


def test_same_seed_same_pairs() -> None:
    first, second, other = (
        draw_negatives(POSITIVES, NODE_PTR, torch.tensor(seed))[0] for seed in (1, 1, 2)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_pairs_that_cannot_be_had_are_left_out() -> None:
    # of three pairs with node 0 two are true, so that one is wrong; four are asked for
    positives = torch.tensor([[0, 0], [1, 2]])
    drawn, can_serve = draw_negatives(positives, torch.tensor([0, 3]), torch.tensor(0))
    assert pairs_of(drawn[:, can_serve]) == [(0, 0)]


def test_tails_are_uniform_over_what_is_left() -> None:
    positives = torch.tensor([[0], [1]])
    drawn = [
        draw_negatives(positives, torch.tensor([0, 5]), torch.tensor(seed)) for seed in range(2_000)
    ]
    tails = torch.cat([pairs[1, can_serve] for pairs, can_serve in drawn])
    share = tails.bincount(minlength=5) / len(tails)
    assert share[1] == 0
    # 4,000 tails: over four standard deviations of a share of a quarter
    assert (share[[0, 2, 3, 4]] - 0.25).abs().max() < 0.03


def test_labels_say_which_pairs_are_true() -> None:
    pairs, label = with_negatives(POSITIVES, NODE_PTR, torch.tensor(0))
    assert torch.equal(pairs[:, label == 1], POSITIVES)
    assert (label == 0).sum() == 12


def test_pairs_of_a_padding_graph_do_not_count_and_change_no_other() -> None:
    pairs, label = with_negatives(POSITIVES, NODE_PTR, torch.tensor(5))
    padded = torch.cat([POSITIVES, torch.tensor([[60, 61], [60, 61]])], dim=1)
    ptr = torch.cat([NODE_PTR, torch.tensor([64])])
    ours, labels = with_negatives(padded, ptr, torch.tensor(5), torch.tensor(60))
    counts = ~labels.isnan()
    assert torch.equal(ours[:, counts], pairs)
    assert torch.equal(labels[counts], label)


def test_no_true_pairs_no_wrong_ones() -> None:
    pairs, label = with_negatives(POSITIVES[:, :0], NODE_PTR, torch.tensor(0))
    assert pairs.shape == (2, 0)
    assert label.shape == (0,)
