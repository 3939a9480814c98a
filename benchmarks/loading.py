"""One epoch of batches: a store against PyG's loader over the same graphs, in the same run.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/loading.py --out FILE.json

Without `--cache`, graphs of the sizes of Peptides-func are generated: nine integer columns a node,
three a bond, ten eigenvectors and their eigenvalues. The loaders take turns, so that whatever else
the machine does meets all of them; the ratio is the median over pairs of neighbouring epochs.

On a GPU (`--device cuda`) the store is resident there. An epoch is timed from the first batch to
the moment the GPU has finished the last one; and once more batch by batch, waiting for each.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import torch
from rich.console import Console
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from graphmamba.bench.tables import table, write_json
from graphmamba.data.cache import open_store, write_store
from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, CATALOG
from graphmamba.data.sampler import BatchSampler
from graphmamba.data.store import GraphStore
from graphmamba.environment import describe, resolve_device

RESULTS = Path(__file__).parent / "results"
FREQUENCIES = 10
LONGEST = 444
SPREAD = 0.45
"""Deviation of the logarithm of the sizes."""
WANTED = {"cpu": {"times_faster": 20.0, "ms_to_open": 1000.0}, "cuda": {"ms_a_batch": 0.3}}
"""What a store should reach: times faster than PyG's loader, or milliseconds."""


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cache", type=Path, help="folder of a built set with `columns.*`")
    parser.add_argument("--graphs", type=int, default=CATALOG["peptides-func"].train)
    parser.add_argument("--batch", type=int, default=128, help="graphs of a batch")
    parser.add_argument("--epochs", type=int, default=5, help="measured epochs of each")
    parser.add_argument("--device", default="cpu", help="auto, cpu or cuda: where the store is")
    parser.add_argument("--out", type=Path, default=RESULTS / "loading.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()

    device = resolve_device(options.device)
    if options.cache:
        store = open_store(options.cache)
        graphs = [store[number] for number in range(min(options.graphs, len(store)))]
    else:
        graphs = generate(options.graphs)
        store = GraphStore.from_pyg(graphs)
    opening = time_opening(store)
    result = measure(store.to(device), graphs, options.batch, options.epochs)
    times, title = result["ms_a_batch"], "PyG's DataLoader"
    Console().print(
        table(
            f"Milliseconds a batch of {options.batch} graphs, median of {options.epochs} epochs",
            ["store", "one by one", title, "times faster"],
            [
                [f"{times[name]:.3f}" for name in ("store", "store_one_by_one", "pyg")]
                + [f"{result['times_faster']:.1f}"]
            ],
        )
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "environment": describe(device, options.commit),
        "graphs": len(graphs),
        "nodes": sum(int(graph.num_nodes or 0) for graph in graphs),
        "source": store.source if options.cache else "generated",
        "batch": options.batch,
        "columns": shapes(store.to(device), options.batch),
        "load": os.getloadavg()[0],
        "ms_to_open": opening,
        **result,
        "wanted": WANTED[device.type],
    }
    write_json(options.out, content)


def time_opening(store: GraphStore, times: int = 5) -> float:
    """Milliseconds to open the set again once it is on disk, the first time left out."""
    with TemporaryDirectory() as folder:
        place = Path(folder) / "set"
        write_store(store, place, {"name": "loading"})
        found = [_timed_ms(lambda: open_store(place)) for _ in range(times + 1)]
    return median(found[1:])


def shapes(store: GraphStore, size: int) -> dict[str, str]:
    """Say what a batch is made of, by the first one."""
    batch = store.batch(torch.arange(min(size, len(store))))
    return {
        name: f"{str(values.dtype).removeprefix('torch.')} {list(values.shape)}"
        for name, values in batch
    }


def generate(count: int, seed: int = 0) -> list[Data]:
    """Draw graphs with the columns of Peptides-func and about its sizes."""
    generator = torch.Generator().manual_seed(seed)
    # The mean of a log-normal number is exp(mean + deviation ** 2 / 2).
    middle = torch.tensor(CATALOG["peptides-func"].mean_nodes).log() - SPREAD**2 / 2
    sizes = (middle + SPREAD * torch.randn(count, generator=generator)).exp().clamp(8, LONGEST)
    return [_draw(int(size), generator) for size in sizes]


def _draw(nodes: int, generator: torch.Generator) -> Data:
    def categories(rows: int, vocabulary: tuple[int, ...]) -> torch.Tensor:
        columns = [torch.randint(values, (rows,), generator=generator) for values in vocabulary]
        return torch.stack(columns, dim=1)

    # A chain with a bond more for every fifty atoms, both directions one after the other.
    extra = torch.randint(nodes, (2, nodes // 50 + 1), generator=generator)
    chain = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    bonds = torch.cat([chain, extra], dim=1)
    edge_index = torch.stack([bonds, bonds.flip(0)], dim=2).flatten(1)
    return Data(
        x=categories(nodes, ATOM_VOCABULARY),
        edge_index=edge_index,
        edge_attr=categories(edge_index.shape[1], BOND_VOCABULARY),
        y=torch.randint(2, (1, 10), generator=generator).float(),
        laplacian_vectors=torch.randn(nodes, FREQUENCIES, generator=generator),
        laplacian_values=torch.rand(1, FREQUENCIES, generator=generator).repeat(nodes, 1),
    )


def measure(store: GraphStore, graphs: list[Data], size: int, epochs: int) -> dict[str, Any]:
    """Time whole epochs, shuffled, of all ways in turn; milliseconds a batch."""
    sampler = BatchSampler(torch.arange(len(graphs)), size)
    loader = DataLoader(graphs, batch_size=size, shuffle=True)

    def from_store() -> list[float]:
        def run() -> None:
            for ids in sampler:
                store.batch(ids)
            _wait_for(store)

        return [_timed_ms(run) / len(loader)]

    def one_by_one() -> list[float]:
        def run(ids: torch.Tensor) -> None:
            store.batch(ids)
            _wait_for(store)

        return [_timed_ms(partial(run, ids)) for ids in sampler]

    def from_pyg() -> list[float]:
        return [_timed_ms(lambda: [None for _ in loader]) / len(loader)]

    ways = {"store": from_store, "pyg": from_pyg, "store_one_by_one": one_by_one}
    # The first epoch compiles and warms up.
    found = [{name: run() for name, run in ways.items()} for _ in range(epochs + 1)][1:]
    medians = {name: median(ms for epoch in found for ms in epoch[name]) for name in ways}
    ratio = median(epoch["pyg"][0] / epoch["store"][0] for epoch in found)
    return {"ms_a_batch": medians, "times_faster": ratio, "epochs": _epochs(found)}


def _epochs(found: list[dict[str, list[float]]]) -> list[dict[str, float]]:
    """Keep each epoch's milliseconds a batch, so that the spread can be seen."""
    return [{name: epoch[name][0] for name in ("store", "pyg")} for epoch in found]


def _wait_for(store: GraphStore) -> None:
    if store.device.type == "cuda":
        torch.cuda.synchronize(store.device)


def _timed_ms(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
