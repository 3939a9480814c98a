"""Numbers of parameters, to the last digit: the paper's, and our own of other models."""

import pytest
import torch

from graphmamba.training.experiment import config_names, load_experiment

SETS = (
    "peptides-func", "peptides-struct", "pascalvoc-sp", "coco-sp", "malnet-tiny",
    "cifar10", "mnist", "cluster", "pattern", "pcqm-contact",
)  # fmt: skip
TABLE = """
graph-mamba              373018 491867  497781  503601 285125 113818 116486  508966 335281 500112
gps-transformer          382522 504539  510453  516273 286725 112726 115394  502054 337201 512784
gps-transformer-upstream 504442      -       -       -      -      -      -       -      -      -
gps-performer            565978 749147 1148277 1154097 531525 239554 242222 1925158 630961 757392
gps-bigbird              438682 579419  585333  591153 328645 129418 132086  578086 387505 587664
exphormer                503290 425971  509301  515121 286277 111095 111015  282970  91045 432824
exphormer-upstream       445914 425971  509013  498993      - 111095 111015  282970  91045 395984
gatedgcn                 509506 509645  502113  508653      -      -      -       -      - 527298
gcn-plus                 507351      -       -       -      -      -      -       -      -      -
graph-mamba-plus         493738      -  478165       - 452405      -      -  423534      -      -
graph-mamba-spectral     437504      -       -       -      -      -      -       -      -      -
gine                     475706 475915  505491  515511      -      -      -       -      - 517088
"""
TOTALS = {
    f"{dataset}/{model}": int(total)
    for model, *totals in map(str.split, TABLE.strip().splitlines())
    for dataset, total in zip(SETS, totals, strict=True)
    if total != "-"
}
FOUR_LAYERS = {  # as in the paper's text
    "peptides-func/graph-mamba": 491_770,
    "peptides-func/gps-performer": 749_050,
    "peptides-func/gps-bigbird": 579_322,
}


def total(name: str, overrides: dict[str, object] | None = None) -> int:
    with torch.device("meta"):
        model = load_experiment(name, overrides).build()
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "expected"), TOTALS.items())
def test_total_of_the_preset(name: str, expected: int) -> None:
    assert total(name) == expected


@pytest.mark.parametrize(("name", "expected"), FOUR_LAYERS.items())
def test_total_with_four_layers(name: str, expected: int) -> None:
    assert total(name, {"model.layers": 4}) == expected


def test_performer_with_heads_of_the_usual_width_is_as_large_as_the_transformer() -> None:
    performer = total("cluster/gps-performer", {"model.attention.head_width": None})
    assert performer == pytest.approx(total("cluster/gps-transformer"), rel=0.01)


def test_an_input_layer_norm_adds_two_parameters_per_channel_and_layer() -> None:
    plain, normed = (total("mnist", {"model.input_norm": norm}) for norm in ("none", "layer"))
    assert normed - plain == 3 * 2 * 52


def test_graph_mamba_plus_has_at_most_500_000_parameters() -> None:
    own = [
        name
        for name in config_names()
        if name.endswith(("graph-mamba-plus", "graph-mamba-spectral"))
    ]
    assert {name.partition("/")[0] for name in own} == {
        *("peptides-func", "pascalvoc-sp", "malnet-tiny", "cluster")
    }
    assert all(total(name) <= 500_000 for name in own)
