"""The best score that a model can expect on CLUSTER and PATTERN, on the sets that are drawn here.

    PYTHONPATH=src python benchmarks/optimum.py --out FILE.json

Both sets are draws of a stochastic block model, so that the posterior of each node's block given
the graph is known up to a factor. It is found by Gibbs sampling; the best decision by it has the
best mean of recalls (`accuracy_sbm`). In CLUSTER chains stick where two communities are exchanged:
Metropolis moves exchange all unknown members of two. Chains that begin at the labels say whether
those that begin at random have come to the same. In PATTERN the features, and that the graphs share
their patterns, are left aside: a model that learns the patterns by heart may know more.
"""

import argparse
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from rich.console import Console

from graphmamba.data.catalog import CATALOG
from graphmamba.data.datasets import sbm
from graphmamba.data.tables import GraphColumns
from graphmamba.environment import describe
from graphmamba.studies.report import table, write_json
from graphmamba.training.metrics import make_metrics

RESULTS = Path(__file__).parent / "results"
SPLITS = {"validation": 1, "test": 2}
SMALLEST, LARGEST = sbm.SMALLEST, sbm.LARGEST


@dataclass(frozen=True)
class Chains:
    """How long is sampled."""

    chains: int = 4
    burn_in: int = 200
    sweeps: int = 400


def main() -> None:
    """Draw, sample, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sets", nargs="*", default=["cluster", "pattern"])
    parser.add_argument("--graphs", type=int, default=2000, help="of each part, the first ones")
    parser.add_argument(
        "--seed", type=int, default=0, help="of the sets; runs are made on those of 0"
    )
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="threads")
    parser.add_argument("--out", type=Path, default=RESULTS / "optimum_cpu.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    rows = []
    for name in options.sets:
        data = CATALOG[name]
        draw = {"cluster": sbm.generate_cluster, "pattern": sbm.generate_pattern}[name]
        columns = draw((data.train, data.validation, data.test), options.seed)
        for split in SPLITS:
            ids = ids_of(columns, split)[: options.graphs]
            # a pattern is found from anywhere
            for start in ("random", "labels") if name == "cluster" else ("random",):
                score = optimum(name, columns, ids, start, options.processes)
                row = {"set": name, "split": split, "graphs": len(ids), "start": start}
                rows.append({**row, "optimum": score})
                write_json(options.out, content(options.commit, options.seed, rows))
    texts = [
        [row["set"], row["split"], row["start"], f"{row['graphs']:,}", f"{row['optimum']:.4f}"]
        for row in rows
    ]
    columns_shown = ["set", "split", "chains begin at", "graphs", "accuracy"]
    Console().print(table("The best expected score", columns_shown, texts, words=3))


def content(commit: str | None, seed: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All that was found, and where."""
    environment = describe(torch.device("cpu"), commit)
    return {"environment": environment, "seed": seed, "chains": Chains(), "rows": rows}


def ids_of(columns: GraphColumns, split: str) -> list[int]:
    """Numbers of the graphs of one part."""
    assert columns.split is not None
    return (columns.split == SPLITS[split]).nonzero()[:, 0].tolist()


