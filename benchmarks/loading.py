"""One epoch of batches: a store against PyG's loader over the same graphs, in the same run.

Run it in the repository; the package need not be installed:

    PYTHONPATH=src python benchmarks/loading.py --out FILE.json

Without `--cache`, graphs of the sizes of Peptides-func are generated: nine integer columns a node,
three a bond, ten eigenvectors and their eigenvalues. The two loaders take turns, so that whatever
else the machine does meets both.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from rich.console import Console
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from graphmamba.environment import describe, resolve_device
from graphmamba.bench.tables import table, write_json
from graphmamba.data.cache import open_store
from graphmamba.data.catalog import ATOM_VOCABULARY, BOND_VOCABULARY, CATALOG
from graphmamba.data.sampler import BatchSampler
from graphmamba.data.store import GraphStore

RESULTS = Path(__file__).parent / "results"
FREQUENCIES = 10
LONGEST = 444
SPREAD = 0.45
"""Deviation of the logarithm of the sizes."""
WANTED = 20
"""Times that a store should be faster."""


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
    times = measure(store.to(device), graphs, options.batch, options.epochs)
    ratio = times["pyg"] / times["store"]
    Console().print(
        table(
            f"Milliseconds a batch of {options.batch} graphs, median of {options.epochs} epochs",
            ["store", "PyG's DataLoader", "times faster"],
            [[f"{times['store']:.3f}", f"{times['pyg']:.3f}", f"{ratio:.1f}"]],
        )
    )
    options.out.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "environment": describe(device, options.commit),
        "graphs": len(graphs),
        "nodes": sum(int(graph.num_nodes or 0) for graph in graphs),
        "source": store.source if options.cache else "generated",
        "batch": options.batch,
        "ms_a_batch": times,
        "times_faster": ratio,
        "wanted": WANTED,
    }
    write_json(options.out, content)


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


def measure(store: GraphStore, graphs: list[Data], size: int, epochs: int) -> dict[str, float]:
    """Time whole epochs, shuffled, of both in turn; milliseconds a batch."""
    sampler = BatchSampler(torch.arange(len(graphs)), size)
    loader = DataLoader(graphs, batch_size=size, shuffle=True)

    def from_store() -> None:
        for ids in sampler:
            store.batch(ids)
        if store.device.type == "cuda":
            torch.cuda.synchronize()

    def from_pyg() -> None:
        for _ in loader:
            pass

    ways: dict[str, Callable[[], None]] = {"store": from_store, "pyg": from_pyg}
    # The first epoch compiles and warms up.
    epochs_ms = [{name: _timed_ms(run) for name, run in ways.items()} for _ in range(epochs + 1)][
        1:
    ]
    return {name: median(each[name] for each in epochs_ms) / len(loader) for name in ways}


def _timed_ms(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


if __name__ == "__main__":
    main()
