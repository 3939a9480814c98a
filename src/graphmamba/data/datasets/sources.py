"""Open and build the ten benchmarks: read from files, downloaded, or generated."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote

import torch
from torch import Tensor

from graphmamba.checks import check_choice, check_seed
from graphmamba.data.cache import default_data_dir, open_or_build, open_store, recipe_hash
from graphmamba.data.catalog import CATALOG, Benchmark
from graphmamba.data.datasets import coco, malnet, pcqm_contact, peptides, superpixels, voc
from graphmamba.data.datasets.download import RAW_FILES, find_fetched, read_fetched
from graphmamba.data.datasets.download import download as fetch
from graphmamba.data.datasets.files import MissingFileError
from graphmamba.data.datasets.sbm import Sizes, generate_cluster, generate_pattern
from graphmamba.data.store import GraphStore
from graphmamba.data.tables import LINKS, GraphColumns
from graphmamba.data.transforms.precompute import Precompute, with_precomputed
from graphmamba.errors import UserError

COMPUTED = "computed"  # folder of precomputed columns within that of a benchmark
PROFILE = Precompute(degree_profile="unbiased")
"""Features of graphs that have none, as published (MalNet-Tiny)."""


@dataclass(frozen=True)
class Source:
    """Ways to make a benchmark, besides the download."""

    read: Callable[[Path], GraphColumns] | None = None  # reads a folder of local files
    files: str = ""  # description of the files in such a folder
    generate: Callable[[Sizes, int], GraphColumns] | None = None  # from sizes and a seed
    has_features: bool = True  # if nodes have none, the local degree profile is used
    reading: int = 1  # version of the recipe; raise it to invalidate the cache


SOURCES: dict[str, Source] = {
    "peptides-func": Source(
        peptides.read_peptides_func, f"{peptides.LABELLED}[.gz] and {peptides.SPLIT_FILES}"
    ),
    "peptides-struct": Source(
        peptides.read_peptides_struct,
        f"{peptides.STRUCTURES[0]}[.gz] and {peptides.SPLIT_FILES}, "
        f"or {peptides.LABELLED}[.gz], {peptides.MEASURED} (targets of some peptides) "
        f"and {peptides.SPLIT_FILES}",
    ),
    "pascalvoc-sp": Source(voc.read_voc_folder, voc.HOLDS),
    "coco-sp": Source(coco.read_coco, coco.FOLDERS, reading=2),
    "pcqm-contact": Source(pcqm_contact.read_pcqm_contact, f"{pcqm_contact.FILE}[.gz]"),
    "malnet-tiny": Source(malnet.read_malnet, malnet.FILES, has_features=False),
    "cifar10": Source(superpixels.read_cifar10, superpixels.CIFAR_HOLDS),
    "mnist": Source(superpixels.read_mnist, superpixels.MNIST_HOLDS),
    "cluster": Source(generate=generate_cluster),
    "pattern": Source(generate=generate_pattern),
}


def open_benchmark(
    name: str, data_dir: Path | None = None, seed: int = 0, sizes: Sizes | None = None
) -> GraphStore:
    """Open a benchmark that was built before; CLUSTER and PATTERN are generated if missing.

    Args:
        name: Name in the catalogue.
        data_dir: Directory of data sets; None for the default.
        seed: Random seed of a generated data set.
        sizes: Graphs of the three splits of a generated data set; None for the published sizes.
    """
    data_dir = data_dir or default_data_dir()
    recipe = recipe_of(name, seed, sizes)
    generate = SOURCES[name].generate
    if generate is not None:
        build = partial(generate, sizes or published_sizes(name), seed)
        return open_or_build(data_dir / name, recipe, build)
    if not (place := place_of(name, data_dir)).exists():
        raise UserError(f"{name} is not in {data_dir}: {how_to_get(name, data_dir)}")
    return open_store(place)


def build_benchmark(
    name: str,
    folder: Path | None = None,
    data_dir: Path | None = None,
    seed: int = 0,
    download: bool = False,
) -> GraphStore:
    """Build a benchmark: read local files, or generate it, or download it.

    Args:
        name: Name in the catalogue.
        folder: Local files; None to generate or download.
        data_dir: Where sets are kept; downloaded files go to its folder `raw`.
        seed: Random seed of a generated data set.
        download: Download also what could be generated; not together with a folder.
    """
    if folder is not None and download:
        raise UserError(f"--download must not be given with --from, got --from '{folder}'")
    data_dir = data_dir or default_data_dir()
    recipe = recipe_of(name, seed)
    source = SOURCES[name]
    if folder is None:
        if source.generate is None or download:
            origin, make = "the download", partial(fetch, name, data_dir / "raw")
        else:
            origin, make = "the recipe", partial(source.generate, published_sizes(name), seed)
    else:
        origin, make = f"folder {folder}", partial(_read_folder, name, folder)

    def build() -> GraphColumns:
        columns = make()
        check_benchmark(columns, CATALOG[name], origin, has_features=source.has_features)
        return columns

    return open_or_build(data_dir / name, recipe, build, rebuild=True)


def place_of(name: str, data_dir: Path | None = None, seed: int = 0) -> Path:
    """Folder of a data set, which may not exist."""
    return (data_dir or default_data_dir()) / name / recipe_hash(recipe_of(name, seed))[:16]


def recipe_of(name: str, seed: int = 0, sizes: Sizes | None = None) -> dict[str, object]:
    """Cache recipe of a data set; a generated one depends on seed and sizes."""
    check_seed("seed", seed)
    check_choice("name", name, tuple(CATALOG))
    recipe: dict[str, object] = {"benchmark": name, "reading": SOURCES[name].reading}
    if SOURCES[name].generate is not None:
        recipe |= {"seed": seed, "sizes": list(sizes or published_sizes(name))}
    elif sizes is not None:
        raise UserError(f"sizes must be None for {name}, which is not generated, got {sizes}")
    elif seed != 0:
        raise UserError(f"seed must be 0 for {name}, which is not generated, got {seed}")
    return recipe


def published_sizes(name: str) -> Sizes:
    """Graphs of the three splits as published."""
    benchmark = CATALOG[name]
    return benchmark.train, benchmark.validation, benchmark.test


def _read_folder(name: str, folder: Path) -> GraphColumns:
    """Read a folder; finished graphs are preferred to raw files."""
    read = SOURCES[name].read
    if fetched := find_fetched(name, folder):
        return read_fetched(name, fetched)
    told = f"--from must be a folder that holds {_files_of(name)}, got '{folder}'"
    if read is None or not folder.is_dir():
        raise UserError(told)
    try:
        return read(folder)
    except MissingFileError as missing:
        raise UserError(f"{told}: {missing}") from missing


def _files_of(name: str) -> str:
    return " or ".join(
        filter(None, [SOURCES[name].files, "what PyG has fetched" * (name in RAW_FILES)])
    )


def how_to_get(name: str, data_dir: Path | None = None) -> str:
    """One line on how to build a missing data set."""
    source = SOURCES[name]
    verb = "generate it by its recipe" if source.generate else "download it"
    place = "" if data_dir in (None, default_data_dir()) else f" --data_dir {quote(str(data_dir))}"
    told = f"{verb} with `graphmamba data build {name}{place}`"
    return f"{told}, or build it from local files with `--from DIR` (DIR holds {_files_of(name)})"


def open_with_columns(
    name: str,
    asked: Precompute | None = None,
    data_dir: Path | None = None,
    sizes: Sizes | None = None,
) -> GraphStore:
    """Open a benchmark with the precomputed columns that a model reads.

    Columns are computed at first use, with a progress bar, and cached with the data set; they are
    computed again if it is rebuilt from other files. Graphs without features get their local degree
    profile as `x`.
    """
    data_dir = data_dir or default_data_dir()
    store = open_benchmark(name, data_dir, 0, sizes)
    # not read from the place again: another set may be there by now
    recipe = {"content": store.content}
    folder = data_dir / name / COMPUTED
    if "x" not in store.tables["nodes"].columns:
        made = with_precomputed(store, PROFILE, folder, recipe).tables["nodes"]
        store = store.with_columns(nodes={"x": made.given("degree_profile")})
    return with_precomputed(store, asked or Precompute(), folder, recipe)


def check_benchmark(
    columns: GraphColumns, benchmark: Benchmark, origin: str, *, has_features: bool = True
) -> None:
    """Reject graphs that are not those of the named benchmark."""
    features, task = benchmark.features, benchmark.task
    tables = {"graph": columns.graphs, "node": columns.nodes}
    found = [
        _wrong("x", columns.nodes.get("x"), features.node_columns if has_features else 0,
               features.nodes == "atoms"),
        _wrong("edge_attr", columns.edges.get("edge_attr"), features.edge_columns,
               features.edges == "bonds"),
    ]  # fmt: skip
    if task.level == "link":
        found.append(f"{LINKS} must be there, got none" * (LINKS not in columns.pairs))
    elif (y := tables[task.level].get("y")) is None:
        found.append(f"y must be of each {task.level}, got none")
    elif not task.classes:
        found.append(_wrong("y", y, task.outputs, is_integer=False))
    elif y.dim() != 1 or y.is_floating_point():
        found.append(f"y must hold a class each, got {_shape(y)}")
    elif len(y) and not 0 <= int(y.min()) <= int(y.max()) < task.classes:
        found.append(f"y must be 0 to {task.classes - 1}, got {int(y.min())} to {int(y.max())}")
    if wrong := next(filter(None, found), ""):
        read = f" ({columns.source})" if columns.source else ""
        raise UserError(f"{origin} must hold graphs of {benchmark.title}: {wrong}{read}")


def _wrong(name: str, values: Tensor | None, columns: int, is_integer: bool) -> str:
    """What a column breaks of its rule; empty if nothing."""
    if not columns:
        return "" if values is None else f"{name} must not be there, got {_shape(values)}"
    is_kind = values is not None and values.is_floating_point() != is_integer
    if values is None or values.shape[1:] != (columns,) or not is_kind:
        kind = "integers" if is_integer else "floating-point numbers"
        return f"{name} must have {columns} columns of {kind}, got {_shape(values)}"
    # a target may be missing, a feature may not
    is_whole = name == "y" or bool(torch.isfinite(values).all())
    return "" if is_whole else f"{name} must hold finite numbers, got others"


def _shape(values: Tensor | None) -> str:
    return "none" if values is None else f"{values.dtype} of shape {list(values.shape)}"
