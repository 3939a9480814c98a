"""The optimum of CLUSTER and PATTERN, against the posterior written out."""

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
    """Chances of each node's block, by all ways to assign the nodes to two blocks."""
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


def test_scores_are_those_of_the_sets_that_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    # six communities by chance are 1 in 6, and two classes 1 in 2
    for row in written["rows"]:
        assert {"cluster": 0.4, "pattern": 0.7}[row["set"]] < row["optimum"] <= 1


def test_the_page_has_what_was_found() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "fingerprints_cpu.json").read_text())
    page = (ROOT / "docs" / "results.md").read_text().partition("## Without a network")[2]
    assert f"{found['test']:.4f} on test, {found['validation']:.4f} on" in page
    record = json.loads((ROOT / "benchmarks" / "results" / "optimum_cpu.json").read_text())
    page = (ROOT / "docs" / "results.md").read_text().partition("**The best expected score**")[2]
    for row in record["rows"]:
        digits = 3 if row["set"] == "cluster" else 4
        assert f"{row['optimum']:.{digits}f}" in page.partition("\n\n**")[0]
