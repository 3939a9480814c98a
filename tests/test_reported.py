"""Reported scores against the first line of each config."""

import re

import pytest

from graphmamba.data.catalog import CATALOG
from graphmamba.reported import PUBLISHED, published
from graphmamba.training.experiment import PRESETS, config_names

NUMBER = re.compile(r": [^:]*?(0\.\d{4})(?: ± (0\.\d{4}))? \((.*?)(?:, [a-z-]+ table)?\)$")


def first_line(name: str) -> str:
    return (PRESETS / f"{name}.yaml").read_text().splitlines()[0]


@pytest.mark.parametrize("name", config_names())
def test_the_score_is_the_one_in_the_config(name: str) -> None:
    told = NUMBER.search(first_line(name))
    score = published(*name.split("/"))
    if told is None:
        assert score is None, first_line(name)
        return
    assert score is not None
    mean, std, source = told.groups()
    assert (f"{score.mean:.4f}", score.source) == (mean, source)
    assert score.std == (None if std is None else float(std))
    assert str(score) == mean + (f" ± {std}" if std else "")


def test_every_score_is_of_a_known_set() -> None:
    assert sum(NUMBER.search(first_line(name)) is not None for name in config_names()) > 90
    assert {name.partition("/")[0] for name in PUBLISHED} == set(CATALOG)
    assert len(PUBLISHED) == 8 * 10 - 1 + 17 + 1 + 5 + 5
    assert all(0 < score.mean < 1 for score in PUBLISHED.values())
    assert published("malnet-tiny", "gps-transformer") is None
