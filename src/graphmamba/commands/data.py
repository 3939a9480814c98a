"""`graphmamba data build`, `data info` and `data verify`."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated

import torch

from graphmamba.checks import check_choice
from graphmamba.commands.arguments import Entries
from graphmamba.commands.printing import say
from graphmamba.data.cache import ABOUT, PARTIAL, DamagedError, default_data_dir, verify_store
from graphmamba.data.catalog import CATALOG, Benchmark
from graphmamba.data.custom.open import OWN, CustomStore, is_custom, open_custom
from graphmamba.data.custom.options import KINDS_OF_FILES, DataOptions, check_read
from graphmamba.data.datasets.sources import build_benchmark, open_benchmark
from graphmamba.data.store import PAIRS, GraphStore
from graphmamba.data.summary import Summary, summarise
from graphmamba.data.tables import LINKS, NODE_SPLIT, PAIR_SPLIT, GraphColumns, Pairs
from graphmamba.errors import UserError
from graphmamba.parse import parse, suggest
from graphmamba.training.metrics import metric_title

READING = Entries(DataOptions, "how your graphs are read")
SPLIT_NAMES = ("training", "validation", "test")


def build(
    name: str,
    from_: str | None = None,
    data_dir: str | None = None,
    seed: int = 0,
    download: bool = False,
) -> None:
    """Build a benchmark data set and cache it: from local files, generated or downloaded.

    Args:
        name: Data set, as listed by `graphmamba benchmarks`.
        from_: Directory of local raw files; without it the data set is generated or downloaded.
            Finished graphs or superpixels: malnet_tiny.npz, mnist_75sp.npz, cifar10_150sp.npz,
            voc_sp_{train_0,train_1,train_2,val,test}.npz, as they are or packed with xz.
            Peptides: peptide_multi_class_dataset.csv[.gz] (peptides-struct:
            peptide_structure_dataset.csv[.gz]) and splits_random_stratified_peptide.pickle or
            peptide_split.npz. PCQM-Contact: pcqm4m-contact.tsv[.gz]. MalNet-Tiny:
            malnet-graphs-tiny/ and split_info_tiny/type/. Raw images: MNIST's idx files,
            CIFAR10's binary version, PascalVOC-SP's img/, cls/, train.txt and val.txt, or
            JPEGImages/, SegmentationClass[Aug]/ and ImageSets/, COCO-SP's train2017/, val2017/ and
            annotations/. Or what PyG's LRGBDataset, GNNBenchmarkDataset or MalNetTiny has fetched.
            See docs/benchmark-files.md.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
        seed: Random seed of a generated data set.
        download: Download CLUSTER or PATTERN instead of generating it.
    """
    check_choice("name", name, tuple(CATALOG))
    place = _root(data_dir)
    if from_ == "":
        raise UserError("from must name a folder, got ''")
    store = build_benchmark(name, Path(from_) if from_ else None, place, seed, download)
    summary = summarise(_columns_of(store), sample=0, names=CATALOG[name].names)
    _print_table(f"{CATALOG[name].title}, in {place}", _rows(summary, CATALOG[name]), store.source)


def info(
    name: str,
    *,
    plot: str | None = None,
    data_dir: str | None = None,
    seed: int = 0,
    options: Annotated[Mapping[str, object], READING] = {},
) -> None:
    """Print statistics of a data set; for a benchmark, beside the published ones.

    Args:
        name: Data set, as listed by `graphmamba benchmarks`; or your graphs: a folder or file, as
            for `graphmamba train`.
        plot: Also plot sizes, degrees, labels and diameters to this file, such as info.png.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
        seed: Random seed of a generated data set.
        options: See below.
    """
    if plot is not None and not Path(plot).absolute().parent.is_dir():
        raise UserError(f"plot must be a file in a folder that exists, got '{plot}'")
    place = _root(data_dir)
    if name not in CATALOG and not is_custom(name):
        told = suggest(name, CATALOG)
        raise UserError(
            f"name must be a data set or custom graphs ({KINDS_OF_FILES}), got '{name}'; {told}"
        )
    reading = parse(DataOptions, options, "options")
    if name in CATALOG:
        check_read(reading, "benchmark", name)
        title = CATALOG[name].title
        store = open_benchmark(name, place, seed)
        summary = summarise(_columns_of(store), names=CATALOG[name].names)
        _print_table(f"{title}, in {place}", _rows(summary, CATALOG[name]), store.source)
    else:
        if seed != 0:
            raise UserError(f"seed must be 0 for {name}, which is not generated, got {seed}")
        own, title = open_custom(name, reading, place), Path(name).name
        summary = summarise(_columns_of(own.store), names=own.class_names)
        _print_table(title, [*_task_rows(own), *_rows(summary)], own.store.source)
    if plot is not None:
        from graphmamba.data.plot import plot_summary

        plot_summary(summary, title, Path(plot))
        say(f"  plot: {plot}")


def verify(name: str, data_dir: str | None = None) -> None:
    """Compare the cached files of a data set with their stored hashes.

    Args:
        name: Data set, as listed by `graphmamba benchmarks`; or own, for all your graphs.
        data_dir: Directory of data sets; default: $GRAPHMAMBA_DATA_DIR or ~/.cache/graphmamba.
    """
    check_choice("name", name, (*CATALOG, OWN))
    folder = _root(data_dir) / name
    places = sorted(file.parent for file in folder.glob(f"*/{ABOUT}"))
    places = [place for place in places if PARTIAL not in place.name]
    if not places:
        raise UserError(f"nothing of {name} is kept in '{folder}'")
    damaged: list[str] = []
    for place in places:
        try:
            say(f"whole     {place}, {verify_store(place):,} bytes")
        except (DamagedError, OSError) as error:
            say(f"damaged   {place}")
            damaged.append(str(error))
    if damaged:
        raise UserError(f"{len(damaged)} of {len(places)} damaged: {'; '.join(damaged)}")


def _root(data_dir: str | None) -> Path:
    place = Path(data_dir) if data_dir else default_data_dir()
    if place.exists() and not place.is_dir():
        raise UserError(f"data_dir must be a folder, got the file '{place}'")
    return place


def _columns_of(store: GraphStore) -> GraphColumns:
    """Columns for a summary; edges stay sorted, to save time."""
    nodes, edges, graphs = (store.tables[kind] for kind in ("nodes", "edges", "graphs"))
    links = store.tables.get(PAIRS + LINKS)
    pairs = {}
    if links:
        columns = {PAIR_SPLIT: links.given(PAIR_SPLIT)} if PAIR_SPLIT in links.columns else {}
        pairs = {LINKS: Pairs(torch.from_numpy(links.ptr), links.given(LINKS), columns)}
    return GraphColumns(
        node_ptr=torch.from_numpy(nodes.ptr),
        edge_ptr=torch.from_numpy(edges.ptr),
        edge_index=edges.given("edge_index"),
        nodes={name: nodes.given(name) for name in ("y", NODE_SPLIT) if name in nodes.columns},
        graphs={"y": graphs.given("y")} if "y" in graphs.columns else {},
        pairs=pairs,
        split=store.split,
        source=store.source,
    )


def _task_rows(own: CustomStore) -> Iterable[tuple[str, str, str]]:
    """Rows about the task; for benchmarks see `graphmamba benchmarks`."""
    labels = f"{own.task.classes} classes" if own.task.classes else ", ".join(own.class_names)
    yield "task", f"{own.task.level}: {labels or 'pairs'}, {metric_title(own.task.metric)}", ""
    for of, kind, columns in (
        ("a node", own.features.nodes, own.features.node_columns),
        ("an edge", own.features.edges, own.features.edge_columns),
    ):
        unit = f"number{'s' * (columns != 1)}" if kind == "numbers" else f"columns of OGB's {kind}"
        yield f"features of {of}", f"{columns:,} {unit}" if columns else "none", ""


def _rows(summary: Summary, benchmark: Benchmark | None = None) -> Iterable[tuple[str, str, str]]:
    """Rows of statistics: here, and as published."""
    published: dict[str, str] = {}
    if benchmark is not None:
        published = {
            "training": f"{benchmark.train:,}",
            "validation": f"{benchmark.validation:,}",
            "test": f"{benchmark.test:,}",
            "graphs": f"{benchmark.graphs:,}",
            "nodes": f"{benchmark.mean_nodes:,.2f}",
            "directed edges": f"{benchmark.mean_edges:,.2f}",
            "out-degree": f"{benchmark.mean_edges / benchmark.mean_nodes:,.2f}",
        }
    yield "graphs", f"{len(summary.nodes):,}", published.get("graphs", "")
    unit = "" if summary.split_unit == "graphs" else f" {summary.split_unit}"
    for name, count in zip(SPLIT_NAMES, summary.split_sizes, strict=True):
        yield f"  {name}{unit}", f"{count:,}", published.get(name, "")
    for name, sizes in (
        ("nodes", summary.nodes),
        ("directed edges", summary.edges),
        ("labelled pairs", summary.pairs),
    ):
        if sizes is not None:
            low, high = (int(end) for end in torch.aminmax(sizes))
            yield f"{name} in all", f"{int(sizes.sum()):,}", ""
            yield f"{name} per graph", f"{sizes.double().mean():,.2f}", published.get(name, "")
            yield "  from - to", f"{low:,} - {high:,}", ""
    counts = summary.degrees.double()
    mean_degree = float((counts * torch.arange(len(counts))).sum() / counts.sum())
    yield "out-degree", f"{mean_degree:,.2f}", published.get("out-degree", "")
    yield "  at most", f"{len(counts) - 1:,}", ""
    if len(summary.diameters):
        bound = "" if summary.has_exact_diameters else "at least "
        told = f"{bound}{summary.diameters.double().mean():,.1f}"
        graphs = len(summary.diameters)
        yield f"diameter, {graphs} graph{'s' * (graphs != 1)}", told, ""
    for label, count in summary.labels.items():
        share = count / max(summary.answers[label], 1)
        yield f"label {label}", f"{count:,} ({share:.1%})", ""
    for target, (middle, deviation) in summary.targets.items():
        yield f"target {target}", f"{round(middle, 6) + 0.0:,.4g} ± {deviation:,.4g}", ""
    if summary.unlabelled:
        yield "without label", f"{summary.unlabelled:,}", ""


def _print_table(title: str, rows: Iterable[tuple[str, str, str]], source: str) -> None:
    from graphmamba.studies.report import table

    listed = list(rows)
    columns = ["", "here", "published"] if any(there for _, _, there in listed) else ["", "value"]
    cells = (row[: len(columns)] for row in listed)
    say(table(title, columns, cells, words=1), f"  source: {source}")
