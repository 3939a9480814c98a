"""What has to be known about the data of a score: what differs from the published, whose it is."""

from dataclasses import dataclass

LRGB = "as LRGB releases it"
NO_OTHERS = "none: drawn here by a published recipe, no data of others"


@dataclass(frozen=True)
class DataNote:
    """What differs from the data of the published numbers, and the terms it comes under."""

    word: str
    """Stands in the table."""
    about: str
    """Stands below it."""
    licence: str
    """Of the data that a model was trained on."""
    is_comparable: bool = True
    """Whether scores can be held against the published ones."""


SUPERPIXELS = (
    "superpixels cut anew from the images, not the published files: node counts, values and edges "
    "differ a little"
)
NEAREST = (
    f"{SUPERPIXELS}. Each node has 8 edges: ours go to the 8 nearest by place; the published files "
    "keep 8 of the 9 nearest and drop one that depends on how NumPy partitions, so that at least 7 "
    "of 8 edges (87.5 %) are shared where the superpixels are the same"
)
DRAWN = DataNote(
    "drawn anew",
    "graphs drawn anew by the published recipe, which fixes no seed: other graphs, same law",
    NO_OTHERS,
)
DATA_NOTES = {
    "peptides-func": DataNote(
        "official",
        "official molecules, labels and split; graphs built from SMILES",
        f"CC BY-NC 4.0 (SATPdb, {LRGB}): no commercial use",
    ),
    "peptides-struct": DataNote(
        "partial targets",
        "targets recomputed for a part of the peptides and standardised over these: not comparable "
        "with the published numbers, which therefore stand in parentheses",
        f"CC BY-NC 4.0 (SATPdb, {LRGB}): no commercial use",
        is_comparable=False,
    ),
    "pascalvoc-sp": DataNote(
        "regenerated",
        SUPERPIXELS,
        "terms of Pascal VOC 2011; the images come under Flickr's terms of use",
    ),
    "coco-sp": DataNote(
        "regenerated", SUPERPIXELS, f"CC BY 4.0 (MS COCO, {LRGB}); the images are Flickr's"
    ),
    "pcqm-contact": DataNote(
        "official",
        "official molecules; wrong pairs drawn anew in every epoch, as published",
        f"CC BY 4.0 (PCQM4Mv2, {LRGB})",
    ),
    "malnet-tiny": DataNote(
        "official",
        "official graphs and split, nodes without neighbours removed, as published",
        "unknown, see the source: www.mal-net.org",
    ),
    "cifar10": DataNote(
        "regenerated",
        NEAREST,
        "unknown, see the source: www.cs.toronto.edu/~kriz/cifar.html states none",
    ),
    "mnist": DataNote("regenerated", NEAREST, "CC BY-SA 3.0, as those who pass MNIST on state it"),
    "cluster": DRAWN,
    "pattern": DRAWN,
}
"""By the data set's name in the catalogue."""
