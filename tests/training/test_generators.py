"""What the processes of several runs draw."""

import torch

from graphmamba.training.generators import own_generators, process_seed


def test_no_process_of_any_run_draws_what_another_does() -> None:
    seeds = {process_seed(seed, rank) for seed in range(-5, 20) for rank in range(8)}
    assert len(seeds) == 25 * 8
    drawn = []
    for seed in seeds:
        with own_generators(seed):
            drawn.append(torch.rand(()).item())
    assert len({*drawn}) == len(seeds)


def test_a_run_of_one_process_draws_by_its_own_seed() -> None:
    assert [process_seed(seed, 0) for seed in (0, 5, -(2**63), 2**63 - 1)] == [
        *(0, 5, -(2**63), 2**63 - 1)
    ]
