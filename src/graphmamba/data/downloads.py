"""Published files, fetched by PyG's classes -> columns as the paper's code reads them.

Only the fetching is PyG's. Its classes would unpickle some files freely and keep a second copy of
all graphs; here the raw files are read by readers that take tensors alone.
"""

import pickle
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch_geometric.data import Data

from graphmamba.data.from_pyg import columns_of
from graphmamba.data.graph_columns import GraphColumns
from graphmamba.data.malnet import read_edge_lists
from graphmamba.data.peptides import standardise
from graphmamba.data.tensor_pickle import read_tensor_pickle
from graphmamba.errors import UserError

PARTS = ("train", "val", "test")


def download_lrgb(name: str, root: Path) -> GraphColumns:
    """Fetch a set of the Long Range Graph Benchmark."""
    from torch_geometric.datasets import LRGBDataset

    dataset = _without_processing(LRGBDataset, root, name)
    paths = _fetch(dataset)
    read = read_tensor_pickle if name.endswith("-sp") else _read_tensors
    tuples = [read(path) for path in paths]
    make = {"pascalvoc-sp": _region_graph, "coco-sp": _region_graph, "pcqm-contact": _contact_graph}
    graphs = [make.get(name, _peptide_graph)(each) for part in tuples for each in part]
    columns = _with_split(graphs, [len(part) for part in tuples], dataset)
    if name == "coco-sp":
        return replace(columns, nodes=columns.nodes | {"y": _renumber(dataset, columns.nodes["y"])})
    if name == "peptides-struct":
        return replace(columns, graphs={"y": standardise(columns.graphs["y"].float())})
    return columns


def download_gnn_benchmark(name: str, root: Path) -> GraphColumns:
    """Fetch MNIST, CIFAR10, CLUSTER or PATTERN as "Benchmarking GNNs" published them."""
    from torch_geometric.datasets import GNNBenchmarkDataset

    dataset = _without_processing(GNNBenchmarkDataset, root, name.upper())
    (path,) = _fetch(dataset)
    parts = _read_tensors(path)
    graphs = [_benchmark_graph(each) for part in parts for each in part]
    return _with_split(graphs, [len(part) for part in parts], dataset)


def download_malnet(root: Path) -> GraphColumns:
    """Fetch MalNet-Tiny's edge lists and read them as the published code does."""
    from torch_geometric.datasets import MalNetTiny

    dataset = _without_processing(MalNetTiny, root / "malnet-tiny", "MalNet-Tiny")
    _fetch(dataset)
    return read_edge_lists(Path(dataset.raw_dir))


def _without_processing(kind: Any, root: Path, name: str) -> Any:
    """Make one of PyG's data sets that knows where its files are and fetches them, no more."""
    dataset = kind.__new__(kind)
    dataset.root, dataset.name = str(root), name
    return dataset


def _fetch(dataset: Any) -> list[Path]:
    paths = [Path(path) for path in dataset.raw_paths]
    if not all(path.exists() for path in paths):
        Path(dataset.root).mkdir(parents=True, exist_ok=True)
        try:
            dataset.download()
        except OSError as mistake:
            raise UserError(f"{dataset.name} cannot be downloaded: {mistake}") from mistake
    return paths


def _read_tensors(path: Path) -> Any:
    try:
        return torch.load(path, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as mistake:
        first = str(mistake).partition("\n")[0]
        raise UserError(f"{path} must be a whole file of tensors: {first}") from mistake


def _with_split(graphs: Iterable[Data], sizes: list[int], dataset: Any) -> GraphColumns:
    split = torch.repeat_interleave(torch.arange(len(PARTS)), torch.tensor(sizes))
    source = f"{dataset.name}, downloaded by PyG's {type(dataset).__name__}"
    return replace(columns_of(graphs, split), source=source)


def _peptide_graph(parts: Any) -> Data:
    x, edge_attr, edge_index, y = parts
    return Data(x=x.long(), edge_index=edge_index, edge_attr=edge_attr.long(), y=y.float())


def _region_graph(parts: Any) -> Data:
    x, edge_attr, edge_index, y = parts
    labels = torch.as_tensor(y).long()
    return Data(x=x.float(), edge_index=edge_index, edge_attr=edge_attr.float(), y=labels)


def _contact_graph(parts: Any) -> Data:
    """Keep the true pairs; the file's one draw of wrong pairs gives way to fresh ones."""
    x, edge_attr, edge_index, pairs, label = parts
    return Data(
        x=x.long(),
        edge_index=edge_index,
        edge_attr=edge_attr.long(),
        edge_label_index=pairs[:, label == 1],
    )


def _benchmark_graph(columns: dict[str, Tensor]) -> Data:
    """Put colours and places side by side; give edge weights a column of their own."""
    graph = Data(x=columns["x"].float(), edge_index=columns["edge_index"], y=columns["y"].long())
    if columns.get("pos") is not None:
        graph.x = torch.cat([graph.x, columns["pos"].float()], dim=1)
    if columns.get("edge_attr") is not None:
        graph.edge_attr = columns["edge_attr"].float().reshape(-1, 1)
    return graph


def _renumber(dataset: Any, label: Int[Tensor, " nodes"]) -> Int[Tensor, " nodes"]:
    """COCO's category numbers have gaps; close them as published."""
    numbers = dataset.label_remap_coco()
    table = torch.full((max(numbers) + 1,), -1)
    table[list(numbers)] = torch.tensor(list(numbers.values()))
    return table[label]
