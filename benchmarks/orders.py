"""How far each order puts neighbours apart: mean places between the two ends of an edge.

    PYTHONPATH=src python benchmarks/orders.py --data_dir FOLDER --out FILE.json

A scan forgets along the line, so that what an order puts near one another is what it can join. The
second number is how much two node orders of the same graph agree: the mean size of the correlation
of their places, 1 where one is the other or its reverse.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from graphmamba.checks import check_least
from graphmamba.data.batch import Topology, topology_of
from graphmamba.data.datasets.sources import open_with_columns
from graphmamba.data.transforms.precompute import Precompute
from graphmamba.environment import describe, resolve_device
from graphmamba.ordering import ABLATIONS, OrderPolicy, order_nodes
from graphmamba.studies.report import table, write_json

RESULTS = Path(__file__).parent / "results"
ORDERS = {**ABLATIONS, "spectral": OrderPolicy(score="spectral")}
ASKED = Precompute(num_eigenvectors=10, has_centrality=True, has_clusters=True)


def main() -> None:
    """Measure, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--benchmark", default="peptides-func")
    parser.add_argument("--data_dir", type=Path, help="where data sets are kept")
    parser.add_argument("--graphs", type=int, default=256, help="the first of the set")
    parser.add_argument("--node-orders", type=int, default=8, help="of each graph")
    parser.add_argument("--out", type=Path, default=RESULTS / "orders.json")
    parser.add_argument("--commit", help="names the commit where the copy has no history")
    options = parser.parse_args()
    check_least("--graphs", options.graphs, 1)
    check_least("--node-orders", options.node_orders, 2)

    store = open_with_columns(options.benchmark, ASKED, options.data_dir)
    batch = store.batch(torch.arange(min(options.graphs, len(store))))
    topology = replace(topology_of(batch), seed=torch.tensor(0))
    rows = list(measure(topology, options.node_orders))
    columns = ["order", "places between neighbours", "agreement of node orders"]
    texts = [[row["order"], f"{row['places']:.1f}", f"{row['agreement']:.2f}"] for row in rows]
    Console().print(table(f"{options.benchmark}, {topology.num_graphs} graphs", columns, texts))
    write_json(
        options.out,
        {
            "environment": describe(resolve_device("cpu"), options.commit),
            "benchmark": options.benchmark,
            "source": store.source,
            "graphs": topology.num_graphs,
            "node_orders": options.node_orders,
            "rows": rows,
        },
    )


def measure(topology: Topology, node_orders: int) -> Iterator[dict[str, Any]]:
    """Measure every order over several node orders of the same graphs."""
    for name, policy in ORDERS.items():
        places = _places(policy, topology, node_orders)
        source, target = topology.edge_index
        yield {
            "order": name,
            "places": float((places[:, source] - places[:, target]).abs().double().mean()),
            "agreement": _agreement(places, topology),
        }


def _places(policy: OrderPolicy, topology: Topology, node_orders: int) -> Tensor:
    """Place of each node in each node order, [node orders, nodes]."""
    nodes = topology.batch.shape[0]
    order = order_nodes(policy, topology, samples=node_orders).order
    if order is None:
        return torch.arange(nodes).expand(node_orders, -1)
    return torch.stack([line.argsort() for line in (order % nodes).view(node_orders, nodes)])


def _agreement(places: Tensor, topology: Topology) -> float:
    """Mean size of the correlation between two node orders of a graph of several nodes."""
    count, found = len(places), []
    for start, end in topology.starts().unfold(0, 2, 1).tolist():
        if end - start > 1:
            same = torch.corrcoef(places[:, start:end].double()).abs()
            found.append((same.sum() - count) / (count * (count - 1)))
    return float(torch.stack(found).mean())


if __name__ == "__main__":
    main()
