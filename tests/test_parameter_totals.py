"""The paper's parameter counts, to the last digit."""

import pytest
import torch

from graphmamba.training.experiment import config_names, load_experiment

TOTALS = {
    "peptides-func/graph-mamba": 373_018,
    "peptides-struct/graph-mamba": 491_867,
    "pascalvoc-sp/graph-mamba": 497_781,
    "coco-sp/graph-mamba": 503_601,
    "malnet-tiny/graph-mamba": 285_125,
    "cifar10/graph-mamba": 113_818,
    "mnist/graph-mamba": 116_486,
    "cluster/graph-mamba": 508_966,
    "pattern/graph-mamba": 335_281,
    "pcqm-contact/graph-mamba": 500_112,
    "peptides-func/gps-transformer": 382_522,
    "peptides-func/gps-transformer-upstream": 504_442,
    "peptides-struct/gps-transformer": 504_539,
    "pascalvoc-sp/gps-transformer": 510_453,
    "coco-sp/gps-transformer": 516_273,
    "malnet-tiny/gps-transformer": 286_725,
    "cifar10/gps-transformer": 112_726,
    "mnist/gps-transformer": 115_394,
    "cluster/gps-transformer": 502_054,
    "pattern/gps-transformer": 337_201,
    "pcqm-contact/gps-transformer": 512_784,
    "peptides-func/gps-performer": 565_978,
    "peptides-struct/gps-performer": 749_147,
    "pascalvoc-sp/gps-performer": 1_148_277,
    "coco-sp/gps-performer": 1_154_097,
    "malnet-tiny/gps-performer": 531_525,
    "cifar10/gps-performer": 239_554,
    "mnist/gps-performer": 242_222,
    "cluster/gps-performer": 1_925_158,
    "pattern/gps-performer": 630_961,
    "pcqm-contact/gps-performer": 757_392,
    "peptides-func/gps-bigbird": 438_682,
    "peptides-struct/gps-bigbird": 579_419,
    "pascalvoc-sp/gps-bigbird": 585_333,
    "coco-sp/gps-bigbird": 591_153,
    "malnet-tiny/gps-bigbird": 328_645,
    "cifar10/gps-bigbird": 129_418,
    "mnist/gps-bigbird": 132_086,
    "cluster/gps-bigbird": 578_086,
    "pattern/gps-bigbird": 387_505,
    "pcqm-contact/gps-bigbird": 587_664,
    "peptides-func/exphormer": 503_290,
    "peptides-func/exphormer-upstream": 445_914,
    "peptides-struct/exphormer": 425_971,
    "peptides-struct/exphormer-upstream": 425_971,
    "pascalvoc-sp/exphormer": 509_301,
    "pascalvoc-sp/exphormer-upstream": 509_013,
    "coco-sp/exphormer": 515_121,
    "coco-sp/exphormer-upstream": 498_993,
    "malnet-tiny/exphormer": 286_277,
    "cifar10/exphormer": 111_095,
    "cifar10/exphormer-upstream": 111_095,
    "mnist/exphormer": 111_015,
    "mnist/exphormer-upstream": 111_015,
    "cluster/exphormer": 282_970,
    "cluster/exphormer-upstream": 282_970,
    "pattern/exphormer": 91_045,
    "pattern/exphormer-upstream": 91_045,
    "pcqm-contact/exphormer": 432_824,
    "pcqm-contact/exphormer-upstream": 395_984,
    "peptides-func/gatedgcn": 509_506,
    "peptides-struct/gatedgcn": 509_645,
    "pascalvoc-sp/gatedgcn": 502_113,
    "coco-sp/gatedgcn": 508_653,
    "pcqm-contact/gatedgcn": 527_298,
    "peptides-func/gcn-plus": 507_351,
    "peptides-func/graph-mamba-plus": 493_738,
    "peptides-func/graph-mamba-spectral": 437_504,
    "pascalvoc-sp/graph-mamba-plus": 478_165,
    "cluster/graph-mamba-plus": 423_534,
    "malnet-tiny/graph-mamba-plus": 452_405,
    "peptides-func/gine": 475_706,
    "peptides-struct/gine": 475_915,
    "pascalvoc-sp/gine": 505_491,
    "coco-sp/gine": 515_511,
    "pcqm-contact/gine": 517_088,
}
FOUR_LAYERS = {
    "peptides-func/graph-mamba": 491_770,
    "peptides-func/gps-performer": 749_050,
    "peptides-func/gps-bigbird": 579_322,
}


def total(name: str, overrides: dict[str, object] | None = None) -> int:
    with torch.device("meta"):
        model = load_experiment(name, overrides).build()
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "expected"), TOTALS.items())
def test_published_total(name: str, expected: int) -> None:
    assert total(name) == expected


@pytest.mark.parametrize(("name", "expected"), FOUR_LAYERS.items())
def test_total_with_the_four_layers_of_the_text(name: str, expected: int) -> None:
    assert total(name, {"model.layers": 4}) == expected


def test_size_matched_performer_is_as_large_as_its_siblings() -> None:
    performer = total("cluster/gps-performer", {"model.attention.head_width": None})
    assert performer == pytest.approx(total("cluster/gps-transformer"), rel=0.01)


def test_layer_norm_of_the_paper_s_text_adds_two_rows_per_layer() -> None:
    plain, normed = (total("mnist", {"model.input_norm": norm}) for norm in ("none", "layer"))
    assert normed - plain == 3 * 2 * 52


BEYOND = [name for name in config_names() if name.endswith(("-plus", "-spectral"))]


def test_what_goes_beyond_the_paper_stays_within_its_budget() -> None:
    own = [name for name in BEYOND if "graph-mamba" in name]
    assert {name.partition("/")[0] for name in own} == {
        *("peptides-func", "pascalvoc-sp", "malnet-tiny", "cluster")
    }
    assert all(total(name) <= 500_000 for name in own)
