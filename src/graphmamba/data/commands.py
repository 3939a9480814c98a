"""`graphmamba data build` and `graphmamba data info`."""

from collections.abc import Iterable
from pathlib import Path

import torch

from graphmamba.checks import check_choice
from graphmamba.data.catalog import CATALOG, Benchmark
from graphmamba.data.graph_columns import GraphColumns
from graphmamba.data.sources import build_benchmark, default_root, open_benchmark
from graphmamba.data.store import GraphStore
from graphmamba.data.summary import Summary, summarise
from graphmamba.errors import UserError

PARTS = ("training", "validation", "test")


def build(
    name: str,
    from_: str | None = None,
    root: str | None = None,
    seed: int = 0,
    download: bool = False,
) -> None:
    """Build one of the ten data sets and keep it: from local files, drawn, or downloaded.

    Args:
        name: The set, as `graphmamba benchmarks` lists it.
        from_: Folder of local raw files; without it the set is drawn by its recipe or downloaded.
            Finished graphs or superpixels: malnet_tiny.npz, mnist_75sp.npz, cifar10_150sp.npz,
            voc_sp_{train_0,train_1,train_2,val,test}.npz, as they are or packed with xz.
            Peptides: peptide_multi_class_dataset.csv[.gz], peptide_split.npz and, for
            peptides-struct, peptide_struct_partial.csv. MalNet-Tiny: malnet-graphs-tiny/ and
            split_info_tiny/type/. Raw images: MNIST's idx files, CIFAR10's binary version,
            PascalVOC-SP's img/, cls/, train.txt and val.txt, or JPEGImages/,
            SegmentationClass[Aug]/ and ImageSets/, COCO-SP's train2017/, val2017/ and
            annotations/. See docs/benchmark-files.md.
        root: Where sets are kept; $GRAPHMAMBA_ROOT or ~/.cache/graphmamba by default.
        seed: Seed of a set that is drawn.
        download: Download also a set that could be drawn.
    """
    check_choice("name", name, tuple(CATALOG))
    place = _root(root)
    store = build_benchmark(name, Path(from_) if from_ else None, place, seed, download)
    _print_table(name, place, _rows(CATALOG[name], summarise(_columns_of(store), sample=0)))


def info(name: str, plot: str | None = None, root: str | None = None, seed: int = 0) -> None:
    """Print what the graphs of a set look like, beside the published figures.

    Args:
        name: The set, as `graphmamba benchmarks` lists it.
        plot: Also draw sizes, degrees, labels and diameters into this file, such as info.png.
        root: Where sets are kept; $GRAPHMAMBA_ROOT or ~/.cache/graphmamba by default.
        seed: Seed of a set that is drawn.
    """
    check_choice("name", name, tuple(CATALOG))
    place = _root(root)
    summary = summarise(_columns_of(open_benchmark(name, place, seed)))
    _print_table(name, place, _rows(CATALOG[name], summary))
    if plot is not None:
        from graphmamba.data.plot import plot_summary

        plot_summary(summary, CATALOG[name].title, Path(plot))


def _root(root: str | None) -> Path:
    place = Path(root) if root else default_root()
    if place.exists() and not place.is_dir():
        raise UserError(f"root must be a folder, got the file '{place}'")
    return place


def _columns_of(store: GraphStore) -> GraphColumns:
    """Take what a summary needs; edges stay sorted, which spares sorting them back."""
    nodes, edges, graphs = (store.tables[kind] for kind in ("nodes", "edges", "graphs"))
    return GraphColumns(
        node_ptr=torch.from_numpy(nodes.ptr),
        edge_ptr=torch.from_numpy(edges.ptr),
        edge_index=edges.given("edge_index"),
        nodes={"y": nodes.given("y")} if "y" in nodes.columns else {},
        graphs={"y": graphs.given("y")} if "y" in graphs.columns else {},
        split=store.split,
        source=store.source,
    )


def _rows(benchmark: Benchmark, summary: Summary) -> Iterable[tuple[str, str, str]]:
    """What is counted, here, and as published."""
    published = (benchmark.train, benchmark.validation, benchmark.test)
    yield "graphs", f"{len(summary.nodes):,}", f"{benchmark.graphs:,}"
    for name, here, there in zip(PARTS, summary.parts, published, strict=True):
        yield f"  {name}", f"{here:,}", f"{there:,}"
    for name, sizes, mean in (
        ("nodes", summary.nodes, benchmark.mean_nodes),
        ("directed edges", summary.edges, benchmark.mean_edges),
    ):
        low, high = (int(end) for end in torch.aminmax(sizes))
        yield f"{name} in all", f"{int(sizes.sum()):,}", ""
        yield f"{name} a graph", f"{sizes.double().mean():,.2f}", f"{mean:,.2f}"
        yield "  from - to", f"{low:,} - {high:,}", ""
    counts = summary.degrees.double()
    mean_degree = float((counts * torch.arange(len(counts))).sum() / counts.sum())
    yield "out-degree", f"{mean_degree:,.2f}", f"{benchmark.mean_edges / benchmark.mean_nodes:,.2f}"
    yield "  at most", f"{len(counts) - 1:,}", ""
    if len(summary.diameters):
        diameter = f"{summary.diameters.double().mean():,.1f}"
        yield f"diameter, {len(summary.diameters)} graphs", diameter, ""
    total = sum(summary.labels.values())
    for label, count in summary.labels.items():
        yield f"label {label}", f"{count:,} ({count / max(total, 1):.1%})", ""
    yield "source", summary.source, ""


def _print_table(name: str, root: Path, rows: Iterable[tuple[str, str, str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    title = f"{CATALOG[name].title}, in {root}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    table.add_column("")
    table.add_column("here", justify="right")
    table.add_column("published", justify="right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
