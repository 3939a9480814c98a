"""Rivals with the very same score."""

import torch

from graphmamba.training.ranking import LinkRanking, ranks
from tests.training.test_metrics import links_of


def test_a_rival_of_the_same_score_ranks_behind() -> None:
    links = links_of([(0, 1)], [1], [4])
    equal = torch.ones(4, 1)
    assert ranks(equal, links).flatten().tolist() == [1, 1, 1]
    metric = LinkRanking()
    metric.update(equal, links)
    assert metric.compute()["mrr"] == 1.0
    # one that is better by the least that there is ranks before
    equal[2] = 1.0 + torch.finfo().eps
    assert ranks(equal, links).flatten().tolist() == [2, 2, 2]