def optimum(
    name: str,
    columns: GraphColumns,
    ids: list[int],
    start: str,
    threads: int = 1,
    chains: Chains = Chains(),  # noqa: B008
) -> float:
    """Score the best decision for the nodes of some graphs, each sampled by its own seed."""

    def one(number: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = marginals(name, columns, number, start, chains)
        if name == "pattern":
            # the mean of two recalls asks for the pattern where it is likelier than without a look
            found = found[:, -1:] - 1 / found.shape[1]
        begin, end = columns.node_ptr[number : number + 2].tolist()
        return torch.from_numpy(found), columns.nodes["y"][begin:end]

    (metric,) = make_metrics(CATALOG[name].task)
    with ThreadPoolExecutor(threads) as pool:
        for prediction, target in pool.map(one, ids):
            metric.update(prediction.float(), target)
    return metric.compute()["accuracy_sbm"]


def marginals(
    name: str, columns: GraphColumns, number: int, start: str, chains: Chains
) -> np.ndarray[Any, Any]:
    """Chances of each node's block given the graph, [nodes, blocks]; the last is the pattern."""
    begin, end = columns.node_ptr[number : number + 2].tolist()
    first, last = columns.edge_ptr[number : number + 2].tolist()
    source, target = columns.edge_index[:, first:last].numpy()
    joined = np.zeros((end - begin, end - begin), np.int8)
    joined[target, source] = 1
    y, x = columns.nodes["y"][begin:end].numpy(), columns.nodes["x"][begin:end].numpy()
    is_known = (x[:, 0] == 0) if name == "cluster" else np.zeros(len(y), bool)
    block = np.where(is_known | (start == "labels"), y, -1)
    lengths = (chains.chains, chains.burn_in, chains.sweeps)
    return sample(joined, block, is_known, chances(name), lengths, number)


def chances(name: str) -> np.ndarray[Any, Any]:
    """Chance of an edge by the blocks of its ends, as the recipe has it."""
    if name == "cluster":
        count, inside, between = sbm.CLUSTER_COMMUNITIES, sbm.CLUSTER_INSIDE, sbm.CLUSTER_BETWEEN
    else:
        count, inside = sbm.PATTERN_COMMUNITIES + 1, sbm.PATTERN_INSIDE
        between = sbm.PATTERN_BETWEEN
    chance = np.full((count, count), between)
    np.fill_diagonal(chance, inside)
    if name == "pattern":
        chance[-1], chance[:, -1] = sbm.PATTERN_EDGE, sbm.PATTERN_EDGE
    return chance


# Compiled below. `joined` is [nodes, nodes], `near` counts the neighbours in each block, [blocks,
# nodes], `sizes` the nodes of each block.


def _near(joined: Any, block: Any, blocks: int) -> Any:
    near = np.zeros((blocks, len(block)), np.int64)
    for i in range(len(block)):
        near[block[i]] += joined[i]
    return near


def _start(begin: Any, blocks: int) -> Any:
    """Assign unknown nodes to blocks in turn, which gives none more than a block may have."""
    block, turn = begin.copy(), 0
    for i in np.random.permutation(len(block)):  # noqa: NPY002
        if block[i] < 0:
            block[i] = turn % blocks
            turn += 1
    return block


def _exchange(joined: Any, block: Any, is_known: Any, blocks: int, ratio: float) -> bool:
    """Exchange all unknown members of two blocks; edges of the two known nodes decide."""
    known = np.zeros(blocks, np.int64)
    for i in np.flatnonzero(is_known):
        known[block[i]] = i
    is_changed = False
    for a in range(blocks):
        for b in range(a):
            gain = 0
            for i in np.flatnonzero(~is_known):
                change = joined[i, known[b]] - joined[i, known[a]]
                gain += change * ((block[i] == a) - (block[i] == b))
            if np.log(np.random.random()) < gain * ratio:  # noqa: NPY002
                is_changed = True
                for i in np.flatnonzero(~is_known):
                    if block[i] in (a, b):
                        block[i] = a + b - block[i]
    return is_changed


def _shares(
    near: Any, i: int, sizes: Any, old: int, logs: Any, heat: float, more: int, shares: Any
) -> None:
    """Write the chances of node i's block, given the neighbours and sizes without it."""
    blocks, total = len(sizes), 0.0
    top = -np.inf
    for r in range(blocks):
        shares[r] = -np.inf
        # none is left with less than SMALLEST nodes, or has more than LARGEST
        if sizes[r] < LARGEST and (r == old or sizes[old] >= SMALLEST):
            seen = 0.0
            for other in range(blocks):
                seen += near[other, i] * logs[0, r, other] + sizes[other] * logs[1, r, other]
            shares[r] = heat * seen + np.log(sizes[r] + more)
            top = max(top, shares[r])
    for r in range(blocks):
        shares[r] = np.exp(shares[r] - top)
        total += shares[r]
    shares /= total


def _sample(joined: Any, begin: Any, is_known: Any, chance: Any, lengths: Any, seed: int) -> Any:
    """Chances of each node's block, averaged over sweeps and chains, [nodes, blocks]."""
    np.random.seed(seed)  # noqa: NPY002
    chains, burn_in, sweeps = lengths
    nodes, blocks, has_known = len(begin), len(chance), is_known.any()
    # what an edge is worth over none, and what none is
    logs = np.stack((np.log(chance / (1 - chance)), np.log(1 - chance)))
    ratio = logs[0, 0, 0] - logs[0, 0, 1]
    # (s + 1)! / s! ways to be in a block, in 1 / (s + 1) of which its known node is the known one
    more = 0 if has_known else 1
    found, shares = np.zeros((nodes, blocks)), np.zeros(blocks)
    for _ in range(chains):
        block = start_at(begin, blocks)
        near, sizes = near_of(joined, block, blocks), np.bincount(block, minlength=blocks)
        for turn in range(burn_in + sweeps):
            # annealed in the first half of the burn-in: edges count for more and more
            heat = min(1.0, 2 * (turn + 1) / (burn_in + 1))
            for i in np.flatnonzero(~is_known):
                old = block[i]
                sizes[old] -= 1
                shares_of(near, i, sizes, old, logs, heat, more, shares)
                if turn >= burn_in:
                    found[i] += shares
                left, new = np.random.random(), 0  # noqa: NPY002
                while new < blocks - 1 and left >= shares[new]:
                    left -= shares[new]
                    new += 1
                block[i] = new
                sizes[new] += 1
                if new != old:
                    near[old] -= joined[i]
                    near[new] += joined[i]
            if has_known and exchange(joined, block, is_known, blocks, heat * ratio):
                near, sizes = near_of(joined, block, blocks), np.bincount(block, minlength=blocks)
    for i in np.flatnonzero(is_known):
        found[i, begin[i]] = sweeps * chains
    return found / (sweeps * chains)


near_of, start_at, exchange, shares_of, sample = (
    numba.njit(nogil=True)(each) for each in (_near, _start, _exchange, _shares, _sample)
)


if __name__ == "__main__":
    main()
