"""Where the files lie that PyG's classes fetch, or make of what they fetched."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Fetched:
    """The files of one benchmark, by the names that PyG gives them."""

    folder: str
    """Folder of the set, which holds the folders `raw` and `processed`."""
    files: tuple[tuple[str, ...], ...]
    """Names that hold the whole set together, the raw ones first."""
    archives: tuple[str, ...]
    """Names under which the raw ones come, packed."""

    def find(self, folder: Path) -> list[Path] | None:
        """Return the files of the first complete form; None if the folder has none."""
        # Where PyG has both, the raw files are those that nothing has been done to.
        for place in ("", "raw", f"{self.folder}/raw", "processed", f"{self.folder}/processed"):
            for names in self.files:
                paths = [folder / place / name for name in names]
                if all(path.is_file() for path in paths):
                    return paths
        return None

    def find_archive(self, folder: Path) -> Path | None:
        """Return the packed files, if the folder has them."""
        places = [folder / place / name for place in ("", "raw") for name in self.archives]
        return next((path for path in places if path.is_file()), None)

    def is_in(self, folder: Path) -> bool:
        """Tell whether a folder holds the set in any form."""
        return self.find(folder) is not None or self.find_archive(folder) is not None


def _each_part(ending: str) -> tuple[str, ...]:
    return tuple(f"{part}{ending}" for part in PARTS)


def _molecules(name: str, archive: str) -> Fetched:
    return Fetched(name, (_each_part(".pt"),), (f"{archive}.zip",))


def _regions(name: str, archives: Sequence[str]) -> Fetched:
    packed = tuple(f"{archive}.zip" for archive in archives)
    return Fetched(name, (_each_part(".pickle"), _each_part(".pt")), packed)


def _benchmark(name: str) -> Fetched:
    return Fetched(name, ((f"{name}_v2.pt",), _each_part("_data.pt")), (f"{name}_v2.zip",))


FETCHED: dict[str, Fetched] = {
    "peptides-func": _molecules("peptides-func", "peptidesfunc"),
    "peptides-struct": _molecules("peptides-struct", "peptidesstruct"),
    "pcqm-contact": _molecules("pcqm-contact", "pcqmcontact"),
    "pascalvoc-sp": _regions(
        "pascalvoc-sp", ("pascalvocsp", "voc_superpixels_edge_wt_region_boundary")
    ),
    "coco-sp": _regions("coco-sp", ("cocosp", "coco_superpixels_edge_wt_region_boundary")),
    "mnist": _benchmark("MNIST"),
    "cifar10": _benchmark("CIFAR10"),
    "cluster": _benchmark("CLUSTER"),
    "pattern": _benchmark("PATTERN"),
}
"""MalNet-Tiny is missing here: what PyG fetches of it are the edge lists that `malnet.py` reads."""
