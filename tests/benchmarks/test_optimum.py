"""The best expected score on CLUSTER and PATTERN, against the exact posterior of small graphs."""

import json
from dataclasses import replace
from itertools import product
from math import lgamma
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.processes import ROOT
from tests.helpers.scripts import load_script, run_script

INSIDE, BETWEEN = 0.7, 0.3


def posterior(joined: np.ndarray, known: dict[int, int], chance: np.ndarray) -> np.ndarray:
    """Posterior of the block of each node, by enumerating all assignments to two blocks."""
    nodes = len(joined)
    upper = np.triu_indices(nodes, 1)
    found, total = np.zeros((nodes, 2)), 0.0
    for rest in product(range(2), repeat=nodes - len(known)):
        free = iter(rest)
        block = np.array([known[i] if i in known else next(free) for i in range(nodes)])
        sizes = np.bincount(block, minlength=2)
        if not 5 <= sizes.min() <= sizes.max() <= 34:
            continue
        each = chance[block[:, None], block][upper]
        edges = np.log(np.where(joined[upper], each, 1 - each)).sum()
        ways = sum(lgamma(size + 1) - (np.log(size) if known else 0) for size in sizes)
        weight = np.exp(edges + ways)
        found[np.arange(nodes), block] += weight
        total += weight
    return found / total


@pytest.mark.parametrize("has_known", [True, False], ids=["cluster", "pattern"])
def test_chains_find_the_posterior(has_known: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    script, rng = load_script("optimum", monkeypatch), np.random.default_rng(3)
    nodes, known = 12, {4: 0, 9: 1} if has_known else {}
    chance = np.array([[INSIDE, BETWEEN], [BETWEEN, INSIDE if has_known else 0.5]])
    truth = np.arange(nodes) % 2
    luck = np.triu(rng.random((nodes, nodes)) < chance[truth[:, None], truth], 1)
    joined = (luck | luck.T).astype(np.int8)
    is_known = np.isin(np.arange(nodes), [*known])
    begin = np.array([known.get(i, -1) for i in range(nodes)])
    found = script.sample(joined, begin, is_known, chance, (4, 500, 10_000), 0)
    expected = posterior(joined, known, chance)
    assert np.abs(expected - 0.5).max() > 0.1
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_scores_are_better_than_chance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = load_script("optimum", monkeypatch)
    for name in ("cluster", "pattern"):
        data = replace(script.CATALOG[name], train=1, validation=2, test=3)
        monkeypatch.setitem(script.CATALOG, name, data)
    written = run_script(script, monkeypatch, tmp_path / "optimum.json", "--graphs", 2)
    rows = [(row["set"], row["split"], row["start"], row["graphs"]) for row in written["rows"]]
    ways = [("cluster", "random"), ("cluster", "labels"), ("pattern", "random")]
    assert sorted(rows) == sorted(
        (name, split, start, 2) for name, start in ways for split in ("validation", "test")
    )
    # chance is 1 in 6 communities, and 1 in 2 classes
    for row in written["rows"]:
        assert {"cluster": 0.4, "pattern": 0.7}[row["set"]] < row["optimum"] <= 1


def test_the_page_has_the_optima_of_the_record() -> None:
    record = json.loads((ROOT / "benchmarks" / "results" / "optimum_cpu.json").read_text())
    page = (ROOT / "docs" / "results.md").read_text().partition("**The best expected score**")[2]
    for row in record["rows"]:
        digits = 3 if row["set"] == "cluster" else 4
        assert f"{row['optimum']:.{digits}f}" in page.partition("\n\n**")[0]
